//! Purging: deleting entries that nobody will send again.

use std::io;

use tracing::info;

use super::directory::Directory;
use super::entry::Found;
use super::filter::Filter;
use super::fsck::{self, Kind};
use super::letters::Letters;
use super::name;
use super::pages::Pages;
use crate::Error;

/// Deletes files for good. A file with several events is deleted only when all of them match. Files that are damaged,
/// or that are being written or sent, stay. Drafts that a crash left an hour ago or more are deleted too.
///
/// ```
/// use backstop_core::{Clock, SystemClock};
/// use backstop_disk::dlq::{Directory, Filter};
///
/// # let place = backstop_testkit::servers::directory();
/// # std::fs::write(place.file("1767225600000-7.jsonl"),
/// #     r#"{"event":{"id":"7","source":"/shop","type":"OrderPlaced"},"error":"timeout"}"#)?;
/// let older = Filter::all().until(SystemClock.now() - std::time::Duration::from_secs(30 * 86_400));
/// let directory = Directory::open(place.path())?;
/// let would = directory.purge(older.clone()).dry_run(true).run()?;
/// assert_eq!((would.events, directory.entries(Filter::all()).count()), (1, 1));
/// assert_eq!(directory.purge(older).run()?, would);
/// # assert_eq!(directory.entries(Filter::all()).count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is deleted until `run` is called"]
pub struct Purge {
    directory: Directory,
    filter: Filter,
    dry_run: bool,
}

/// What was deleted, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Events in files that were deleted.
    pub events: u64,
    /// Files that were deleted, leftovers included.
    pub files: u64,
    /// Files that matched in part, are damaged, or are in use; they stay.
    pub kept: u64,
}

impl Purge {
    pub(super) fn new(directory: Directory, filter: Filter) -> Self {
        Self { directory, filter, dry_run: false }
    }

    /// Counts and deletes nothing. Defaults to false.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Does it.
    pub fn run(self) -> Result<Purged, Error> {
        let mut done = Purged::default();
        for name in Pages::new(&self.directory) {
            let name = name.map_err(|source| self.directory.unreadable(source))?;
            if self.filter.may_be_in(&name) {
                self.purge_file(&name, &mut done)?;
            }
        }
        let nameless = self.directory.letters_without_text();
        let nameless = nameless.map_err(|source| self.directory.unreadable(source))?.filter_map(Result::ok);
        done.kept += nameless.filter(|it| self.filter.may_be_in(it.place.file())).count() as u64;
        self.purge_leftovers(&mut done)?;
        if done.files > 0 && !self.dry_run {
            let synced = self.directory.filesystem.sync_directory(&self.directory.path);
            synced.map_err(|source| cannot("make the deletions safe on the disk", source))?;
        }
        let Purged { events, files, kept } = done;
        let (directory, dry_run) = (self.directory.path.display(), self.dry_run);
        info!(%directory, dry_run, events, files, kept, "a purge has ended");
        Ok(done)
    }

    fn purge_file(&self, name: &str, done: &mut Purged) -> Result<(), Error> {
        let mut letters = match Letters::hold(&self.directory, name) {
            Ok(Some(letters)) => letters,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(None) | Err(_) => {
                done.kept += 1;
                return Ok(());
            }
        };
        let (mut matching, mut others) = (0, 0);
        for found in letters.by_ref() {
            match found {
                Found::Entry(entry) if self.filter.matches(&entry) => matching += 1,
                _ => others += 1,
            }
        }
        match (matching, others) {
            (0, _) => {}
            (_, 0) => {
                self.remove(name)?;
                if letters.was_sent_in_part() {
                    let _ = self.remove(&name::marks(name));
                }
                done.events += matching;
                done.files += 1;
            }
            _ => done.kept += 1,
        }
        Ok(())
    }

    fn purge_leftovers(&self, done: &mut Purged) -> Result<(), Error> {
        let unreadable = |source| self.directory.unreadable(source);
        // Only when everything, or everything old, is purged; not when one type or place is picked.
        if self.filter.is_narrow() {
            return Ok(());
        }
        for name in self.directory.filesystem.names(&self.directory.path).map_err(unreadable)? {
            let name = name.map_err(unreadable)?;
            let Some(name) = name.to_str().filter(|name| matches!(fsck::kind(name), Kind::Leftover)) else {
                continue;
            };
            if self.filter.may_be_in(name) {
                self.remove(name)?;
                done.files += 1;
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        if self.dry_run {
            return Ok(());
        }
        match self.directory.filesystem.remove(&self.directory.path.join(name)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(cannot("delete a file", source)),
            _ => Ok(()),
        }
    }
}

fn cannot(doing: &'static str, source: io::Error) -> Error {
    Error::Write { doing, source }
}
