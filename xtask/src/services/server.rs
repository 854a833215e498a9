//! The life of a server: started, waited for, paused, resumed and stopped, the same way for all of them.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::account;
use super::install::Installer;
use super::name::Name;
use super::newer::Newer;
use super::process::{Identity, Process};
use super::room::Room;
use super::{kafka, mysql, newer_postgres, oracle_mysql, pgbouncer, postgres};
use crate::program;
use crate::say::say;
use crate::workspace::{Workspace, read};

/// A server that is up answers within this time, however busy the machine.
const PATIENCE_TO_START: Duration = Duration::from_mins(2);
const PATIENCE_TO_STOP: Duration = Duration::from_secs(30);

/// What differs from server to server.
pub(super) trait Kind {
    /// Installs what is missing, and makes the first data if there is none.
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()>;
    /// The server as a program that stays in the foreground.
    fn command(&self, room: &Room, port: u16) -> Result<Command>;
    /// How the running server is told from all other processes.
    fn identity(&self, room: &Room) -> Identity;
    /// Whether a server that runs was started with settings that are wrong by now.
    fn is_outdated(&self, _room: &Room, _port: u16) -> bool {
        false
    }
    /// Whether it does its work now; asked often, so it answers soon.
    fn answers(&self, port: u16) -> bool;
    /// The address that tests are given.
    fn address(&self, port: u16) -> String;
    /// The signal that asks for a clean end.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }
}

/// One of the servers, in its room.
pub(super) struct Server {
    pub(super) room: Room,
    kind: Box<dyn Kind>,
}

/// What `start` found.
pub(super) enum Started {
    Already,
    Resumed,
    Now,
}

/// What a server does at this moment.
pub(super) enum State {
    Up(Process),
    Paused(Process),
    Silent(Process),
    Stopped,
}

impl Server {
    pub(super) fn open(workspace: &Workspace, name: Name) -> Result<Self> {
        let kind: Box<dyn Kind> = match name {
            Name::Postgres => Box::new(postgres::Postgres),
            Name::Pgbouncer => {
                Box::new(pgbouncer::Pgbouncer { postgres: Self::open(workspace, Name::Postgres)? })
            }
            Name::Mysql => Box::new(mysql::Mysql),
            Name::OracleMysql => Box::new(oracle_mysql::OracleMysql { newer: Newer::of(workspace) }),
            Name::NewerPostgres => Box::new(newer_postgres::NewerPostgres { newer: Newer::of(workspace) }),
            Name::Kafka => Box::new(kafka::Kafka),
        };
        Ok(Self { room: Room::open(workspace, name)?, kind })
    }

    /// The address of our own server, once it has a port.
    pub(super) fn address(&self) -> Option<String> {
        self.room.port().map(|port| self.kind.address(port))
    }

    /// The address of a server that someone else has set up. Our own address, handed down to a child or taken
    /// over with `services env`, does not make ours a stranger.
    pub(super) fn given_by_others(&self) -> Option<String> {
        self.room.name.given().filter(|given| self.address().as_ref() != Some(given))
    }

    pub(super) fn state(&self) -> State {
        match (self.find(), self.room.port()) {
            (Some(process), _) if process.is_paused() => State::Paused(process),
            (Some(process), Some(port)) if self.kind.answers(port) => State::Up(process),
            (Some(process), _) => State::Silent(process),
            (None, _) => State::Stopped,
        }
    }

    /// Makes sure that the server runs and answers.
    pub(super) fn start(&self, installer: &Installer) -> Result<Started> {
        let _lock = self.room.lock()?;
        let running = self.find().zip(self.room.port());
        if let Some((process, port)) = running.filter(|(_, port)| !self.kind.is_outdated(&self.room, *port)) {
            let paused = process.is_paused();
            if paused {
                process.resume()?;
            }
            self.wait_for_answer(process, port, None)?;
            return Ok(if paused { Started::Resumed } else { Started::Already });
        }
        if let Some(old) = self.orphan() {
            self.end(old)?;
        }
        self.kind.prepare(&self.room, installer)?;
        let port = self.room.take_port("port")?;
        let mut child = self.spawn(port)?;
        let process = Process { pid: child.id() };
        self.room.remember_pid(process.pid)?;
        self.wait_for_answer(process, port, Some(&mut child))?;
        Ok(Started::Now)
    }

    /// Ends the server cleanly; false if it did not run.
    pub(super) fn stop(&self) -> Result<bool> {
        let _lock = self.room.lock()?;
        let Some(process) = self.find().or_else(|| self.orphan()) else { return Ok(false) };
        self.end(process)?;
        self.room.forget_pid();
        Ok(true)
    }

