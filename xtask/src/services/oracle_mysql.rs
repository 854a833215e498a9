//! Oracle's MySQL, which Debian's stable release lacks.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::account;
use super::install::Installer;
use super::mysql::{INIT, PASSWORD, USER};
use super::name::Name;
use super::newer::Newer;
use super::port::local;
use super::process::Identity;
use super::room::Room;
use super::server::Kind;
use crate::program;
use crate::workspace::write;

const PROGRAM: &str = "/usr/sbin/mysqld";

pub(super) struct OracleMysql {
    pub(super) newer: Newer,
}

impl Kind for OracleMysql {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        self.newer.prepare(installer)?;
        room.make_own(&room.home.join("files"))?;
        let init = room.home.join("init.sql");
        write(&init, INIT)?;
        account::give(&init, Name::OracleMysql)?;
        if room.data().join("mysql").is_dir() {
            return Ok(());
        }
        // Made under another name first: a run cut short leaves nothing that looks like data.
        let fresh = room.home.join("data.new");
        let _ = fs::remove_dir_all(&fresh);
        room.make_own(&fresh)?;
        let mut initialize = self.newer.command(PROGRAM);
        initialize.args(["--no-defaults", "--initialize-insecure"]);
        initialize.arg(format!("--datadir={}", self.newer.inside(&fresh).display()));
        program::run(&mut initialize)?;
        fs::rename(&fresh, room.data())
            .context("cannot put the new database in place; remove what is in its way")
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let mut command = self.newer.command(PROGRAM);
        let inside = |name: &str| self.newer.inside(&room.home.join(name)).display().to_string();
        // First of all, or the settings of its package leak in.
        command.arg("--no-defaults");
        command.arg(self.data_argument(room));
        command.arg(format!("--init-file={}", inside("init.sql")));
        // Where tests put certificates for it.
        command.arg(format!("--secure-file-priv={}", inside("files")));
        command.arg(format!("--port={port}"));
        command.args(["--bind-address=127.0.0.1", "--mysqlx=OFF", "--max-connections=400"]);
        // Relative to the data, as MariaDB's.
        command.args(["--socket=mysql.sock", "--pid-file=mysql.pid"]);
        // Plans in the words that MariaDB has too.
        command.arg("--explain-json-format-version=1");
        // No test takes its power away; those that do have servers of their own.
        command.args(["--disable-log-bin", "--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"]);
        command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M"]);
        command.arg("--innodb-redo-log-capacity=512M");
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "mysqld", argument: self.data_argument(room) }
    }

    /// It greets whoever connects, once it has read its users.
    fn answers(&self, port: u16) -> bool {
        const PATIENCE: Duration = Duration::from_secs(2);
        let greeting = || -> std::io::Result<u8> {
            let mut stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut begin = [0; 5];
            stream.read_exact(&mut begin)?;
            Ok(begin[4])
        };
        // The version of its protocol; an error would begin with another byte.
        greeting().is_ok_and(|version| version == 10)
    }

    /// Without TLS, so that tests are quick and log in by RSA. Those of TLS say so.
    fn address(&self, port: u16) -> String {
        format!("mysql://{USER}:{PASSWORD}@127.0.0.1:{port}/backstop?ssl-mode=disabled")
    }
}

impl OracleMysql {
    fn data_argument(&self, room: &Room) -> String {
        format!("--datadir={}", self.newer.inside(&room.data()).display())
    }
}
