//! The events of one file, one after the other, however many and however damaged.

use std::io::{self, BufRead, BufReader};

use backstop_core::Timestamp;

use super::directory::Directory;
use super::entry::{Damaged, Entry, Found, Place};
use super::marks::Marks;
use super::name;
use super::record::{self, MAX_RECORD_BYTES};
use crate::fs::Reading;
use crate::lines::{Line, read_line};

/// Reads a file line by line. Lines that were sent again are passed over.
#[derive(Debug)]
pub(super) struct Letters {
    file: String,
    failed_at: Option<Timestamp>,
    reader: BufReader<Box<dyn Reading>>,
    /// The line that was read to see whether the file has more than one.
    first: Option<io::Result<Line>>,
    line: u64,
    sent: Marks,
    ended: bool,
}

impl Letters {
    /// Opens a file to look at it.
    pub(super) fn open(directory: &Directory, file: &str) -> io::Result<Self> {
        Ok(Self::of(directory, file, directory.filesystem.open(&directory.path.join(file))?))
    }

    /// Opens a file and keeps others away from it; `None` if somebody else writes to it or sends it.
    pub(super) fn hold(directory: &Directory, file: &str) -> io::Result<Option<Self>> {
        let mut opened = directory.filesystem.open(&directory.path.join(file))?;
        // Locked before it is read: what is still being written must not be taken for torn.
        if !opened.try_lock()? {
            return Ok(None);
        }
        if !opened.is_named()? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Self::of(directory, file, opened)))
    }

    fn of(directory: &Directory, file: &str, opened: Box<dyn Reading>) -> Self {
        let mut reader = BufReader::new(opened);
        let first = read_line(&mut reader, MAX_RECORD_BYTES);
        // Only a file with several lines can have been sent in part.
        let has_more = first.is_ok() && reader.fill_buf().is_ok_and(|more| !more.is_empty());
        let sent = if has_more { Marks::read(directory, file) } else { Marks::default() };
        Self {
            file: file.to_owned(),
            failed_at: name::failed_at(file),
            reader,
            first: Some(first),
            line: 0,
            sent,
            ended: false,
        }
    }

    /// Whether some of its lines were sent before.
    pub(super) fn was_sent_in_part(&self) -> bool {
        !self.sent.is_empty()
    }

    fn read_line(&mut self) -> io::Result<Line> {
        self.first.take().unwrap_or_else(|| read_line(&mut self.reader, MAX_RECORD_BYTES))
    }

    fn damaged(&self, why: impl Into<String>) -> Found {
        Found::Damaged(Damaged { place: Place::new(&self.file, self.line.max(1)), why: why.into() })
    }

    fn found(&self, line: &[u8]) -> Found {
        match record::read(line) {
            Err(why) => self.damaged(why),
            Ok(record) => Found::Entry(Box::new(Entry {
                place: Place::new(&self.file, self.line),
                failed_at: record.details.as_ref().map(|it| it.last_failed_at).or(self.failed_at),
                event: record.event,
                error: record.error,
                details: record.details,
            })),
        }
    }
}

impl Iterator for Letters {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while !self.ended {
            match self.read_line() {
                Err(error) => {
                    self.ended = true;
                    return Some(self.damaged(format!("cannot be read: {error}")));
                }
                Ok(Line::End) => {
                    self.ended = true;
                    // A complete file has at least one line.
                    return (self.line == 0).then(|| self.damaged("empty"));
                }
                Ok(Line::TooLong) => {
                    self.line += 1;
                    return Some(self.damaged(format!("longer than {MAX_RECORD_BYTES} bytes")));
                }
                Ok(Line::Bytes(line)) => {
                    self.line += 1;
                    if !line.trim_ascii().is_empty() && !self.sent.contains(self.line) {
                        return Some(self.found(&line));
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers::directory;

    use super::*;

    const RECORD: &str = r#"{"event":{"id":"1","source":"s","type":"t"},"error":"e"}"#;

    fn found(content: impl AsRef<[u8]>) -> Vec<Result<u64, (u64, String)>> {
        let place = directory();
        std::fs::write(place.file("1-a.jsonl"), content).unwrap();
        let opened = Directory::open(place.path()).unwrap();
        let letters = Letters::open(&opened, "1-a.jsonl").unwrap();
        letters
            .map(|found| match found {
                Found::Entry(entry) => Ok(entry.place.line()),
                Found::Damaged(damaged) => Err((damaged.place.line(), damaged.why)),
            })
            .collect()
    }

    #[test]
    fn one_line_with_or_without_its_newline_and_many_lines_with_blank_ones_between() {
        assert_eq!(found(RECORD), [Ok(1)]);
        assert_eq!(found(format!("{RECORD}\r\n")), [Ok(1)]);
        assert_eq!(found(format!("{RECORD}\n\n{RECORD}\n")), [Ok(1), Ok(3)]);
    }

    #[test]
    fn a_damaged_line_is_told_and_the_others_are_read() {
        let mut content = format!("{RECORD}\nnonsense\n").into_bytes();
        content.extend(b"\xff\xff\n");
        content.extend(format!("{RECORD}\n{}", &RECORD[..30]).into_bytes());
        let found = found(content);
        assert_eq!(found.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true, false]);
        assert!(found[4].as_ref().is_err_and(|(line, why)| *line == 5 && why.contains("Eof")), "{found:?}");
    }

    #[test]
    fn an_empty_file_and_an_endless_line_are_damaged() {
        assert_eq!(found(""), [Err((1, "empty".to_owned()))]);
        let endless = vec![b'x'; MAX_RECORD_BYTES + 10];
        let content = [&endless[..], b"\n", RECORD.as_bytes()].concat();
        assert_eq!(found(content), [Err((1, format!("longer than {MAX_RECORD_BYTES} bytes"))), Ok(2)]);
    }
}
