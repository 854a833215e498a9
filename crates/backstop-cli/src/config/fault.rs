//! What is wrong with the settings, and where.

use std::collections::BTreeSet;
use std::fmt;

use crate::plain::plain;

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the file, counted from one.
    File { line: usize, column: usize },
    /// In an environment variable.
    Variable(String),
}

impl Place {
    /// The beginning of the file: for what is wrong with the whole of it.
    pub(crate) const START: Self = Self::File { line: 1, column: 1 };
}

/// One thing that is wrong, worded so that it can be put right without looking anything up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    place: Place,
    path: String,
    what: String,
}

impl Fault {
    pub(crate) fn new(place: Place, path: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place, path: path.into(), what: what.into() }
    }

    /// The fault as a line, with the file's name if it is in the file.
    pub(crate) fn told<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        Told { fault: self, file }
    }
}

struct Told<'a> {
    fault: &'a Fault,
    file: &'a str,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { place, path, what } = self.fault;
        match place {
            Place::File { line, column } => write!(f, "{}:{line}:{column}: ", plain(self.file))?,
            Place::Variable(name) => write!(f, "{}: ", plain(name))?,
        }
        // They may quote the file, and that is shown on a terminal.
        let (path, what) = (plain(path), plain(what));
        if path.is_empty() { write!(f, "{what}") } else { write!(f, "{path}: {what}") }
    }
}

/// Everything that was found: faults, with which nothing is started, and warnings, with which it is.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    faults: BTreeSet<Fault>,
    warnings: BTreeSet<Fault>,
    faulty: BTreeSet<String>,
}

impl Findings {
    pub(crate) fn fault(&mut self, place: Place, path: &str, what: impl Into<String>) {
        self.faulty.insert(path.to_owned());
        self.faults.insert(Fault::new(place, path, what));
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.faulty.insert(fault.path.clone());
        self.faults.insert(fault);
    }

    pub(crate) fn warn(&mut self, place: Place, path: &str, what: impl Into<String>) {
        self.warnings.insert(Fault::new(place, path, what));
    }

    /// Records that nothing is left of a value, since everything in it is wrong.
    pub(crate) fn nothing_left(&mut self, path: &str) {
        self.faulty.insert(path.to_owned());
    }

    /// Whether the value at a path is wrong already, so that what follows from it says nothing.
    pub(crate) fn is_faulty(&self, path: &str) -> bool {
        self.faulty.contains(path)
    }

    /// In the order of the file.
    pub(crate) fn faults(&self) -> impl ExactSizeIterator<Item = &Fault> {
        self.faults.iter()
    }

    pub(crate) fn warnings(&self) -> impl ExactSizeIterator<Item = &Fault> {
        self.warnings.iter()
    }
}
