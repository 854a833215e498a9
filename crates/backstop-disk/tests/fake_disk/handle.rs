//! An open file of the fake disk.

use std::io::{self, Read};
use std::path::Path;

use backstop_disk::fs::{Reading, Writing};

use super::{Change, EIO, FakeDisk, Fault, Inode};

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) disk: FakeDisk,
    pub(super) inode: usize,
    pub(super) number: u64,
    pub(super) position: usize,
}

impl Handle {
    fn sync(&self, name: &'static str) -> io::Result<()> {
        let (mut state, fault) = self.disk.turn(name);
        if state.is_off {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let file = &mut state.files[self.inode];
        if let Some(Fault::Error(code)) = fault {
            file.is_lost = true;
            return Err(io::Error::from_raw_os_error(code));
        }
        file.keep();
        Ok(())
    }

    fn lock(&self) -> io::Result<bool> {
        let mut state = self.disk.call("lock")?;
        let holder = &mut state.files[self.inode].locked_by;
        let is_free = holder.is_none_or(|holder| holder == self.number);
        if is_free {
            *holder = Some(self.number);
        }
        Ok(is_free)
    }

    fn named(&self) -> io::Result<bool> {
        Ok(self.disk.call("is named")?.names.values().any(|inode| *inode == self.inode))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        let holder = &mut state.files[self.inode].locked_by;
        if *holder == Some(self.number) {
            *holder = None;
        }
    }
}

impl Writing for Handle {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut state, fault) = self.disk.turn("write");
        if state.is_off {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if let Some(Fault::Error(code)) = fault {
            state.files[self.inode].data.extend(&bytes[..bytes.len() / 2]);
            return Err(io::Error::from_raw_os_error(code));
        }
        state.files[self.inode].data.extend(bytes);
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync("sync")
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.sync("sync")
    }

    fn sync_filesystem(&mut self) -> io::Result<()> {
        let (mut state, fault) = self.disk.turn("sync filesystem");
        if state.is_off {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if let Some(Fault::Error(code)) = fault {
            state.files.iter_mut().for_each(|file| file.is_lost |= file.data != file.safe);
            return Err(io::Error::from_raw_os_error(code));
        }
        state.files.iter_mut().for_each(Inode::keep);
        state.safe_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn link_new(&mut self, to: &Path) -> io::Result<()> {
        let mut state = self.disk.call("link")?;
        state.must_be_free(to)?;
        state.change(Change::Link(to.to_owned(), self.inode));
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).unwrap();
        self.disk.call("truncate")?.files[self.inode].data.truncate(length);
        Ok(())
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        self.lock()
    }

    fn is_named(&self) -> io::Result<bool> {
        self.named()
    }
}

impl Read for Handle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.call("read")?;
        let mut rest = &state.files[self.inode].data[self.position..];
        let count = rest.read(buffer)?;
        self.position += count;
        Ok(count)
    }
}

impl Reading for Handle {
    fn try_lock(&mut self) -> io::Result<bool> {
        self.lock()
    }

    fn is_named(&self) -> io::Result<bool> {
        self.named()
    }
}
