//! `cargo xtask services`: private servers for tests, on loopback ports, with their data under `target/services`.

mod account;
mod env_file;
mod install;
mod kafka;
mod kafka_jars;
mod kafka_probe;
mod mysql;
mod name;
mod newer;
mod newer_postgres;
mod oracle_mysql;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod readers;
mod room;
mod server;

use std::net::{TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

pub(crate) use env_file::EnvFile;
use install::Installer;
use name::Name;
use newer::Newer;
use server::{Server, Started, State};

use crate::say::say;
use crate::workspace::Workspace;

/// What to do with the servers.
#[derive(Subcommand)]
pub(crate) enum Action {
    /// Start all of them, installing what is missing; quick when they run already
    Up {
        /// Fail if one of them cannot be had, in place of going on without it
        #[arg(long)]
        require_all: bool,
    },
    /// Stop all that run; their data stays
    Down,
    /// Show what runs, where, and what does not
    Status,
    /// Print the addresses as `export` lines: eval "$(cargo xtask services env)"
    Env,
    /// Start one server
    Start { name: Name },
    /// Stop one server cleanly; its port and data stay
    Stop { name: Name },
    /// Stop and start one server, on the same port
    Restart { name: Name },
    /// Freeze one server (SIGSTOP): connections stay open, nothing answers
    Pause { name: Name },
    /// Let a paused server go on (SIGCONT)
    Resume { name: Name },
}

pub(crate) fn run(workspace: &Workspace, action: &Action) -> Result<()> {
    match *action {
        Action::Up { require_all } => up(workspace, require_all),
        Action::Down => down(workspace),
        Action::Status => status(workspace),
        Action::Env => env(workspace),
        Action::Start { name } => start(workspace, name),
        Action::Stop { name } => stop(&own(workspace, name)?),
        Action::Restart { name } => {
            stop(&own(workspace, name)?)?;
            start(workspace, name)
        }
        Action::Pause { name } => own(workspace, name)?.pause().map(|()| say!("{name:<14} paused")),
        Action::Resume { name } => own(workspace, name)?.resume().map(|()| say!("{name:<14} resumed")),
    }
}

/// Starts everything at once. A server that cannot be had does not keep the others from coming up.
pub(crate) fn up(workspace: &Workspace, require_all: bool) -> Result<()> {
    let installer = Installer::new(workspace);
    if Name::all().any(|name| name.is_newer() && name.given().is_none()) {
        Newer::of(workspace).hurry(&installer);
    }
    let addresses = for_each(|name| (name, bring_up(workspace, name, &installer)));
    let mut file = EnvFile::empty(workspace);
    let mut missing = Vec::new();
    for (name, address) in addresses {
        match address {
            Ok(address) => file.set(name.variable(), &address),
            Err(error) => {
                let why = format!("{error:#}");
                say!("unavailable: {name}: {why}");
                Server::open(workspace, name)?.room.mark_unavailable(Some(&why))?;
                missing.push(name.as_str());
            }
        }
    }
    match readers::bring_up(workspace, &installer) {
        Ok((variable, python)) => file.set(variable, &python),
        Err(error) => {
            say!("unavailable: readers: {error:#}");
            missing.push("readers");
        }
    }
    file.save()?;
    if require_all && !missing.is_empty() {
        bail!("{} could not be started; the reasons are above", missing.join(", "));
    }
    Ok(())
}

/// A server on which the tests of another one run again.
pub(crate) struct Other {
    pub(crate) label: &'static str,
    /// Which tests: those whose names have this in them.
    pub(crate) tests: &'static str,
    /// The variable that names the usual server.
    pub(crate) in_place_of: &'static str,
    /// Where it is, or why it is not there.
    pub(crate) address: std::result::Result<String, String>,
}

/// The servers that people have beside those of Debian's stable release.
pub(crate) fn others(workspace: &Workspace) -> Result<Vec<Other>> {
    let known = [
        (Name::OracleMysql, "Oracle's MySQL", "::mysql", Name::Mysql),
        (Name::NewerPostgres, "PostgreSQL 18", "::postgres", Name::Postgres),
    ];
    let file = EnvFile::load(workspace);
    let other = |(name, label, tests, usual): (Name, _, _, Name)| {
        let address = name.given().or_else(|| file.get(name.variable()));
        let why = || -> Result<String> {
            let why = Server::open(workspace, name)?.room.unavailable();
            Ok(why.unwrap_or_else(|| format!("{} is not set and no services were started", name.variable())))
        };
        let address = match address {
            Some(address) => Ok(address),
            None => Err(why()?),
        };
        Ok(Other { label, tests, in_place_of: usual.variable(), address })
    };
    known.into_iter().map(other).collect()
}

pub(crate) fn down(workspace: &Workspace) -> Result<()> {
    let outcomes = for_each(|name| stop(&Server::open(workspace, name)?));
    EnvFile::empty(workspace).remove();
    outcomes.into_iter().collect()
}

/// Works on the rows of servers side by side, on each row in its order; returns what came of it, in that order.
fn for_each<T: Send>(work: impl Fn(Name) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads = Name::ROWS.map(|row| {
            let work = &work;
            scope.spawn(move || row.iter().map(|name| work(*name)).collect::<Vec<_>>())
        });
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    })
}

