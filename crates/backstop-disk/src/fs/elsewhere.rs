//! What only Linux has, where there is no Linux: `Unsupported`, and callers go another way.

use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn rename_without_replacing(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn create_unnamed(_: &Path, _: u32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn link_new(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn sync_filesystem(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn unwritten_bytes() -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}
