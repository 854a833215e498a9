//! Redis, in memory only.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::install::Installer;
use super::port::local;
use super::process::Identity;
use super::room::Room;
use super::server::Kind;
use crate::program;

const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Redis;

impl Kind for Redis {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        if program::find("redis-server").is_none() {
            installer.install(&["redis-server"])?;
        }
        room.make_own(&room.data())
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let mut command =
            Command::new(program::find("redis-server").context("Redis is gone; install `redis-server`")?);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        // Its arguments stay readable: they are how we know it again.
        command.args(["--set-proc-title", "no", "--dir"]).arg(room.data());
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "redis-server", argument: room.data().display().to_string() }
    }

    fn answers(&self, port: u16) -> bool {
        ping(port).is_ok_and(|answer| answer == *b"+PONG")
    }

    fn address(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }
}

fn ping(port: u16) -> std::io::Result<[u8; 5]> {
    let mut stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
