//! Listing: every entry that matches, one in memory at a time.

use std::fmt;
use std::io;

use super::directory::Directory;
use super::entry::{Damaged, Found, Place};
use super::filter::Filter;
use super::letters::Letters;
use super::pages::Pages;
use crate::Error;

/// The entries of a directory that match a filter, the oldest first. Made by [`Directory::entries`].
#[derive(Debug)]
pub struct Entries {
    directory: Directory,
    filter: Filter,
    names: Pages,
    file: Option<Letters>,
    /// After everything else: files that no name leads to.
    nameless: Option<Nameless>,
}

/// What is left of those.
struct Nameless(Box<dyn Iterator<Item = io::Result<Damaged>> + Send>);

impl fmt::Debug for Nameless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nameless")
    }
}

impl Entries {
    pub(super) fn new(directory: &Directory, filter: Filter) -> Self {
        Self {
            directory: directory.clone(),
            names: Pages::new(directory),
            filter,
            file: None,
            nameless: None,
        }
    }

    fn wanted(&mut self) -> Option<Found> {
        let filter = &self.filter;
        self.file.as_mut()?.find(|found| match found {
            Found::Entry(entry) => filter.matches(entry),
            Found::Damaged(_) => true,
        })
    }

    fn next_nameless(&mut self) -> Option<Result<Found, Error>> {
        if self.nameless.is_none() {
            match self.directory.letters_without_text() {
                Ok(found) => self.nameless = Some(Nameless(Box::new(found))),
                Err(source) => {
                    self.nameless = Some(Nameless(Box::new(std::iter::empty())));
                    return Some(Err(self.directory.unreadable(source)));
                }
            }
        }
        let (filter, nameless) = (&self.filter, self.nameless.as_mut()?);
        let wanted =
            |it: &io::Result<Damaged>| it.as_ref().map_or(true, |it| filter.may_be_in(it.place.file()));
        let found = nameless.0.find(wanted)?;
        Some(found.map(Found::Damaged).map_err(|source| self.directory.unreadable(source)))
    }

    /// Opens the next file; one that cannot be opened is damaged, unless it is gone by now.
    fn open(&mut self, name: &str) -> Option<Found> {
        if !self.filter.may_be_in(name) {
            return None;
        }
        match Letters::open(&self.directory, name) {
            Ok(letters) => self.file = Some(letters),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Some(unopened(name, &error)),
        }
        None
    }
}

pub(super) fn unopened(name: &str, error: &io::Error) -> Found {
    Found::Damaged(Damaged { place: Place::new(name, 1), why: format!("cannot be opened: {error}") })
}

impl Iterator for Entries {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.wanted() {
                return Some(Ok(found));
            }
            self.file = None;
            match self.names.next() {
                Some(Ok(name)) => {
                    if let Some(found) = self.open(&name) {
                        return Some(Ok(found));
                    }
                }
                Some(Err(source)) => return Some(Err(self.directory.unreadable(source))),
                None => return self.next_nameless(),
            }
        }
    }
}
