//! A disk in memory that forgets what was not synced, tears writes and fails any call on demand.

mod handle;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use backstop_disk::fs::{Filesystem, Names, Reading, Writing};

use handle::Handle;

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
    /// Nothing fails, but right before the call somebody else removes every file.
    Removed,
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
    is_directory: bool,
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

    /// The directory that changes; nothing moves from one to another.
    fn directory(&self) -> Option<&Path> {
        let (Self::Set(path, _) | Self::Link(path, _) | Self::Move(_, path, _) | Self::Remove(path)) = self;
        above(path)
    }
}

/// Where the name of a file or directory is kept. A path without one begins here, which is `.`.
fn above(path: &Path) -> Option<&Path> {
    let parent = path.parent().filter(|_| path != Path::new("."))?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

impl FakeDisk {
    /// An empty disk with one directory, and those above it.
    pub(crate) fn with_directory(path: &Path) -> Self {
        let mut state = State::default();
        for level in path.ancestors().filter(|level| !level.as_os_str().is_empty()) {
            state.add(level, true);
        }
        state.safe_names = state.names.clone();
        state.changes.clear();
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
        // What lies in a directory goes with the directory's name. Names are sorted, so parents come first.
        let mut left = BTreeMap::new();
        for (path, inode) in names {
            if above(&path).is_none_or(|above| left.contains_key(above)) {
                left.insert(path, inode);
            }
        }
        let files: Vec<_> = state.files.iter().map(|file| file.after_crash(&mut random)).collect();
        let after = State { files, safe_names: left.clone(), names: left, ..State::default() };
        Self::with(after)
    }

    /// Every file whose name ends so, with its content.
    pub(crate) fn files_ending(&self, ending: &str) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let named = state.names.iter().filter_map(|(path, inode)| {
            Some((path.file_name()?.to_string_lossy().into_owned(), state.files[*inode].data.clone()))
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
        if matches!(fault, Fault::Removed) {
            self.remove_files();
        }
        Some(fault)
    }

    fn remove_files(&mut self) {
        let is_file = |(_, inode): &(&PathBuf, &usize)| !self.files[**inode].is_directory;
        let files: Vec<_> = self.names.iter().filter(is_file).map(|(path, _)| path.clone()).collect();
        for path in files {
            self.change(Change::Remove(path));
        }
    }

    fn add(&mut self, path: &Path, is_directory: bool) -> usize {
        self.files.push(Inode { is_directory, ..Inode::default() });
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

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files[self.inode(path)?].is_directory)
    }

    /// Whether a name can be given: its directory is there, and nothing has the name.
    fn must_be_free(&self, path: &Path) -> io::Result<()> {
        self.must_be_directory(above(path).unwrap_or(path))?;
        match self.inode(path) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(()),
        }
    }

    fn must_be_directory(&self, path: &Path) -> io::Result<()> {
        if self.is_directory(path)? { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
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
        Self { is_directory: self.is_directory, safe: data.clone(), data, is_lost: false, locked_by: None }
    }
}

impl Filesystem for FakeDisk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let mut state = self.call("create")?;
        state.must_be_free(path)?;
        let inode = state.add(path, false);
        Ok(Box::new(state.handle(self, inode)))
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Box<dyn Writing>> {
        let mut state = self.call("create unnamed")?;
        state.must_be_directory(directory)?;
        state.files.push(Inode::default());
        let inode = state.files.len() - 1;
        Ok(Box::new(state.handle(self, inode)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let mut state = self.call("append")?;
        let inode = match state.must_be_free(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => state.inode(path)?,
            free => free.map(|()| state.add(path, false))?,
        };
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
        state.must_be_free(to)?;
        assert_eq!(above(from), above(to), "nothing moves from one directory to another");
        state.change(Change::Move(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call("remove")?;
        state.inode(path)?;
        state.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call("sync directory")?;
        state.must_be_directory(path)?;
        let State { changes, names, safe_names, .. } = &mut *state;
        // Not every filesystem counts it as a change of the directory that a file without a name has got one.
        changes.retain(|change| match change {
            change if change.directory() != Some(path) => true,
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
        let mut state = self.call("create directory")?;
        state.must_be_free(path)?;
        state.add(path, true);
        Ok(())
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.call("is directory")?.is_directory(path)
    }

    fn names(&self, path: &Path) -> io::Result<Names> {
        let state = self.call("names")?;
        state.must_be_directory(path)?;
        let inside = state.names.keys().filter(|name| above(name) == Some(path));
        let names: Vec<OsString> = inside.filter_map(|name| Some(name.file_name()?.to_owned())).collect();
        Ok(Box::new(names.into_iter().map(Ok)))
    }
}
