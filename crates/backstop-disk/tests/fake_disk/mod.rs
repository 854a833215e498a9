//! A disk in memory that forgets what was not synced, tears writes and fails any call on demand.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use backstop_disk::fs::{Filesystem, Names, Reading, Writing};

pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EIO: i32 = 5;

/// A disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub(crate) struct FakeDisk(Arc<Mutex<State>>);

/// What happens at a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The call fails with this error; a write does so halfway, a sync loses what it was to make safe.
    Error(i32),
    /// The power is cut before the call: it and all that follow fail.
    PowerCut,
}

/// At which call something happens.
#[derive(Debug, Clone, Copy)]
enum When {
    Call(usize),
    /// Still so many calls of this name to go.
    Nth(&'static str, usize),
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Inode>,
    /// What processes see.
    names: BTreeMap<PathBuf, usize>,
    /// What a crash leaves in any case.
    safe_names: BTreeMap<PathBuf, usize>,
    /// What a crash leaves or not: each change since the last sync of the directory.
    changes: Vec<Change>,
    directories: Vec<PathBuf>,
    calls: Vec<&'static str>,
    fault: Option<(When, Fault)>,
    faulted: Option<&'static str>,
    is_off: bool,
    handles: u64,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    data: Vec<u8>,
    safe: Vec<u8>,
    /// A sync failed: the system takes the data for written, and it is not.
    is_lost: bool,
    locked_by: Option<u64>,
}

#[derive(Debug, Clone)]
enum Change {
    Set(PathBuf, usize),
    Move(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Set(path, inode) => drop(names.insert(path.clone(), *inode)),
            Self::Move(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove(path) => drop(names.remove(path)),
        }
    }
}

impl FakeDisk {
    /// An empty disk with one directory.
    pub(crate) fn with_directory(path: &Path) -> Self {
        let state = State { directories: vec![path.to_owned()], ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Lets a call fail, counted from the next one, which is 0.
    pub(crate) fn fail_at(&self, call: usize, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((When::Call(state.calls.len() + call), fault));
    }

    /// Lets a call of this name fail, counted from the next one, which is 0: where threads call side by side, only
    /// the names tell which call it is.
    pub(crate) fn fail_nth(&self, name: &'static str, call: usize, fault: Fault) {
        self.state().fault = Some((When::Nth(name, call), fault));
    }

    /// Which call failed.
    pub(crate) fn faulted(&self) -> Option<&'static str> {
        self.state().faulted
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    /// The disk as another process finds it after the machine has crashed and come up again. What was not safe
    /// is there or not, in whole or in part, as the seed says.
    pub(crate) fn after_crash(&self, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let state = self.state();
        let mut names = state.safe_names.clone();
        for change in &state.changes {
            if random.bool() {
                change.apply(&mut names);
            }
        }
        let files: Vec<_> = state.files.iter().map(|file| file.after_crash(&mut random)).collect();
        let directories = state.directories.clone();
        let after = State { files, safe_names: names.clone(), names, directories, ..State::default() };
        Self(Arc::new(Mutex::new(after)))
    }

    /// Every file whose name ends so, with its content.
    pub(crate) fn files_ending(&self, ending: &str) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let named = state.names.iter().map(|(path, inode)| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), state.files[*inode].data.clone())
        });
        named.filter(|(name, _)| name.ends_with(ending)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Counts a call and fails it if it is its turn.
    fn call(&self, name: &'static str) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if let Some(Fault::Error(code)) = state.turn(name) {
            return Err(io::Error::from_raw_os_error(code));
        }
        if state.is_off { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(state) }
    }
}

impl State {
    fn turn(&mut self, name: &'static str) -> Option<Fault> {
        let number = self.calls.len();
        self.calls.push(name);
        let is_now = match &mut self.fault {
            Some((When::Call(at), _)) => *at == number,
            Some((When::Nth(wanted, 0), _)) => *wanted == name,
            Some((When::Nth(wanted, left), _)) => {
                *left -= usize::from(*wanted == name);
                false
            }
            None => false,
        };
        let (_, fault) = self.fault.take_if(|_| is_now)?;
        self.faulted = Some(name);
        self.is_off = matches!(fault, Fault::PowerCut);
        Some(fault)
    }

    fn add(&mut self, path: &Path) -> usize {
        self.files.push(Inode::default());
        let inode = self.files.len() - 1;
        self.change(Change::Set(path.to_owned(), inode));
        inode
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn inode(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn handle(&mut self, disk: &FakeDisk, inode: usize) -> Handle {
        self.handles += 1;
        Handle { disk: disk.clone(), inode, number: self.handles, position: 0 }
    }
}

impl Inode {
    fn after_crash(&self, random: &mut fastrand::Rng) -> Self {
        let data = if self.data == self.safe {
            self.safe.clone()
        } else {
            // Appended bytes may have reached the disk in part, or as zeros where the length did.
            let kept = random.usize(self.safe.len().min(self.data.len())..=self.data.len());
            let mut data = self.data[..kept].to_vec();
            if random.bool() {
                data.resize(self.data.len(), 0);
            }
            data[..self.safe.len().min(kept)].copy_from_slice(&self.safe[..self.safe.len().min(kept)]);
            data
        };
        Self { safe: data.clone(), data, is_lost: false, locked_by: None }
    }
}

impl Filesystem for FakeDisk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let mut state = self.call("create")?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.add(path);
        Ok(Box::new(state.handle(self, inode)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let mut state = self.call("append")?;
        let inode = state.inode(path).unwrap_or_else(|_| state.add(path));
        Ok(Box::new(state.handle(self, inode)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        let mut state = self.call("open")?;
        let inode = state.inode(path)?;
        Ok(Box::new(state.handle(self, inode)))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call("rename")?;
        let inode = state.inode(from)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change(Change::Move(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call("remove")?;
        state.inode(path)?;
        state.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        let mut state = self.call("sync directory")?;
        state.safe_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call("create directory")?.directories.push(path.to_owned());
        Ok(())
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        let state = self.call("is directory")?;
        if state.directories.iter().any(|known| known == path) {
            return Ok(true);
        }
        state.inode(path).map(|_| false)
    }

    fn names(&self, path: &Path) -> io::Result<Names> {
        let state = self.call("names")?;
        let inside = state.names.keys().filter(|name| name.parent() == Some(path));
        let names: Vec<OsString> = inside.filter_map(|name| Some(name.file_name()?.to_owned())).collect();
        Ok(Box::new(names.into_iter().map(Ok)))
    }
}

/// An open file.
#[derive(Debug)]
struct Handle {
    disk: FakeDisk,
    inode: usize,
    number: u64,
    position: usize,
}

impl Handle {
    fn sync(&self, name: &'static str) -> io::Result<()> {
        let mut state = self.disk.state();
        let fault = state.turn(name);
        if state.is_off {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let file = &mut state.files[self.inode];
        if let Some(Fault::Error(code)) = fault {
            file.is_lost = true;
            return Err(io::Error::from_raw_os_error(code));
        }
        if !file.is_lost {
            file.safe.clone_from(&file.data);
        }
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
        let mut state = self.disk.state();
        let fault = state.turn("write");
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
