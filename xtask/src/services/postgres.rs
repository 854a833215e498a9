//! PostgreSQL: any version from 15 on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::account;
use super::install::Installer;
use super::name::Name;
use super::process::{self, Identity};
use super::room::Room;
use super::server::Kind;
use crate::program;
use crate::workspace::{entries, file_name};

const OLDEST: u32 = 15;
const PATIENCE_WITH_CHILDREN: Duration = Duration::from_secs(20);

/// How data is made: for a user whom everybody on this machine may be.
pub(super) const INITDB: [&str; 8] =
    ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];

/// No Unix socket: its path would break the limit of 107 bytes in a deep clone.
pub(super) const SETTINGS: [&str; 3] =
    ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=400"];

pub(super) struct Postgres;

impl Kind for Postgres {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        if programs().is_none() {
            installer.install(&["postgresql"])?;
        }
        if room.data().join("PG_VERSION").is_file() {
            return clear_the_way(room);
        }
        // Made under another name first: a run cut short leaves nothing that looks like data.
        let fresh = room.home.join("data.new");
        let _ = fs::remove_dir_all(&fresh);
        room.make_own(&fresh)?;
        let mut initdb = Command::new(folder()?.join("initdb"));
        initdb.arg("-D").arg(&fresh).current_dir(&fresh);
        initdb.args(INITDB);
        account::run_as(&mut initdb, Name::Postgres)?;
        program::run(&mut initdb)?;
        fs::rename(&fresh, room.data())
            .context("cannot put the new database in place; remove what is in its way")
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let mut command = Command::new(folder()?.join("postgres"));
        command.arg("-D").arg(room.data());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.arg("-c").arg(format!("port={port}"));
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "postgres", argument: room.data().display().to_string() }
    }

    fn answers(&self, port: u16) -> bool {
        let Ok(folder) = folder() else { return false };
        let mut ready = Command::new(folder.join("pg_isready"));
        program::succeeds(ready.args(["-q", "-h", "127.0.0.1", "-t", "2", "-p", &port.to_string()]))
    }

    fn address(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }

    /// A fast shutdown: open sessions are ended, what is committed stays.
    fn stop_signal(&self) -> &'static str {
        "INT"
    }
}

/// Makes room for a new server after the old one was killed: its children need a moment to notice, and its lock
/// file names a process that may linger as a zombie, which PostgreSQL takes for a living server.
pub(super) fn clear_the_way(room: &Room) -> Result<()> {
    if !process::wait_nobody_in(&room.data(), PATIENCE_WITH_CHILDREN) {
        bail!("processes of an earlier server still use {}; end them, then try again", room.data().display());
    }
    let _ = fs::remove_file(room.data().join("postmaster.pid"));
    Ok(())
}

/// Where the programs of a new enough version are.
fn folder() -> Result<PathBuf> {
    let (version, folder) =
        programs().context("PostgreSQL is not installed; install the package `postgresql`")?;
    if version < OLDEST {
        bail!("PostgreSQL {OLDEST} or newer is needed and this machine has {version}; install a newer one");
    }
    Ok(folder)
}

/// The newest version here and the folder of its programs.
fn programs() -> Option<(u32, PathBuf)> {
    let packaged = entries(Path::new("/usr/lib/postgresql")).unwrap_or_default().into_iter();
    let packaged = packaged
        .filter_map(|version| Some((file_name(&version).parse().ok()?, version.join("bin"))))
        .filter(|(_, folder)| folder.join("initdb").is_file());
    packaged.max().or_else(|| {
        let initdb = program::find("initdb")?;
        let said = program::run(Command::new(&initdb).arg("--version")).ok()?;
        Some((major_version(&String::from_utf8_lossy(&said.stdout))?, initdb.parent()?.to_path_buf()))
    })
}

/// Reads `15` out of `initdb (PostgreSQL) 15.18 (Debian …)`.
fn major_version(said: &str) -> Option<u32> {
    said.split_whitespace().find_map(|word| word.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major_version("initdb (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_version("initdb (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major_version("initdb"), None);
    }
}
