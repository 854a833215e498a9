//! PostgreSQL 18, while Debian's stable release has an older one.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::install::Installer;
use super::newer::Newer;
use super::postgres::{self, Postgres, clear_the_way};
use super::process::Identity;
use super::room::Room;
use super::server::Kind;
use crate::program;

const PROGRAMS: &str = "/usr/lib/postgresql/18/bin";

pub(super) struct NewerPostgres {
    pub(super) newer: Newer,
}

impl Kind for NewerPostgres {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        self.newer.prepare(installer)?;
        if room.data().join("PG_VERSION").is_file() {
            return clear_the_way(room);
        }
        // Made under another name first: a run cut short leaves nothing that looks like data.
        let fresh = room.home.join("data.new");
        let _ = fs::remove_dir_all(&fresh);
        room.make_own(&fresh)?;
        let mut initdb = self.newer.command(&format!("{PROGRAMS}/initdb"));
        initdb.arg("-D").arg(self.newer.inside(&fresh)).args(postgres::INITDB);
        program::run(&mut initdb)?;
        fs::rename(&fresh, room.data())
            .context("cannot put the new database in place; remove what is in its way")
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let mut command = self.newer.command(&format!("{PROGRAMS}/postgres"));
        command.arg("-D").arg(self.newer.inside(&room.data()));
        for setting in postgres::SETTINGS {
            command.args(["-c", setting]);
        }
        // No test takes its power away; those that do have servers of their own.
        command.args(["-c", "fsync=off", "-c"]).arg(format!("port={port}"));
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "postgres", argument: self.newer.inside(&room.data()).display().to_string() }
    }

    fn answers(&self, port: u16) -> bool {
        let mut ready = self.newer.command(&format!("{PROGRAMS}/pg_isready"));
        program::succeeds(ready.args(["-q", "-h", "127.0.0.1", "-t", "2", "-p", &port.to_string()]))
    }

    fn address(&self, port: u16) -> String {
        Postgres.address(port)
    }

    fn stop_signal(&self) -> &'static str {
        Postgres.stop_signal()
    }
}
