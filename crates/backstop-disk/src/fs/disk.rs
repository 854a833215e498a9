//! The real filesystem.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::linux;
use super::{Filesystem, Names, Reading, Writing};

/// The machine's own filesystem.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

impl Filesystem for Disk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let file = owned().write(true).create_new(true).open(path)?;
        Ok(Box::new(file))
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Box<dyn Writing>> {
        Ok(Box::new(linux::create_unnamed(directory, FILE_MODE)?))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let file = owned().append(true).create(true).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(file))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match linux::rename_without_replacing(from, to) {
            // Not every filesystem can do it in one step. A second link is exclusive everywhere; a crash
            // between the two leaves a complete file under both names.
            Err(error) if is_unsupported(&error) => {
                fs::hard_link(from, to)?;
                fs::remove_file(from)
            }
            done => done,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        OpenOptions::new().read(true).custom_flags(flags(OFlags::DIRECTORY)).open(path)?.sync_all()
    }

    fn unwritten_bytes(&self) -> io::Result<u64> {
        linux::unwritten_bytes()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<_> = path.ancestors().take_while(|level| !level.exists()).collect();
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        // The name of a directory is kept by the one above it.
        missing.into_iter().filter_map(Path::parent).try_for_each(|above| {
            let here = above.as_os_str().is_empty();
            self.sync_directory(if here { Path::new(".") } else { above })
        })
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.is_dir())
    }

    fn names(&self, path: &Path) -> io::Result<Names> {
        Ok(Box::new(fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()))))
    }
}

fn owned() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(flags(OFlags::NOFOLLOW));
    options
}

fn flags(flags: OFlags) -> i32 {
    // The bits are the same; only the signs of the two types differ.
    flags.bits().cast_signed()
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

impl Writing for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        File::sync_all(self)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_filesystem(&mut self) -> io::Result<()> {
        linux::sync_filesystem(self)
    }

    fn link_new(&mut self, to: &Path) -> io::Result<()> {
        linux::link_new(self, to)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        locked(File::try_lock(self))
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
    }
}

impl Reading for File {
    fn try_lock(&mut self) -> io::Result<bool> {
        locked(File::try_lock(self))
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
    }
}

fn locked(answer: Result<(), TryLockError>) -> io::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