    pub(super) fn pause(&self) -> Result<()> {
        self.running()?.pause()
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.running()?.resume()
    }

    /// The server we started last, if it still runs.
    fn find(&self) -> Option<Process> {
        self.kind.identity(&self.room).check(self.room.pid()?)
    }

    fn running(&self) -> Result<Process> {
        let name = self.room.name;
        self.find().with_context(|| {
            format!("{name} is not running; start it with `cargo xtask services start {name}`")
        })
    }

    /// A server of ours that runs, also if its pid file is gone: `cargo clean` took its data from under it.
    fn orphan(&self) -> Option<Process> {
        self.kind.identity(&self.room).search()
    }

    fn end(&self, process: Process) -> Result<()> {
        let identity = self.kind.identity(&self.room);
        // A paused process would not hear the signal.
        process.resume()?;
        process.signal(self.kind.stop_signal())?;
        if !process.wait_gone(&identity, PATIENCE_TO_STOP) {
            say!("{:<14} did not end within {} s and is killed", self.room.name, PATIENCE_TO_STOP.as_secs());
            process.kill()?;
            process.wait_gone(&identity, PATIENCE_TO_STOP);
        }
        Ok(())
    }

    /// Starts the server so that it outlives this program and does not hear the terminal's Ctrl-C.
    fn spawn(&self, port: u16) -> Result<Child> {
        let mut command = without_our_files(&self.kind.command(&self.room, port)?);
        let log = self.room.fresh_log()?;
        let errors = log.try_clone().context("cannot share the log file; raise the limit of open files")?;
        command.current_dir(&self.room.home).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        account::run_as(&mut command, self.room.name)?;
        command.spawn().context("cannot start it; check that bash is installed")
    }

    fn wait_for_answer(&self, process: Process, port: u16, mut child: Option<&mut Child>) -> Result<()> {
        let identity = self.kind.identity(&self.room);
        let begun = Instant::now();
        while !self.kind.answers(port) {
            let ended = match child.as_deref_mut() {
                Some(child) => child.try_wait().context("cannot watch the server; try again")?.is_some(),
                None => identity.check(process.pid).is_none(),
            };
            if ended {
                self.room.forget_pid();
                bail!("it ended while starting: {}", self.last_log_line());
            }
            if begun.elapsed() > PATIENCE_TO_START {
                bail!("it runs but does not answer on port {port}: {}", self.last_log_line());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn last_log_line(&self) -> String {
        let log = self.room.log();
        let said = reason(&read(&log).unwrap_or_default());
        format!("{said} (log: {}; removing {} starts afresh)", log.display(), self.room.home.display())
    }
}

/// The same program, started without the files that whoever started us has open: a server would keep their locks for as
/// long as it runs.
fn without_our_files(command: &Command) -> Command {
    const CLOSING: &str = r#"for file in /proc/$$/fd/*; do
    number=${file##*/}
    if [ "$number" -gt 2 ]; then eval "exec $number>&-"; fi
done
exec "$@""#;
    let mut clean = Command::new("bash");
    clean.args(["-c", CLOSING, "bash"]).arg(command.get_program()).args(command.get_args());
    clean.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    clean
}

/// The line of a log that most likely tells why a server ended.
fn reason(log: &str) -> String {
    let serious = |line: &&str| ["FATAL", "ERROR"].iter().any(|mark| line.contains(mark));
    let told = log.lines().rev().find(serious).map(|line| line.trim().to_owned());
    told.or_else(|| program::last_line(log)).unwrap_or_else(|| "it said nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_no_file_of_whoever_started_it() {
        let mut list = Command::new("sh");
        let clean = without_our_files(list.args(["-c", "ls /proc/$$/fd"]));
        // A shell that holds a file open, as `flock` does.
        let mut holding = Command::new("bash");
        holding.args(["-c", r#"exec 9>/dev/null 200>/dev/null; exec "$@""#, "bash"]);
        holding.arg(clean.get_program()).args(clean.get_args());
        let said = program::run(&mut holding).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&said.stdout).split_whitespace().collect::<Vec<_>>(),
            ["0", "1", "2"]
        );
    }

    #[test]
    fn the_reason_is_the_last_serious_line_or_else_the_last_one() {
        assert_eq!(reason("LOG: x\nFATAL: lock file exists\nHINT: is it?\n"), "FATAL: lock file exists");
        assert_eq!(reason("one\ntwo\n\n"), "two");
        assert_eq!(reason(""), "it said nothing");
    }
}
