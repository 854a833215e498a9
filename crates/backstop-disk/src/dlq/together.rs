//! Many files at the price of two syncs: written without names, made safe by one sync of their filesystem, named, and
//! the names made safe by another.
//!
//! A failure here is no event's error. The caller stores the events that are not stored here, for whatever reason, in
//! the way that works everywhere, in which each event has its own error. So a filesystem that cannot do this, or a
//! bad sector elsewhere that fails the sync of the whole filesystem, costs time and nothing else.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::files::Files;
use super::writer::Letter;
use crate::fs::Writing;

/// Fewer than this are stored sooner by syncs of their own.
const MIN_LETTERS: usize = 16;

/// A sync of the filesystem also writes what others have left unwritten, and everybody waits for that. If it is more
/// than this on the whole machine, files have syncs of their own: 256 MiB, half a second on an ordinary disk.
const MAX_UNWRITTEN_BYTES: u64 = 256 * 1024 * 1024;

/// Whether files can be stored together in this directory, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Together {
    is_unsupported: AtomicBool,
}

impl Together {
    /// Says for each event whether it is safe under its name. Where it is not, nothing of it is left.
    pub(super) fn store(&self, files: &Files, letters: &[Letter]) -> Vec<bool> {
        if !self.is_worth_it(files, letters) {
            return vec![false; letters.len()];
        }
        let mut written = self.write_all(files, letters);
        // Errors are reported to a file that was open before they happened, which the first one was.
        let Some(first) = written.iter().position(Option::is_some) else { return vec![false; letters.len()] };
        let sync = |written: &mut [Option<Box<dyn Writing>>]| match &mut written[first] {
            Some(file) => self.note(file.sync_filesystem()).is_some(),
            None => false,
        };
        if !sync(&mut written) {
            return vec![false; letters.len()];
        }
        let named: Vec<_> = letters
            .iter()
            .zip(&mut written)
            .map(|(letter, file)| self.name(files, letter, file.as_mut()?))
            .collect();
        let is_safe = sync(&mut written);
        named.into_iter().map(|named| named.is_some_and(|path| is_safe || take_back(files, &path))).collect()
    }

    fn is_worth_it(&self, files: &Files, letters: &[Letter]) -> bool {
        letters.len() >= MIN_LETTERS
            && !self.is_unsupported.load(Ordering::Relaxed)
            && files.filesystem.unwritten_bytes().is_ok_and(|bytes| bytes <= MAX_UNWRITTEN_BYTES)
    }

    fn write_all(&self, files: &Files, letters: &[Letter]) -> Vec<Option<Box<dyn Writing>>> {
        let write = |letter: &Letter| {
            if self.is_unsupported.load(Ordering::Relaxed) {
                return None;
            }
            let mut file = self.note(files.filesystem.create_unnamed(&files.directory))?;
            file.write_all(&letter.line).ok()?;
            Some(file)
        };
        letters.iter().map(write).collect()
    }

    fn name(&self, files: &Files, letter: &Letter, file: &mut Box<dyn Writing>) -> Option<PathBuf> {
        self.note(files.give_name(letter, |path| file.link_new(path)))
    }

    /// What is not supported now will not be later.
    fn note<T>(&self, done: io::Result<T>) -> Option<T> {
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            self.is_unsupported.store(true, Ordering::Relaxed);
        }
        done.ok()
    }
}

/// The event will be stored in another way, so this name is in the way. If it cannot be removed, the event is there
/// twice.
fn take_back(files: &Files, path: &Path) -> bool {
    let _ = files.filesystem.remove(path);
    false
}