/// Makes one server answer and returns its address.
fn bring_up(workspace: &Workspace, name: Name, installer: &Installer) -> Result<String> {
    let begun = Instant::now();
    let server = Server::open(workspace, name)?;
    if let Some(given) = server.given_by_others() {
        let silence = if accepts(&given) { "" } else { ", where nothing answers now" };
        say!("{name:<14} given by {}{silence}", name.variable());
        server.room.mark_unavailable(None)?;
        return Ok(given);
    }
    let started = match server.start(installer)? {
        Started::Already => "runs already",
        Started::Resumed => "was paused, resumed",
        Started::Now => "started",
    };
    let address = server.address().context("it has no port; try again")?;
    server.room.mark_unavailable(None)?;
    say!("{name:<14} {started} ({:.2} s): {address}", begun.elapsed().as_secs_f32());
    Ok(address)
}

fn start(workspace: &Workspace, name: Name) -> Result<()> {
    own(workspace, name)?;
    let address = bring_up(workspace, name, &Installer::new(workspace))
        .with_context(|| format!("cannot start {name}"))?;
    let mut file = EnvFile::load(workspace);
    file.set(name.variable(), &address);
    file.save()
}

fn stop(server: &Server) -> Result<()> {
    let begun = Instant::now();
    let name = server.room.name;
    if server.stop().with_context(|| format!("cannot stop {name}"))? {
        say!("{name:<14} stopped ({:.2} s)", begun.elapsed().as_secs_f32());
    } else {
        say!("{name:<14} did not run");
    }
    Ok(())
}

fn env(workspace: &Workspace) -> Result<()> {
    let exports = EnvFile::load(workspace).exports();
    if exports.is_empty() {
        bail!("no server is up; run `cargo xtask services up` first");
    }
    say!("{}", exports.trim_end());
    Ok(())
}

fn status(workspace: &Workspace) -> Result<()> {
    for name in Name::all() {
        let server = Server::open(workspace, name)?;
        let address = server.address().unwrap_or_default();
        if let Some(given) = server.given_by_others() {
            let answer = if accepts(&given) { "answers" } else { "does not answer" };
            say!("{name:<14} given by {}, {answer}", name.variable());
            continue;
        }
        match server.state() {
            State::Up(process) => say!("{name:<14} up      {address} (pid {})", process.pid),
            State::Paused(process) => say!("{name:<14} paused  {address} (pid {})", process.pid),
            State::Silent(process) => say!("{name:<14} silent  {address} (pid {})", process.pid),
            State::Stopped => {
                let why = server.room.unavailable();
                say!("{name:<14} {}", why.map_or("stopped".to_owned(), |why| format!("unavailable: {why}")));
            }
        }
    }
    Ok(())
}

/// The server, if it is ours to start and stop.
fn own(workspace: &Workspace, name: Name) -> Result<Server> {
    let server = Server::open(workspace, name)?;
    if server.given_by_others().is_some() {
        bail!(
            "{name} is given by {0}, so it is not started, stopped or changed here; unset {0} first",
            name.variable()
        );
    }
    Ok(server)
}

/// Whether anything accepts connections at an address such as `postgres://user@host:1234/name`.
fn accepts(address: &str) -> bool {
    let dial = |host: &str| {
        let found = host
            .to_socket_addrs()
            .ok()?
            .find(|at| TcpStream::connect_timeout(at, Duration::from_secs(2)).is_ok());
        found.map(drop)
    };
    host_of(address).and_then(dial).is_some()
}

fn host_of(address: &str) -> Option<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split(['/', '?', ',']).next()?;
    Some(host.rsplit_once('@').map_or(host, |(_, host)| host)).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_every_kind_of_address() {
        assert_eq!(host_of("postgres://postgres@127.0.0.1:5432/postgres?x=1"), Some("127.0.0.1:5432"));
        assert_eq!(host_of("mysql://u:p@db:3306"), Some("db:3306"));
        assert_eq!(host_of("one:9092,two:9092"), Some("one:9092"));
        assert_eq!(host_of("sqlite:///x"), None);
    }
}
