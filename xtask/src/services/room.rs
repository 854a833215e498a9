//! The room of a server: its folder under `target/services`, its port, its log, its lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::account;
use super::name::Name;
use super::newer::Newer;
use super::port;
use crate::say::say;
use crate::workspace::{Workspace, make_folder, read, write};

/// Where a server keeps what is its own.
///
/// `folder` is always `target/services/<name>`. `home` is where the server itself writes: the same folder,
/// unless the server runs as another user who cannot get there, or in a newer Debian, where it has that path too.
pub(super) struct Room {
    pub(super) name: Name,
    pub(super) folder: PathBuf,
    pub(super) home: PathBuf,
}

impl Room {
    pub(super) fn open(workspace: &Workspace, name: Name) -> Result<Self> {
        let folder = workspace.path("target/services").join(name.as_str());
        make_folder(&folder)?;
        let runs_as_another = account::is_root() && account::name_for(name).is_some();
        let home = if name.is_newer() {
            Newer::of(workspace).outside(&folder)
        } else if runs_as_another && !open_to_all(&folder) {
            home_elsewhere(&folder, name)
        } else {
            folder.clone()
        };
        Ok(Self { name, folder, home })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Held while the server is started or stopped, so that two runs of this program do not meet in the middle.
    pub(super) fn lock(&self) -> Result<File> {
        let path = self.folder.join("lock");
        let cannot = || format!("cannot lock {}; check its permissions", path.display());
        let file = File::options().create(true).append(true).open(&path).with_context(cannot)?;
        file.lock().with_context(cannot)?;
        Ok(file)
    }

    /// A fresh log; the one before is kept as `log.1`, since it may tell why the last run ended.
    pub(super) fn fresh_log(&self) -> Result<File> {
        let log = self.log();
        match fs::rename(&log, self.folder.join("log.1")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot move {}; check its permissions", log.display()));
            }
            _ => {}
        }
        File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write {}; check its permissions", log.display()))
    }

    /// The port of the last start.
    pub(super) fn port(&self) -> Option<u16> {
        self.remembered("port")
    }

    /// The port of the last start if it is still to be had, else a new one.
    pub(super) fn take_port(&self, file: &str) -> Result<u16> {
        if let Some(port) = self.remembered(file) {
            if port::becomes_free(port) {
                return Ok(port);
            }
            say!("{:<14} port {port} was taken by another program; choosing a new one", self.name);
        }
        let port = port::choose()?;
        write(&self.folder.join(file), format!("{port}\n"))?;
        Ok(port)
    }

    fn remembered(&self, file: &str) -> Option<u16> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join("pid")).ok()?.trim().parse().ok()
    }

    pub(super) fn remember_pid(&self, pid: u32) -> Result<()> {
        write(&self.folder.join("pid"), format!("{pid}\n"))
    }

    pub(super) fn forget_pid(&self) {
        let _ = fs::remove_file(self.folder.join("pid"));
    }

    /// Why the server cannot be had, as the last `up` found.
    pub(super) fn unavailable(&self) -> Option<String> {
        read(&self.folder.join("unavailable")).ok().map(|why| why.trim().to_owned())
    }

    pub(super) fn mark_unavailable(&self, why: Option<&str>) -> Result<()> {
        let path = self.folder.join("unavailable");
        let Some(why) = why else {
            let _ = fs::remove_file(&path);
            return Ok(());
        };
        write(&path, format!("{why}\n"))
    }

    /// Makes a folder inside the home that belongs to the server's user.
    pub(super) fn make_own(&self, folder: &Path) -> Result<()> {
        if self.home != self.folder {
            if let Some(above) = self.home.parent() {
                make_folder(above)?;
            }
            make_private(&self.home, self.name)?;
        }
        make_folder(folder)?;
        account::give(folder, self.name)
    }
}

/// Whether any user may walk from the root down to this folder.
fn open_to_all(folder: &Path) -> bool {
    folder.ancestors().all(|step| fs::metadata(step).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0))
}

/// A folder for a clone such as `/root/backstop`, which only root can reach. The name follows from the clone's
/// path, so that every run finds the same one.
fn home_elsewhere(folder: &Path, name: Name) -> PathBuf {
    // FNV-1a: short, and the same in every build of this program.
    let hash = folder.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    PathBuf::from(format!("/var/tmp/backstop-{name}-{hash:016x}"))
}

/// Makes the folder above; one that someone else put there first is refused.
fn make_private(home: &Path, name: Name) -> Result<()> {
    match fs::create_dir(home) {
        Ok(()) => account::give(home, name),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let meta =
                fs::symlink_metadata(home).with_context(|| format!("cannot look at {}", home.display()))?;
            if !meta.is_dir() || meta.uid() != account::uid_for(name)? {
                bail!("{} exists and is not ours; remove it, then try again", home.display());
            }
            Ok(())
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot make {}; check its permissions", home.display()))
        }
    }
}
