//! `PgBouncer` in front of PostgreSQL, pooling by transaction as hosted databases do.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::account;
use super::install::Installer;
use super::name::Name;
use super::port::local;
use super::process::Identity;
use super::room::Room;
use super::server::{Kind, Server};
use crate::program;
use crate::workspace::{read, write};

const PATIENCE: Duration = Duration::from_secs(2);

/// The message with which a login is granted.
const LET_IN: &[u8; 9] = b"R\0\0\0\x08\0\0\0\0";

pub(super) struct Pgbouncer {
    pub(super) postgres: Server,
}

impl Kind for Pgbouncer {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        if program::find("pgbouncer").is_none() {
            installer.install(&["pgbouncer"])?;
        }
        room.make_own(&room.data())
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let file = settings_file(room);
        write(&file, self.settings(port)?)?;
        account::give(&file, Name::Pgbouncer)?;
        let mut command =
            Command::new(program::find("pgbouncer").context("PgBouncer is gone; install `pgbouncer`")?);
        command.arg(file);
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "pgbouncer", argument: settings_file(room).display().to_string() }
    }

    /// PostgreSQL may have moved to another port, or the user may have named another one.
    fn is_outdated(&self, room: &Room, port: u16) -> bool {
        match (self.settings(port), read(&settings_file(room))) {
            (Ok(wanted), Ok(present)) => wanted != present,
            _ => true,
        }
    }

    fn answers(&self, port: u16) -> bool {
        log_in(port).is_ok_and(|answer| answer == *LET_IN)
    }

    fn address(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }

    /// Ends at once in every version; from 1.23 on, TERM would wait until the last client has left.
    fn stop_signal(&self) -> &'static str {
        "QUIT"
    }
}

impl Pgbouncer {
    fn settings(&self, port: u16) -> Result<String> {
        let address = self.postgres.given_by_others().or_else(|| self.postgres.address());
        let address = address.context("the PostgreSQL server behind it has no address; start that first")?;
        let target = Target::parse(&address).with_context(|| {
            format!(
                "it cannot be put in front of the server in {}; write that as \
                 postgres://user:password@host:port/name, with nothing escaped",
                Name::Postgres.variable()
            )
        })?;
        Ok(settings(port, &target))
    }
}

fn settings_file(room: &Room) -> PathBuf {
    room.data().join("pgbouncer.ini")
}

/// Knocks at its console, which needs no PostgreSQL, and returns how it answers.
fn log_in(port: u16) -> std::io::Result<[u8; 9]> {
    let mut stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The length of the message, the protocol's version 3.0, and the parameters.
    stream.write_all(b"\0\0\0\x2a\0\x03\0\0user\0postgres\0database\0pgbouncer\0\0")?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// The PostgreSQL server behind.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    user: String,
    password: Option<String>,
}

impl Target {
    /// Reads `postgres://user:password@host:port/name`; what follows the host is not needed.
    fn parse(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (login, host) = rest.split(['/', '?']).next()?.rsplit_once('@')?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = host.rsplit_once(':').unwrap_or((host, "5432"));
        // Escaped characters, and IPv6 with its brackets, are more than tests have asked for.
        let plain = |text: &str| {
            (!text.is_empty() && !text.contains(['%', '\'', '[', '\n'])).then(|| text.to_owned())
        };
        let password = if password.is_empty() { None } else { Some(plain(password)?) };
        Some(Self { host: plain(host)?, port: port.parse().ok()?, user: plain(user)?, password })
    }
}

/// Few server connections, so that clients really share them. They are let go soon, for every test brings a
/// database of its own, and after a restart of PostgreSQL the next try is not far.
///
/// Any client may come in, and all of them are the user that the address of PostgreSQL names. Drivers state how
/// they want floats shown before anything else, which would be refused if it were not ignored.
fn settings(port: u16, target: &Target) -> String {
    let Target { host, port: target_port, user, password } = target;
    // An empty password would be a syntax error.
    let password = password.as_ref().map(|password| format!(" password='{password}'")).unwrap_or_default();
    format!(
        "\
[databases]
* = host='{host}' port={target_port} user='{user}'{password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 400
default_pool_size = 5
server_idle_timeout = 30
server_login_retry = 0.2
server_tls_sslmode = prefer
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
log_stats = 0
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str, port: u16, user: &str, password: Option<&str>) -> Target {
        let [host, user] = [host, user].map(str::to_owned);
        Target { host, port, user, password: password.map(str::to_owned) }
    }

    #[test]
    fn the_server_behind_is_read_from_its_address() {
        let ours = Target::parse("postgres://u@127.0.0.1:15000/postgres");
        assert_eq!(ours, Some(target("127.0.0.1", 15_000, "u", None)));
        let given = Target::parse("postgresql://u:p@s:w@db?sslmode=disable");
        assert_eq!(given, Some(target("db", 5432, "u", Some("p@s:w"))));
    }

    #[test]
    fn an_address_that_would_be_misread_is_refused() {
        for end in
            ["db/shop", "u:a%40b@db/shop", "u:a'b@db/shop", "u@[::1]:5432/shop", "u@/shop", "u@db:x/shop"]
        {
            assert_eq!(Target::parse(&format!("postgres://{end}")), None, "{end}");
        }
        assert_eq!(Target::parse("db:5432"), None);
    }

    #[test]
    fn it_pools_by_transaction_in_front_of_that_server() {
        let text = settings(15_001, &target("db", 15_000, "u", None));
        for line in [
            "* = host='db' port=15000 user='u'",
            "listen_addr = 127.0.0.1",
            "listen_port = 15001",
            "pool_mode = transaction",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
        }
        let text = settings(15_001, &target("db", 15_000, "u", Some("secret")));
        assert!(text.contains("user='u' password='secret'\n"), "{text}");
    }
}
