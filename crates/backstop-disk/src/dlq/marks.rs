//! Marks: which lines of a file with many events have been sent again.
//!
//! A mark is a line `<number>.` in a file beside it. The full stop ends it: a number that a crash tore must not
//! pass for another one, since a marked line counts as sent. A mark that is lost only means that an event is
//! sent once more.

use std::io::Read;

use super::directory::Directory;
use super::name;

/// The numbers of lines, gathered into ranges.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(u64, u64)>);

impl Marks {
    /// The marks of a file; none if there are none or they cannot be read.
    pub(super) fn read(directory: &Directory, file: &str) -> Self {
        let path = directory.path.join(name::marks(file));
        let mut text = String::new();
        match directory.filesystem.open(&path).map(|mut marks| marks.read_to_string(&mut text)) {
            Ok(Ok(_)) => Self::parse(&text, file),
            _ => Self::default(),
        }
    }

    /// Adds marks and makes them safe.
    pub(super) fn add(directory: &Directory, file: &str, lines: &[u64]) -> std::io::Result<()> {
        let mut marks = directory.filesystem.append(&directory.path.join(name::marks(file)))?;
        // Two files whose names have the same hash share this one, so each session says whose marks follow.
        let mut text = format!("\nof {file}\n");
        text.extend(lines.iter().map(|line| format!("{line}.\n")));
        marks.write_all(text.as_bytes())?;
        marks.sync_data()?;
        directory.filesystem.sync_directory(&directory.path)
    }

    fn parse(text: &str, file: &str) -> Self {
        let mut marks = Self::default();
        let mut ours = false;
        for line in text.lines() {
            if let Some(of) = line.strip_prefix("of ") {
                ours = of == file;
            } else if let Some(number) =
                line.strip_suffix('.').and_then(|it| it.parse().ok()).filter(|_| ours)
            {
                marks.insert(number);
            }
        }
        marks
    }

    fn insert(&mut self, line: u64) {
        match self.0.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => self.0.push((line, line)),
        }
    }

    pub(super) fn contains(&self, line: u64) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers::directory;

    use super::*;

    #[test]
    fn marks_add_up_and_belong_to_one_file() {
        let place = directory();
        let opened = Directory::open(place.path()).unwrap();
        assert!(Marks::read(&opened, "a.jsonl").is_empty());
        Marks::add(&opened, "a.jsonl", &[1, 2, 3, 9]).unwrap();
        Marks::add(&opened, "a.jsonl", &[5]).unwrap();
        let marks = Marks::read(&opened, "a.jsonl");
        let marked: Vec<_> = (0..12).filter(|line| marks.contains(*line)).collect();
        assert_eq!(marked, [1, 2, 3, 5, 9]);
        assert!(Marks::parse("of b.jsonl\n4.\n", "a.jsonl").is_empty());
    }

    #[test]
    fn a_torn_mark_marks_nothing() {
        for torn in
            ["\nof a.jsonl\n1.\n12", "\nof a.jsonl\n1.\n12\nof a.jsonl\n", "\nof a.jso\nof a.jsonl\n1."]
        {
            let marks = Marks::parse(torn, "a.jsonl");
            assert!(marks.contains(1) && !marks.contains(12), "{torn:?}");
        }
    }
}
