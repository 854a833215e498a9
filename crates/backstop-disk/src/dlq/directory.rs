//! The directory as its operator sees it: where every tool begins.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::Setup;
use super::entries::Entries;
use super::entry::{Damaged, Found, Place};
use super::export::{self, Exported, Form};
use super::filter::Filter;
use super::fsck::{self, Checked, Finding};
use super::letters::Letters;
use super::name;
use super::purge::Purge;
use super::redrive::Redrive;
use crate::Error;
use crate::fs::{Disk, Filesystem};

/// A dead-letter directory, to look into and to empty. Opening it changes nothing. Cheap to clone.
///
/// Its calls block while they read; only [`redrive`](Self::redrive) is async, because it sends.
///
/// ```
/// use backstop_disk::dlq::{Directory, Filter};
///
/// # let place = backstop_testkit::servers::directory();
/// # let path = place.path();
/// # std::fs::write(place.file("1767225600000-7.jsonl"),
/// #     r#"{"event":{"id":"7","source":"/shop","type":"OrderPlaced"},"error":"timeout"}"#)?;
/// let directory = Directory::open(path)?;
/// for found in directory.entries(Filter::all().event_type("OrderPlaced")) {
///     if let Some(entry) = found?.entry() {
///         println!("{} {}: {}", entry.place, entry.event.id(), entry.error);
/// #       assert_eq!(entry.place.to_string(), "1767225600000-7.jsonl");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Directory {
    pub(super) path: PathBuf,
    pub(super) filesystem: Arc<dyn Filesystem>,
}

impl Directory {
    /// Opens a directory, which must exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::open_on(path, Disk)
    }

    /// Opens a directory on your own filesystem.
    pub fn open_on(path: impl Into<PathBuf>, filesystem: impl Filesystem) -> Result<Self, Error> {
        let directory = Self { path: path.into(), filesystem: Arc::new(filesystem) };
        must_be_directory(&directory.path, &*directory.filesystem)?;
        Ok(directory)
    }

    /// The entries that match, the oldest first, read one by one. Damaged ones are among them, whatever the filter
    /// says about events, since nobody can tell what they were.
    pub fn entries(&self, filter: Filter) -> Entries {
        Entries::new(self, filter)
    }

    /// One entry, by its place.
    pub fn inspect(&self, place: &Place) -> Result<Found, Error> {
        let missing = || Error::NoEntry(place.to_string());
        let mut letters = match Letters::open(self, place.file()) {
            Ok(letters) => letters,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(source) => return Err(Error::Unreadable { path: self.path.join(place.file()), source }),
        };
        letters.find(|found| found.place() == place).ok_or_else(missing)
    }

    /// Files with events whose names are not text, one by one. No tool can name them, so they are reported as
    /// damaged.
    pub(super) fn letters_without_text(
        &self,
    ) -> io::Result<impl Iterator<Item = io::Result<Damaged>> + Send + use<>> {
        let damaged = |name: String| Damaged {
            place: Place::new(&name, 1),
            why: "its name is not UTF-8 text; rename it so that it can be read".to_owned(),
        };
        let named = move |name: OsString| name::of_letter_that_is_no_text(&name).map(damaged);
        Ok(self.filesystem.names(&self.path)?.filter_map(move |name| name.map(named).transpose()))
    }

    /// Looks at every file, and reports each that is damaged, left over or not ours. Changes nothing.
    ///
    /// ```
    /// use backstop_disk::dlq::{Directory, Finding};
    ///
    /// # let place = backstop_testkit::servers::directory();
    /// std::fs::write(place.file("1767225600000-7.jsonl"), "{\"event\":{\"id\":")?; // torn
    /// let mut findings = Vec::new();
    /// let checked = Directory::open(place.path())?.fsck(|finding| findings.push(finding))?;
    /// assert_eq!((checked.sound, checked.damaged), (0, 1));
    /// assert!(matches!(&findings[..], [Finding::Damaged { first, .. }] if first.why.contains("not a record")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fsck(&self, report: impl FnMut(Finding)) -> Result<Checked, Error> {
        fsck::check(self, report)
    }

    /// Sends the entries that match again; see [`Redrive`].
    pub fn redrive(&self, filter: Filter) -> Redrive {
        Redrive::new(self.clone(), filter)
    }

    /// Deletes the entries that match; see [`Purge`].
    pub fn purge(&self, filter: Filter) -> Purge {
        Purge::new(self.clone(), filter)
    }

    /// Copies the entries that match, one to a line, and leaves them where they are.
    ///
    /// ```
    /// use backstop_disk::dlq::{Directory, Filter, Form};
    ///
    /// # let place = backstop_testkit::servers::directory();
    /// # std::fs::write(place.file("1767225600000-7.jsonl"),
    /// #     r#"{"event":{"id":"7","source":"/shop","type":"OrderPlaced"},"error":"timeout"}"#)?;
    /// let mut copy = Vec::new();
    /// Directory::open(place.path())?.export(Filter::all(), Form::Events, &mut copy)?;
    /// assert_eq!(copy, b"{\"id\":\"7\",\"source\":\"/shop\",\"type\":\"OrderPlaced\"}\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn export(&self, filter: Filter, form: Form, into: impl Write) -> Result<Exported, Error> {
        export::export(self.entries(filter), form, into)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn unreadable(&self, source: io::Error) -> Error {
        Error::Unreadable { path: self.path.clone(), source }
    }
}

/// Makes sure that events can be stored, so that a fault is noticed now and not later.
pub(super) fn prepare(settings: &Setup) -> Result<(), Error> {
    let Setup { filesystem, .. } = settings;
    let path = settings.path();
    let unwritable = |source| Error::Unwritable { path: path.to_owned(), source };
    if settings.config.create {
        create(path, &**filesystem).map_err(unwritable)?;
    }
    must_be_directory(path, &**filesystem)?;
    probe(settings).map_err(unwritable)
}

/// Makes a directory with its parents, the outermost first, and makes their names safe.
fn create(path: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    // A path such as `dlq` starts in the current directory, which exists.
    let levels = path.ancestors().filter(|level| !level.as_os_str().is_empty());
    let is_missing = |level: &&Path| {
        filesystem.is_directory(level).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let missing: Vec<_> = levels.take_while(is_missing).collect();
    for level in missing.into_iter().rev() {
        match filesystem.create_directory(level) {
            // Somebody else made it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // The name of a directory is kept by the one above it.
        let above = level.parent().filter(|above| !above.as_os_str().is_empty());
        filesystem.sync_directory(above.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn must_be_directory(path: &Path, filesystem: &dyn Filesystem) -> Result<(), Error> {
    match filesystem.is_directory(path) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::NotADirectory(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NoDirectory(path.to_owned())),
        Err(source) => Err(Error::Unreadable { path: path.to_owned(), source }),
    }
}

/// Makes a file, writes, renames and removes it: modes mislead where root or a read-only mount is involved, and a disk
/// that is full of data may still have room for names.
pub(super) fn probe(settings: &Setup) -> io::Result<()> {
    let Setup { filesystem, clock, .. } = settings;
    let path = settings.path();
    let fresh = || path.join(name::draft(clock.now(), fastrand::u64(..)));
    let (first, second) = (fresh(), fresh());
    let written = filesystem.create_new(&first)?.write_all(b"\n");
    match written.and_then(|()| filesystem.rename_new(&first, &second)) {
        Ok(()) => filesystem.remove(&second),
        Err(error) => {
            let _ = filesystem.remove(&first);
            Err(error)
        }
    }
}
