//! What only Linux has: renames that replace nothing, files without a name, and the sync of a whole filesystem.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, fstatfs, linkat, openat, renameat_with, syncfs};
use rustix::io::Errno;
use rustix::system::uname;

/// Filesystems that tell a sync of the whole of them what could not be written: ext2 to ext4, XFS, Btrfs and tmpfs.
/// Layers over others, and those over a network or in user space, do not, or not always.
const HONEST: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// Since 5.8 a sync of a whole filesystem tells of data, and since 5.17 of the journal too.
const HONEST_SINCE: (u32, u32) = (5, 17);

pub(super) fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

pub(super) fn create_unnamed(directory: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(CWD, directory, flags, Mode::from_raw_mode(mode)) {
        // Kernels and filesystems that do not know the flag take this for writing to a directory.
        Err(Errno::ISDIR | Errno::OPNOTSUPP | Errno::INVAL) => Err(io::ErrorKind::Unsupported.into()),
        opened => Ok(File::from(opened?)),
    }
}

pub(super) fn link_new(file: &File, to: &Path) -> io::Result<()> {
    match linkat(file, "", CWD, to, AtFlags::EMPTY_PATH) {
        // Kernels before 6.10 let only root do that.
        Err(Errno::NOENT) => link_by_proc(file, to),
        linked => Ok(linked?),
    }
}

fn link_by_proc(file: &File, to: &Path) -> io::Result<()> {
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, opened, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
}

pub(super) fn sync_filesystem(file: &File) -> io::Result<()> {
    static IS_HONEST: OnceLock<bool> = OnceLock::new();
    let is_honest = *IS_HONEST
        .get_or_init(|| version(&uname().release().to_string_lossy()).is_some_and(|it| it >= HONEST_SINCE));
    let kind = u32::try_from(fstatfs(file)?.f_type).unwrap_or_default();
    if !is_honest || !HONEST.contains(&kind) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(syncfs(file)?)
}

pub(super) fn unwritten_bytes() -> io::Result<u64> {
    let told = std::fs::read_to_string("/proc/meminfo")?;
    unwritten(&told).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn unwritten(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some((kib("Dirty")? + kib("Writeback")?) * 1024)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use backstop_testkit::servers::directory;

    use super::*;

    #[test]
    fn either_way_to_name_a_file_gives_it_that_name_and_replaces_nothing() {
        for (way, link) in [("by itself", link_new as fn(&File, &Path) -> _), ("by /proc", link_by_proc)] {
            let place = directory();
            let Ok(mut file) = create_unnamed(place.path(), 0o600) else {
                return backstop_testkit::skip("needs a filesystem with files that have no name");
            };
            file.write_all(b"new").unwrap();
            fs::write(place.file("taken"), "old").unwrap();
            let refused: io::Result<()> = link(&file, &place.file("taken"));
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{way}");
            link(&file, &place.file("free")).unwrap();
            assert_eq!(fs::read_to_string(place.file("free")).unwrap(), "new", "{way}");
            assert_eq!(fs::read_to_string(place.file("taken")).unwrap(), "old", "{way}");
        }
    }

    #[test]
    fn the_version_is_read_from_what_kernels_call_themselves() {
        for (release, read) in [
            ("6.18.44-fc-v445", Some((6, 18))),
            ("5.4", Some((5, 4))),
            ("5.17-rc1", Some((5, 17))),
            ("six", None),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(version(release), read, "{release}");
        }
        assert!(version("5.16.20") < Some(HONEST_SINCE) && version("5.17.0") >= Some(HONEST_SINCE));
    }

    #[test]
    fn what_is_unwritten_is_what_waits_and_what_is_on_its_way() {
        let meminfo =
            "MemTotal: 9 kB\nDirty:               172 kB\nWriteback:             8 kB\nWritebackTmp: 5 kB\n";
        assert_eq!(unwritten(meminfo), Some(180 * 1024));
        assert_eq!(unwritten("MemTotal: 9 kB\n"), None);
    }
}
