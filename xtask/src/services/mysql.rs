//! MariaDB, the server at hand of the MySQL family.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::account;
use super::install::Installer;
use super::name::Name;
use super::process::Identity;
use super::room::Room;
use super::server::Kind;
use crate::program;
use crate::workspace::write;

pub(super) const USER: &str = "backstop";
pub(super) const PASSWORD: &str = "backstop";

/// Runs at every start, before the first connection is let in. One statement per line, as the server asks for.
pub(super) const INIT: &str = "\
CREATE DATABASE IF NOT EXISTS backstop;
CREATE USER IF NOT EXISTS 'backstop'@'127.0.0.1' IDENTIFIED BY 'backstop';
CREATE USER IF NOT EXISTS 'backstop'@'localhost' IDENTIFIED BY 'backstop';
GRANT ALL ON *.* TO 'backstop'@'127.0.0.1' WITH GRANT OPTION;
GRANT ALL ON *.* TO 'backstop'@'localhost' WITH GRANT OPTION;
";

pub(super) struct Mysql;

impl Kind for Mysql {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        if program::find("mariadbd").is_none() || program::find("mariadb-install-db").is_none() {
            installer.install(&["mariadb-server"])?;
        }
        room.make_own(&room.home.join("tmp"))?;
        let init = room.home.join("init.sql");
        write(&init, INIT)?;
        account::give(&init, Name::Mysql)?;
        if room.data().join("mysql").is_dir() {
            return Ok(());
        }
        // Made under another name first: a run cut short leaves nothing that looks like data.
        let fresh = room.home.join("data.new");
        let _ = fs::remove_dir_all(&fresh);
        room.make_own(&fresh)?;
        let mut install = Command::new("mariadb-install-db");
        install.arg("--no-defaults").arg(format!("--datadir={}", fresh.display())).current_dir(&fresh);
        install.args(["--skip-test-db", "--auth-root-authentication-method=normal"]);
        as_own_user(&mut install);
        program::run(&mut install)?;
        fs::rename(&fresh, room.data())
            .context("cannot put the new database in place; remove what is in its way")
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let mut command =
            Command::new(program::find("mariadbd").context("MariaDB is gone; install `mariadb-server`")?);
        // First of all, or the machine's own settings leak in.
        command.arg("--no-defaults");
        command.arg(data_argument(room));
        command.arg(format!("--tmpdir={}", room.home.join("tmp").display()));
        command.arg(format!("--init-file={}", room.home.join("init.sql").display()));
        command.arg(format!("--port={port}"));
        // The socket's name is relative to the data: a full path would break the limit of 107 bytes in a deep clone.
        command.args(["--bind-address=127.0.0.1", "--socket=mysql.sock", "--max-connections=400"]);
        // What packaged servers are set to; the built-in default is still latin1.
        command.args(["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"]);
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "mariadbd", argument: data_argument(room) }
    }

    fn answers(&self, port: u16) -> bool {
        let mut ping = Command::new("mariadb-admin");
        ping.args(["--no-defaults", "--protocol=tcp", "-h127.0.0.1", "--connect-timeout=2"]);
        ping.args([format!("-P{port}"), format!("-u{USER}"), format!("-p{PASSWORD}"), "ping".to_owned()]);
        program::succeeds(&mut ping)
    }

    fn address(&self, port: u16) -> String {
        format!("mysql://{USER}:{PASSWORD}@127.0.0.1:{port}/backstop")
    }
}

fn data_argument(room: &Room) -> String {
    format!("--datadir={}", room.data().display())
}

/// Its installer must start as root to hand over files, and changes to the server's user by itself.
fn as_own_user(command: &mut Command) {
    if let Some(user) = account::name_for(Name::Mysql).filter(|_| account::is_root()) {
        command.arg(format!("--user={user}"));
    }
}
