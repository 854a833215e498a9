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
        DirBuilder::new().mode(DIRECTORY_MODE).create(path)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use backstop_testkit::servers::directory;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn creating_never_truncates_and_follows_no_link() {
        let place = directory();
        let (taken, link, dangling) = (place.file("taken"), place.file("link"), place.file("dangling"));
        fs::write(&taken, "precious").unwrap();
        symlink(&taken, &link).unwrap();
        symlink(place.file("nowhere"), &dangling).unwrap();
        for path in [&taken, &link, &dangling] {
            let refused = Disk.create_new(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{}", path.display());
        }
        assert_eq!(fs::read_to_string(&taken).unwrap(), "precious");
        assert!(!place.file("nowhere").exists());
    }

    #[test]
    fn appending_never_truncates_and_follows_no_link() {
        let place = directory();
        let (file, link, dangling) = (place.file("file"), place.file("link"), place.file("dangling"));
        for line in ["one\n", "two\n"] {
            Disk.append(&file).unwrap().write_all(line.as_bytes()).unwrap();
        }
        symlink(&file, &link).unwrap();
        symlink(place.file("nowhere"), &dangling).unwrap();
        assert!(Disk.append(&link).is_err() && Disk.append(&dangling).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        assert!(!place.file("nowhere").exists());
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone() {
        let place = directory();
        Disk.create_new(&place.file("new")).unwrap();
        Disk.append(&place.file("appended")).unwrap();
        Disk.create_directory(&place.file("folder")).unwrap();
        assert_eq!((mode(&place.file("new")), mode(&place.file("appended"))), (0o600, 0o600));
        assert_eq!(mode(&place.file("folder")), 0o700);
        if let Ok(mut unnamed) = Disk.create_unnamed(place.path()) {
            unnamed.link_new(&place.file("linked")).unwrap();
            assert_eq!(mode(&place.file("linked")), 0o600);
        }
    }

    #[test]
    fn a_directory_is_made_once_and_in_one_that_is_there() {
        let place = directory();
        assert_eq!(Disk.create_directory(&place.file("a/b")).unwrap_err().kind(), io::ErrorKind::NotFound);
        Disk.create_directory(&place.file("a")).unwrap();
        assert_eq!(Disk.create_directory(&place.file("a")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_name_that_is_taken_is_never_replaced() {
        let place = directory();
        fs::write(place.file("one"), "1").unwrap();
        fs::write(place.file("two"), "2").unwrap();
        let refused = Disk.rename_new(&place.file("one"), &place.file("two")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(place.file("one")).unwrap(), "1");
        assert_eq!(fs::read_to_string(place.file("two")).unwrap(), "2");
    }

    #[test]
    fn a_file_that_was_removed_while_it_was_open_has_no_name() {
        let place = directory();
        let path = place.file("file");
        let written = Disk.create_new(&path).unwrap();
        let read = Disk.open(&path).unwrap();
        assert!(written.is_named().unwrap() && read.is_named().unwrap());
        Disk.remove(&path).unwrap();
        assert!(!written.is_named().unwrap() && !read.is_named().unwrap());
    }
}
