//! The names in a directory, sorted, in memory that does not grow with them.
//!
//! Directories list their names in no order. So a page gathers the smallest names after the last one of the page
//! before, and the directory is read again for the next page: a million files take sixteen readings.

use std::collections::BinaryHeap;
use std::io;
use std::vec;

use super::directory::Directory;
use super::name;

/// How many names a page holds: a few megabytes.
const PAGE: usize = 65_536;

/// Names of files with events, in order.
#[derive(Debug)]
pub(super) struct Pages {
    directory: Directory,
    size: usize,
    from: Option<String>,
    after: Option<String>,
    up_to: Option<String>,
    page: vec::IntoIter<String>,
    has_more: bool,
}

impl Pages {
    pub(super) fn new(directory: &Directory) -> Self {
        Self {
            directory: directory.clone(),
            size: PAGE,
            from: None,
            after: None,
            up_to: None,
            page: Vec::new().into_iter(),
            has_more: true,
        }
    }

    /// Only this name and those after it.
    pub(super) fn from(mut self, name: Option<String>) -> Self {
        self.from = name;
        self
    }

    /// Only names that exist by now: files that come in while the names are read have later names.
    pub(super) fn so_far(mut self) -> io::Result<Self> {
        let mut last: Option<String> = None;
        for name in self.directory.filesystem.names(&self.directory.path)? {
            let name = name?.into_string().ok().filter(|name| name::is_letter(name));
            last = last.max(name);
        }
        self.has_more = last.is_some();
        self.up_to = last;
        Ok(self)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut smallest = BinaryHeap::with_capacity(self.size.min(1024));
        for name in self.directory.filesystem.names(&self.directory.path)? {
            let Ok(name) = name?.into_string() else { continue };
            if !name::is_letter(&name) || !self.wants(&name) {
                continue;
            }
            if smallest.len() < self.size {
                smallest.push(name);
            } else if let Some(mut largest) = smallest.peek_mut().filter(|largest| **largest > name) {
                *largest = name;
            }
        }
        self.has_more = smallest.len() == self.size;
        self.after = smallest.peek().cloned().or(self.after.take());
        self.page = smallest.into_sorted_vec().into_iter();
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.from.as_deref().is_none_or(|from| name >= from)
            && self.after.as_deref().is_none_or(|after| name > after)
            && self.up_to.as_deref().is_none_or(|up_to| name <= up_to)
    }
}

impl Iterator for Pages {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            if let Some(name) = self.page.next() {
                return Some(Ok(name));
            }
            if !self.has_more {
                return None;
            }
            if let Err(error) = self.read() {
                self.has_more = false;
                return Some(Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers::directory;

    use super::*;

    fn with(names: &[String]) -> (backstop_testkit::servers::Directory, Pages) {
        let place = directory();
        for name in names {
            std::fs::write(place.file(name), "").unwrap();
        }
        let pages = Pages::new(&Directory::open(place.path()).unwrap());
        (place, pages)
    }

    fn names(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        numbers.into_iter().map(|number| format!("{number:04}-x.jsonl")).collect()
    }

    #[test]
    fn names_come_in_order_whatever_the_size_of_a_page() {
        let all = names(0..100);
        for size in [1, 7, 50, 100, 101] {
            let (_place, mut pages) = with(&all);
            pages.size = size;
            assert_eq!(pages.map(Result::unwrap).collect::<Vec<_>>(), all, "pages of {size}");
        }
    }

    #[test]
    fn other_files_are_passed_over_and_a_reading_can_begin_in_the_middle() {
        let mut all = names(0..10);
        all.extend([".1-2.tmp".to_owned(), ".x.jsonl".to_owned(), "notes.txt".to_owned()]);
        let (_place, pages) = with(&all);
        let rest: Vec<_> = pages.from(Some("0007-x.jsonl".to_owned())).map(Result::unwrap).collect();
        assert_eq!(rest, names(7..10));
    }

    #[test]
    fn what_comes_in_later_is_not_read() {
        let (place, mut pages) = with(&names(0..4));
        pages.size = 2;
        let mut pages = pages.so_far().unwrap();
        assert_eq!(pages.next().unwrap().unwrap(), "0000-x.jsonl");
        std::fs::write(place.file("0009-x.jsonl"), "").unwrap();
        assert_eq!(pages.map(Result::unwrap).collect::<Vec<_>>(), names(1..4));
    }
}
