//! Many files, listed in memory that does not grow with them. A program of its own, so that the memory it
//! takes is its own.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use backstop_core::Timestamp;
use backstop_disk::dlq::{Directory, Filter};
use backstop_disk::fs::{Filesystem, Names, Reading, Writing};

const BEGIN: u64 = 1_767_225_600_000;

/// A directory that has so many files, made up as they are asked for, in no order.
#[derive(Debug)]
struct Endless {
    files: u64,
}

#[derive(Debug)]
struct Record(io::Cursor<Vec<u8>>);

impl io::Read for Record {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Reading for Record {
    fn try_lock(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(true)
    }
}

impl Filesystem for Endless {
    fn names(&self, _: &Path) -> io::Result<Names> {
        // A step that shares no divisor with the number of files comes by each of them once.
        let (files, step) = (self.files, 7_368_787);
        Ok(Box::new((0..files).map(move |index| {
            Ok(OsString::from(format!("{}-some-event-of-the-shop.jsonl", BEGIN + index * step % files)))
        })))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record = format!(r#"{{"event":{{"id":"{name}","source":"s","type":"t"}},"error":"e"}}"#);
        Ok(Box::new(Record(io::Cursor::new(record.into_bytes()))))
    }

    fn is_directory(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn create_new(&self, _: &Path) -> io::Result<Box<dyn Writing>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn create_unnamed(&self, _: &Path) -> io::Result<Box<dyn Writing>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn append(&self, _: &Path) -> io::Result<Box<dyn Writing>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename_new(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn unwritten_bytes(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The most memory that this process ever had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Lists what failed in the last thousand milliseconds; every name is looked at for that.
fn list(files: u64) -> usize {
    let directory = Directory::open_on("/endless", Endless { files }).unwrap();
    let since = Timestamp::UNIX_EPOCH + Duration::from_millis(BEGIN + files - 1_000);
    let mut last = None;
    let found = directory.entries(Filter::all().since(since)).map(|found| found.unwrap().entry().unwrap());
    found.inspect(|entry| assert!(last.replace(entry.place.clone()) < Some(entry.place.clone()))).count()
}

#[test]
fn a_million_files_take_no_more_memory_than_a_tenth_of_them() {
    if !Path::new("/proc/self/status").exists() {
        return backstop_testkit::skip("needs /proc, to see the memory");
    }
    assert_eq!(list(100_000), 1_000);
    let before = peak();
    assert_eq!(list(1_000_000), 1_000);
    let grown = peak() - before;
    assert!(grown < 8 * 1024, "the peak grew by {grown} KiB");
}
