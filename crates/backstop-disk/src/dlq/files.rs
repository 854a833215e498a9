//! A file for each event: made safe first, then given its name, and the name made safe.
//!
//! Many events are stored [together](super::together). One event, or a few, or those that cannot be stored together,
//! are each written under another name, with a sync of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use backstop_core::{Clock, telemetry};

use super::config::Setup;
use super::name;
use super::together::Together;
use super::writer::Letter;
use crate::Error;
use crate::error::again;
use crate::fs::{Filesystem, Writing};
use crate::group_commit::Commit;

/// Filesystems gather the syncs of several threads into few writes to their journals; more threads than this
/// gained nothing.
const MAX_THREADS: usize = 32;

/// How many files a batch may have: each is open until its batch is safe, and processes may open only so many.
const MAX_FILES: usize = 128;

/// How often another name is tried. Random names do not collide; the limit is there so that nothing can go on for
/// ever.
const MAX_NAMES: usize = 16;

/// The directory, as the writer sees it.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) filesystem: Arc<dyn Filesystem>,
    clock: Arc<dyn Clock>,
    metrics: Arc<telemetry::Dlq>,
    together: Together,
}

/// Its threads share it, and each has its own batch.
impl Commit<Letter> for Arc<Files> {
    fn commit(&mut self, letters: &[Letter]) -> Vec<Result<(), Error>> {
        let stored = self.store(letters);
        self.metrics.commits.increment();
        stored
    }

    fn most(&self) -> usize {
        MAX_FILES
    }
}

impl Files {
    pub(super) fn new(settings: &Setup, metrics: Arc<telemetry::Dlq>) -> Self {
        Self {
            directory: settings.path().to_owned(),
            filesystem: Arc::clone(&settings.filesystem),
            clock: Arc::clone(&settings.clock),
            metrics,
            together: Together::default(),
        }
    }

    /// Stores a batch. An event that cannot be stored with the others is stored on its own, and if that fails, the
    /// error is its own.
    fn store(&self, letters: &[Letter]) -> Vec<Result<(), Error>> {
        let stored = self.together.store(self, letters);
        let left: Vec<_> =
            letters.iter().zip(&stored).filter(|(_, stored)| !**stored).map(|(it, _)| it).collect();
        let mut answers = self.store_each(&left).into_iter();
        let answer = |stored| if stored { Ok(()) } else { answers.next().unwrap_or(Err(Error::WriterEnded)) };
        stored.into_iter().map(answer).collect()
    }

    /// All drafts first, each with a sync of its own, then all names, then the directory once.
    fn store_each(&self, letters: &[&Letter]) -> Vec<Result<(), Error>> {
        let drafts = self.draft_all(letters);
        let named: Vec<_> =
            letters.iter().zip(drafts).map(|(letter, draft)| self.name_draft(letter, &draft?)).collect();
        let any = named.iter().any(Result::is_ok);
        let synced = if any { self.filesystem.sync_directory(&self.directory) } else { Ok(()) };
        named.into_iter().map(|named| self.settle(&named?, &synced)).collect()
    }

    fn draft_all(&self, letters: &[&Letter]) -> Vec<Result<PathBuf, Error>> {
        let share = letters.len().div_ceil(MAX_THREADS);
        if letters.len() <= 1 {
            return self.draft_some(letters);
        }
        thread::scope(|scope| {
            let shares: Vec<_> = letters
                .chunks(share)
                .map(|some| {
                    let spawned = thread::Builder::new().spawn_scoped(scope, move || self.draft_some(some));
                    // Without another thread this one does it.
                    (some, spawned)
                })
                .collect();
            shares
                .into_iter()
                .flat_map(|(some, spawned)| match spawned.map(thread::ScopedJoinHandle::join) {
                    Ok(Ok(drafts)) => drafts,
                    Ok(Err(_)) => some.iter().map(|_| Err(Error::WriterEnded)).collect(),
                    Err(_) => self.draft_some(some),
                })
                .collect()
        })
    }

    /// Writes all before the first is synced: the disk then has them together.
    fn draft_some(&self, letters: &[&Letter]) -> Vec<Result<PathBuf, Error>> {
        let written: Vec<_> = letters.iter().map(|letter| self.write_draft(letter)).collect();
        let sync = |(path, file): (PathBuf, Box<dyn Writing>)| {
            let mut file = file;
            match file.sync_all() {
                Ok(()) => Ok(path),
                Err(source) => Err(self.give_up(&path, "make an event safe on the disk", source)),
            }
        };
        written.into_iter().map(|written| written.and_then(sync)).collect()
    }

    fn write_draft(&self, letter: &Letter) -> Result<(PathBuf, Box<dyn Writing>), Error> {
        let path = self.directory.join(name::draft(self.clock.now(), fastrand::u64(..)));
        let mut file = match self.filesystem.create_new(&path) {
            Ok(file) => file,
            Err(source) => return Err(Error::Write { doing: "create a file", source }),
        };
        match file.write_all(&letter.line) {
            Ok(()) => Ok((path, file)),
            Err(source) => Err(self.give_up(&path, "write an event", source)),
        }
    }

    fn name_draft(&self, letter: &Letter, draft: &Path) -> Result<PathBuf, Error> {
        self.give_name(letter, |path| self.filesystem.rename_new(draft, path))
            .map_err(|source| self.give_up(draft, "give an event's file its name", source))
    }

    /// Gives a file the first name that is free.
    pub(super) fn give_name(
        &self,
        letter: &Letter,
        mut give: impl FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<PathBuf> {
        let Letter { event, failed_at, .. } = letter;
        let hashed = |nonce| name::hashed(*failed_at, event, nonce);
        let first = std::iter::once_with(|| name::first_choice(*failed_at, event));
        let second = std::iter::once_with(|| hashed(None));
        let random = std::iter::repeat_with(|| hashed(Some(fastrand::u64(..))));
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for name in first.chain(second).chain(random).take(MAX_NAMES) {
            let path = self.directory.join(name);
            match give(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    fn settle(&self, named: &Path, synced: &io::Result<()>) -> Result<(), Error> {
        match synced {
            Ok(()) => Ok(()),
            Err(error) => Err(self.give_up(named, "make the name of an event's file safe", again(error))),
        }
    }

    /// The sender keeps the event, so the file is in the way. If it cannot be removed, the event is there twice.
    fn give_up(&self, path: &Path, doing: &'static str, source: io::Error) -> Error {
        let _ = self.filesystem.remove(path);
        Error::Write { doing, source }
    }
}
