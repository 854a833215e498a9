//! One file for many events: a batch is one write and one sync.
//!
//! The file that is written to is locked, so that nobody treats it as finished and removes it. A new process never
//! goes on with an old file: a line that a crash tore stays the last line of that file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::{Clock, telemetry};

use super::config::{Rolling, Setup};
use super::name;
use super::writer::Letter;
use crate::Error;
use crate::error::again;
use crate::fs::{Filesystem, Writing};
use crate::group_commit::Commit;

/// Where the next batch goes.
#[derive(Debug)]
pub(super) struct RollingFile {
    directory: PathBuf,
    limits: Rolling,
    filesystem: Arc<dyn Filesystem>,
    clock: Arc<dyn Clock>,
    metrics: Arc<telemetry::Dlq>,
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    file: Box<dyn Writing>,
    path: PathBuf,
    bytes: u64,
    begun: Tick,
}

impl Commit<Letter> for RollingFile {
    /// Stores a batch, all of it or none.
    fn commit(&mut self, letters: &[Letter]) -> Vec<Result<(), Error>> {
        let lines = letters.iter().map(|letter| letter.line.as_slice()).collect::<Vec<_>>().concat();
        let stored = match self.store(&lines) {
            // Somebody removed the file while we wrote: what was written there is gone, so write it again.
            Ok(false) => match self.store(&lines) {
                Ok(false) => Err(cannot("write events", io::Error::other("their file is removed each time"))),
                stored => stored.map(|_| ()),
            },
            stored => stored.map(|_| ()),
        };
        self.metrics.commits.increment();
        if self.active.as_ref().is_some_and(|active| self.is_full(active)) {
            self.leave();
        }
        letters.iter().map(|_| stored.as_ref().copied().map_err(copy)).collect()
    }

    /// How long to wait before the file is left, if there is one.
    fn idle(&self) -> Option<Duration> {
        self.active.as_ref().map(|_| self.limits.idle)
    }

    /// Closes and unlocks the file: from now on it can be sent again and removed.
    fn leave(&mut self) {
        self.active = None;
    }
}

impl RollingFile {
    pub(super) fn new(settings: &Setup, metrics: Arc<telemetry::Dlq>) -> Self {
        Self {
            directory: settings.path().to_owned(),
            limits: settings.config.rolling,
            filesystem: Arc::clone(&settings.filesystem),
            clock: Arc::clone(&settings.clock),
            metrics,
            active: None,
        }
    }

    fn is_full(&self, active: &Active) -> bool {
        active.bytes >= self.limits.max_bytes || self.clock.ticks().since(active.begun) >= self.limits.max_age
    }

    /// Appends and syncs; false if the file has no name any more. After an error the file is not used again.
    fn store(&mut self, lines: &[u8]) -> Result<bool, Error> {
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.begin()?,
        };
        let is_new = active.bytes == 0;
        if let Err(error) = self.append(&mut active, lines, is_new) {
            self.retire(active, is_new);
            return Err(error);
        }
        let named = active.file.is_named().map_err(|source| cannot("look at the events' file", source))?;
        if named {
            active.bytes += lines.len() as u64;
            self.active = Some(active);
        }
        Ok(named)
    }

    fn begin(&self) -> Result<Active, Error> {
        let path = self.directory.join(name::rolling(self.clock.now(), fastrand::u64(..)));
        let mut file = self.filesystem.create_new(&path).map_err(|source| cannot("create a file", source))?;
        match file.try_lock() {
            Ok(true) => Ok(Active { file, path, bytes: 0, begun: self.clock.ticks() }),
            refused => {
                let _ = self.filesystem.remove(&path);
                let taken = io::Error::other("somebody else has locked it");
                Err(cannot("lock the events' file", refused.err().unwrap_or(taken)))
            }
        }
    }

    fn append(&self, active: &mut Active, lines: &[u8], is_new: bool) -> Result<(), Error> {
        active.file.write_all(lines).map_err(|source| cannot("write events", source))?;
        active.file.sync_data().map_err(|source| cannot("make events safe on the disk", source))?;
        if is_new {
            let synced = self.filesystem.sync_directory(&self.directory);
            synced.map_err(|source| cannot("make the name of the events' file safe", source))?;
        }
        Ok(())
    }

    /// The senders keep their events: takes back what can be taken back, and lets go of the file.
    fn retire(&self, mut active: Active, is_new: bool) {
        let _ =
            if is_new { self.filesystem.remove(&active.path) } else { active.file.truncate(active.bytes) };
    }
}

fn cannot(doing: &'static str, source: io::Error) -> Error {
    Error::Write { doing, source }
}

fn copy(error: &Error) -> Error {
    match error {
        Error::Write { doing, source } => cannot(doing, again(source)),
        other => cannot("write events", io::Error::other(other.to_string())),
    }
}
