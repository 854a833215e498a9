//! An entry: a failed event as it was found, and the place that names it.

use std::fmt;
use std::str::FromStr;

use backstop_core::{CloudEvent, Timestamp};

use super::name;
use super::record::Details;
use crate::Error;

/// Where an entry is: a file, and in a file with many events a line. A name for people and tools, never a path.
///
/// ```
/// use backstop_disk::dlq::Place;
///
/// let third: Place = "1767225600000-rolling-00000000000000ff.jsonl:3".parse()?;
/// assert_eq!(third.line(), 3);
/// assert!("../../etc/passwd.jsonl".parse::<Place>().is_err());
/// # Ok::<(), backstop_disk::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    file: String,
    line: u64,
}

impl Place {
    pub(super) fn new(file: &str, line: u64) -> Self {
        Self { file: file.to_owned(), line }
    }

    /// The name of the file in its directory.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, counted from 1.
    pub fn line(&self) -> u64 {
        self.line
    }
}

/// The name of the file, followed by `:` and the line unless that is the first.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            1 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (file, line) = match text.rsplit_once(':') {
            Some((file, line)) => (file, line.parse().ok()),
            None => (text, Some(1)),
        };
        match line {
            Some(line) if line > 0 && name::is_letter(file) && !file.contains(['/', '\0']) => {
                Ok(Self::new(file, line))
            }
            _ => Err(Error::BadPlace(text.to_owned())),
        }
    }
}

/// A failed event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Where it is.
    pub place: Place,
    /// When it failed, if the file's name or its details say so.
    pub failed_at: Option<Timestamp>,
    /// The event.
    pub event: CloudEvent,
    /// What the sink said.
    pub error: String,
    /// Details, if they were written down.
    pub details: Option<Details>,
}

/// A file, or a line of one, that cannot be read as an event. It is not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damaged {
    /// Where it is.
    pub place: Place,
    /// What is wrong with it; its content is not quoted.
    pub why: String,
}

/// What is at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A failed event.
    Entry(Box<Entry>),
    /// Something else.
    Damaged(Damaged),
}

impl Found {
    /// The entry, if it is one.
    pub fn entry(self) -> Option<Entry> {
        match self {
            Self::Entry(entry) => Some(*entry),
            Self::Damaged(_) => None,
        }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        match self {
            Self::Entry(entry) => &entry.place,
            Self::Damaged(damaged) => &damaged.place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_shown() {
        for place in [Place::new("1-a.jsonl", 1), Place::new("1-a.jsonl", 12), Place::new("a:b.jsonl", 2)] {
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        }
    }

    #[test]
    fn a_place_is_never_a_path() {
        for text in
            ["", "a", "a.jsonl:0", "a.jsonl:x", "/a.jsonl", "../a.jsonl", ".a.jsonl", "x/a.jsonl", "a.jsonl:"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
