//! A disk in memory that forgets what was not synced, tears writes and fails any call on demand.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use backstop_disk::fs::{Filesystem, Names, Reading, Writing};

pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EIO: i32 = 5;
pub(crate) const EOPNOTSUPP: i32 = 95;

/// A disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub(crate) struct FakeDisk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

/// What happens at a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The call fails with this error; a write does so halfway, a sync loses what it was to make safe.
    Error(i32),
    /// The power is cut before the call: it and all that follow fail.
    PowerCut,
    /// A bug: whoever calls panics, and the disk is of no use afterwards.
    Panic,
}

/// At which call something happens.
#[derive(Debug, Clone, Copy)]
enum When {
    Call(usize),
    /// Still so many calls of this name to go.
    Nth(&'static str, usize),
    Always(&'static str),
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Inode>,
    /// What processes see.
    names: BTreeMap<PathBuf, usize>,
    /// What a crash leaves in any case.
    safe_names: BTreeMap<PathBuf, usize>,
    /// What a crash leaves or not: each change since the last sync that covered it.
    changes: Vec<Change>,
    directories: Vec<PathBuf>,
    calls: Vec<&'static str>,
    faults: Vec<(When, Fault)>,
    faulted: Option<&'static str>,
    is_off: bool,
    is_held: bool,
    /// How many calls wait until the disk is not held any more.
    held: usize,
    unwritten: u64,
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
    /// The first name of a file that had none.
    Link(PathBuf, usize),
    Move(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Set(path, inode) | Self::Link(path, inode) => drop(names.insert(path.clone(), *inode)),
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
        Self::with(state)
    }

    fn with(state: State) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(state), ..Shared::default() }))
    }

    /// Lets a call fail, counted from the next one, which is 0.
    pub(crate) fn fail_at(&self, call: usize, fault: Fault) {
        let mut state = self.state();
        let at = When::Call(state.calls.len() + call);
        state.faults.push((at, fault));
    }

    /// Lets a call of this name fail, counted from the next one, which is 0: where threads call side by side, only
    /// the names tell which call it is.
    pub(crate) fn fail_nth(&self, name: &'static str, call: usize, fault: Fault) {
        self.state().faults.push((When::Nth(name, call), fault));
    }

    /// Lets every call of this name fail.
    pub(crate) fn fail_always(&self, name: &'static str, code: i32) {
        self.state().faults.push((When::Always(name), Fault::Error(code)));
    }

    /// Lets calls wait until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.state().is_held = true;
    }

    /// Whether a call waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.state().held > 0
    }

    pub(crate) fn release(&self) {
        self.state().is_held = false;
        self.0.released.notify_all();
    }

    /// Says how much the machine has yet to write.
    pub(crate) fn set_unwritten(&self, bytes: u64) {
        self.state().unwritten = bytes;
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
        Self::with(after)
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
        self.0.state.lock().unwrap()
    }

    /// Counts a call, and says what happens at it.
    fn turn(&self, name: &'static str) -> (MutexGuard<'_, State>, Option<Fault>) {
        let mut state = self.state();
        while state.is_held {
            state.held += 1;
            state = self.0.released.wait(state).unwrap();
            state.held -= 1;
        }
        let fault = state.turn(name);
        (state, fault)
    }

    /// Counts a call and fails it if it is its turn.
    fn call(&self, name: &'static str) -> io::Result<MutexGuard<'_, State>> {
        let (state, fault) = self.turn(name);
        if let Some(Fault::Error(code)) = fault {
            return Err(io::Error::from_raw_os_error(code));
        }
        if state.is_off { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(state) }
    }
}

impl State {
    fn turn(&mut self, name: &'static str) -> Option<Fault> {
        let number = self.calls.len();
        self.calls.push(name);
        let is_now = |(when, _): &mut (When, Fault)| match when {
            When::Call(at) => *at == number,
            When::Nth(wanted, 0) | When::Always(wanted) => *wanted == name,
            When::Nth(wanted, left) => {
                *left -= usize::from(*wanted == name);
                false
            }
        };
        let at = self.faults.iter_mut().position(is_now)?;
        let (when, fault) = self.faults[at];
        if !matches!(when, When::Always(_)) {
            self.faults.remove(at);
        }
        assert!(!matches!(fault, Fault::Panic), "asked for");
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
    fn keep(&mut self) {
        if !self.is_lost {
            self.safe.clone_from(&self.data);
        }
    }

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

    fn create_unnamed(&self, _: &Path) -> io::Result<Box<dyn Writing>> {
        let mut state = self.call("create unnamed")?;
        state.files.push(Inode::default());
        let inode = state.files.len() - 1;
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
        let State { changes, names, safe_names, .. } = &mut *state;
        // Not every filesystem counts it as a change of the directory that a file without a name has got one.
        changes.retain(|change| match change {
            Change::Link(path, _) => names.contains_key(path),
            change => {
                change.apply(safe_names);
                false
            }
        });
        Ok(())
    }

    fn unwritten_bytes(&self) -> io::Result<u64> {
        Ok(self.call("unwritten bytes")?.unwritten)
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
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
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
