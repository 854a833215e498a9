//! The filesystem as a trait: one method for each call that can fail, so that a test can fail each of them.
//!
//! The real one is [`Disk`]. Calls block; async code must make them on a separate thread.

mod disk;
#[cfg_attr(not(target_os = "linux"), path = "fs/elsewhere.rs")]
mod linux;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

pub use disk::Disk;

/// The names in a directory, in no order, without `.` and `..`.
pub type Names = Box<dyn Iterator<Item = io::Result<OsString>> + Send>;

/// The calls that Backstop makes to a filesystem.
///
/// What is written is safe from a crash after [`Writing::sync_all`] or [`Writing::sync_data`], and its *name*
/// only after [`sync_directory`](Filesystem::sync_directory).
///
/// ```
/// use std::io::Read;
/// use backstop_disk::fs::{Disk, Filesystem};
///
/// # let place = backstop_testkit::servers::directory();
/// let (draft, fair) = (place.file("draft"), place.file("fair"));
/// let mut file = Disk.create_new(&draft)?;
/// file.write_all(b"dear reader")?;
/// file.sync_all()?;
/// Disk.rename_new(&draft, &fair)?;
/// Disk.sync_directory(place.path())?;
///
/// let mut text = String::new();
/// Disk.open(&fair)?.read_to_string(&mut text)?;
/// assert_eq!(text, "dear reader");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Filesystem: fmt::Debug + Send + Sync + 'static {
    /// Makes a file that only its owner may read (mode 0600). Fails if the name is taken, by a link too.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn Writing>>;

    /// Makes a file without a name in a directory, for its owner only (mode 0600). It is gone with its last handle,
    /// and after a crash, unless [`Writing::link_new`] has named it.
    /// [`Unsupported`](io::ErrorKind::Unsupported) where there is no such thing.
    fn create_unnamed(&self, directory: &Path) -> io::Result<Box<dyn Writing>>;

    /// Opens a file for writing at its end, and makes it (mode 0600) if there is none. Follows no link.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>>;

    /// Opens a regular file for reading. Follows no link, and never waits for a writer at a pipe's other end.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>>;

    /// Gives a file another name in the same directory, and never replaces another file: that is
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file or link.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory safe: those that were made, changed and removed before the call.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// How much the whole machine has yet to write to its disks, if that is known: the most that
    /// [`Writing::sync_filesystem`] may have to wait for.
    fn unwritten_bytes(&self) -> io::Result<u64>;

    /// Makes a directory that only its owner may enter (mode 0700), in one that exists. Fails if the name is taken.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Whether the path is a directory; an error if nothing is there.
    fn is_directory(&self, path: &Path) -> io::Result<bool>;

    /// What a directory holds.
    fn names(&self, path: &Path) -> io::Result<Names>;
}

/// A file that is being written.
pub trait Writing: fmt::Debug + Send {
    /// Writes all of it, or fails somewhere in the middle.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes data and metadata safe. After an error nothing is known about what is on the disk, and a second
    /// call may succeed without having written anything: write elsewhere.
    fn sync_all(&mut self) -> io::Result<()>;

    /// Makes the data safe, and what is needed to read it.
    fn sync_data(&mut self) -> io::Result<()>;

    /// Makes everything safe that anybody has written to the filesystem that the file is on, with all names. An error
    /// may be anybody's too: it reports everything that went wrong since this file was opened.
    /// [`Unsupported`](io::ErrorKind::Unsupported) where success would not be certain.
    fn sync_filesystem(&mut self) -> io::Result<()>;

    /// Gives a file without a name its first name, and never replaces another file: that is
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    fn link_new(&mut self, to: &Path) -> io::Result<()>;

    /// Cuts the file to a length.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;

    /// Locks the file until this value is dropped or the process ends; false if somebody else has.
    fn try_lock(&mut self) -> io::Result<bool>;

    /// Whether the file still has a name. Without one, what is written to it is lost.
    fn is_named(&self) -> io::Result<bool>;
}

/// A file that is being read.
pub trait Reading: io::Read + fmt::Debug + Send {
    /// Locks the file until this value is dropped or the process ends; false if somebody else has.
    fn try_lock(&mut self) -> io::Result<bool>;

    /// Whether the file still has a name. Without one, it was removed after it was opened.
    fn is_named(&self) -> io::Result<bool>;
}
