//! What can go wrong with files, and what to do about it.

use std::io;
use std::path::PathBuf;

use backstop_core::setting::{self, SettingFault};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that cannot be used, all of them.
    #[error("the dead-letter directory cannot be opened: {}", setting::list(.faults))]
    Settings {
        /// Every fault, in the order of the settings.
        faults: Vec<SettingFault>,
    },

    /// There is no such directory.
    #[error("there is no directory {}; create it, or let the setting `create` do so", .0.display())]
    NoDirectory(PathBuf),

    /// The path is not a directory.
    #[error("{} is not a directory; name one", .0.display())]
    NotADirectory(PathBuf),

    /// Files cannot be made in the directory.
    #[error("cannot write to {}: {source}; check its owner and mode, and that the disk has room", .path.display())]
    Unwritable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}; check its owner and mode", .path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// An event could not be stored. Its sender still has it.
    #[error("cannot {doing}: {source}; check the disk's room and health")]
    Write {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },

    /// An event is larger than what is kept in the directory.
    #[error("the event takes {bytes} bytes, and at most {limit} are stored; send large data by reference")]
    TooLarge {
        /// How large it is with its error.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },

    /// The thread that writes has ended, which happens only when it panicked.
    #[error("a thread that writes to the directory has ended; restart the process and report this as a bug")]
    WriterEnded,

    /// A text that does not name an entry of a directory.
    #[error("{0:?} names no entry; use a name as `list` shows it, such as 1767225600000-42.jsonl")]
    BadPlace(String),

    /// The entry is not there.
    #[error("there is no entry {0}; it may have been sent again or purged meanwhile")]
    NoEntry(String),

    /// What was exported could not be written.
    #[error("cannot write the export: {0}")]
    Export(#[source] io::Error),
}

/// An I/O error again, for each of the many who share it.
pub(crate) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
