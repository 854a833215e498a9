//! Wall clocks of processes that a test can move while they run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use backstop_testkit::servers::{self, Directory};
use backstop_testkit::skip;

use super::node::Settings;

/// The library that moves clocks, compiled by the C compiler that Rust links with.
pub(crate) struct Clocks {
    folder: Directory,
}

impl Clocks {
    /// `None` where it cannot be made, and then the test is marked as skipped.
    pub(crate) fn make() -> Option<Self> {
        let folder = servers::directory();
        // A server under another user reads it as well.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.file("clock.c"), include_str!("clock.c")).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c"])
            .current_dir(folder.path())
            .output();
        let why = match compiled {
            Ok(compiled) if compiled.status.success() && cfg!(target_os = "linux") => {
                return Some(Self { folder });
            }
            Ok(compiled) => String::from_utf8_lossy(&compiled.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        skip(format_args!("no wall clock that can be moved, which needs Linux and a C compiler: {why}"));
        None
    }

    /// A clock that is off by so many seconds.
    pub(crate) fn off_by(&self, name: &str, seconds: i64) -> MovedClock {
        let clock = MovedClock { library: self.folder.file("clock.so"), file: self.folder.file(name) };
        clock.set(seconds);
        clock
    }
}

/// The wall clock of one process.
pub(crate) struct MovedClock {
    library: PathBuf,
    file: PathBuf,
}

impl MovedClock {
    /// It jumps, and is off by so many seconds from now on.
    pub(crate) fn set(&self, seconds: i64) {
        let new = self.file.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        // In one step, so that nobody reads half a number.
        fs::rename(new, &self.file).unwrap();
    }

    /// The environment in which a process has this clock.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        let shown = |path: &PathBuf| path.display().to_string();
        [("LD_PRELOAD", shown(&self.library)), ("BACKSTOP_FAULTS_CLOCK", shown(&self.file))]
    }

    /// A node with this clock.
    pub(crate) fn of(&self, node: Settings) -> Settings {
        self.environment().into_iter().fold(node, |node, (name, value)| node.environment(name, value))
    }
}
