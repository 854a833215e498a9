//! A whole PostgreSQL server for one test, to be stopped, killed and started again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[cfg(feature = "tls")]
use sqlx::{AssertSqlSafe, raw_sql};
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use super::guarded::{Guarded, PATIENCE, free_port};
use super::{Directory, account, directory};
use crate::skip;
#[cfg(feature = "tls")]
use crate::{
    certificates::{Authority, Certified},
    eventually,
};

/// A PostgreSQL server of the test's own, on a free port of the loopback address, with a server's defaults:
/// what it has committed survives it. It ends with this value, and its data goes with it.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(mut server) = backstop_testkit::servers::private_postgres().await else { return };
/// let url = server.url();
/// server.restart().await; // connected clients notice it
/// # });
/// ```
#[derive(Debug)]
pub struct PrivatePostgres {
    home: Directory,
    programs: PathBuf,
    /// The user that the server runs as, where it must not run as the test's.
    account: Option<(u32, u32)>,
    port: u16,
    environment: Vec<(String, OsString)>,
    running: Option<Guarded>,
}

/// Starts a server; `None` where PostgreSQL is not installed or cannot be started, and then the test is marked
/// as [skipped](crate::skip()).
pub async fn private_postgres() -> Option<PrivatePostgres> {
    let started = match PrivatePostgres::prepare() {
        Ok(mut server) => server.try_start().await.map(|()| server),
        Err(error) => Err(error),
    };
    started.inspect_err(|why| skip(format_args!("no PostgreSQL of the test's own: {why}"))).ok()
}

impl PrivatePostgres {
    /// The address for a driver, which stays the same over restarts.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Sets a variable of the server's environment, from the next start on.
    pub fn set_environment(&mut self, name: impl Into<String>, value: impl Into<OsString>) {
        self.environment.push((name.into(), value.into()));
    }

    /// Switches TLS on: from now on the server shows this certificate, and clients' certificates are checked by the
    /// authority's.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[cfg(feature = "tls")]
    pub async fn encrypt(&self, authority: &Authority, shown: &Certified) {
        let files = [
            ("ssl_cert_file", self.write("server.crt", &shown.certificate)),
            ("ssl_key_file", self.write("server.key", &shown.key)),
            ("ssl_ca_file", self.write("ca.crt", &authority.pem())),
        ];
        let mut admin = PgConnection::connect(&self.url()).await.expect("a server that runs");
        for (setting, file) in files {
            let set = format!("ALTER SYSTEM SET {setting} = '{}'", file.display());
            raw_sql(AssertSqlSafe(set)).execute(&mut admin).await.expect("a setting");
        }
        raw_sql("ALTER SYSTEM SET ssl = on").execute(&mut admin).await.expect("a setting");
        raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await.expect("a signal to itself");
        // It reads its settings a moment later.
        let has_tls = || async {
            let loaded = sqlx::query_scalar(
                "SELECT current_setting('ssl_cert_file') <> '' AND current_setting('ssl') = 'on'",
            );
            loaded.fetch_one(&mut PgConnection::connect(&self.url()).await?).await
        };
        eventually("PostgreSQL has TLS", async || has_tls().await.is_ok_and(|has: bool| has)).await;
    }

    /// Writes a file that the server alone may read, as it wants its keys to be, and tells where it is.
    ///
    /// # Panics
    ///
    /// If there is no room for it.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.file(name);
        let _ = fs::remove_file(&path);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .and_then(|()| self.account.map_or(Ok(()), |(uid, gid)| chown(&path, Some(uid), Some(gid))));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    /// Starts the server again, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn start(&mut self) {
        if let Err(why) = self.try_start().await {
            panic!("PostgreSQL did not start again: {why}");
        }
    }

    /// Stops the server as an administrator would: sessions are ended, what is committed is written.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn stop(&mut self) {
        if let Some(server) = self.running.take() {
            server.stop().await;
        }
    }

    /// Stops the server and starts it again.
    ///
    /// # Panics
    ///
    /// If it does not answer after that.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }

    /// Kills the server with SIGKILL. The next start has to recover what was committed.
    ///
    /// # Panics
    ///
    /// If it cannot be killed.
    pub async fn kill(&mut self) {
        let Some(server) = self.running.take() else { return };
        server.kill().await;
        // Its children need a moment to notice, and refuse a new server until then.
        let deadline = Instant::now() + PATIENCE;
        while somebody_works_in(&self.data()) {
            assert!(Instant::now() < deadline, "processes of the killed server do not end");
            sleep(Duration::from_millis(10)).await;
        }
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }

    /// Everything up to the first start.
    fn prepare() -> Result<Self, String> {
        let programs = programs().ok_or("it is not installed")?;
        let account = account::of("postgres")?;
        let home = directory();
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let server = Self { home, programs, account, port, environment: Vec::new(), running: None };
        if let Some((uid, gid)) = account {
            chown(server.home.path(), Some(uid), Some(gid)).map_err(|error| error.to_string())?;
        }
        let mut initdb = server.command(&server.programs.join("initdb"));
        initdb.arg("-D").arg(server.data());
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let made = initdb.output().map_err(|error| format!("initdb: {error}"))?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        Ok(server)
    }

    async fn try_start(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|error| error.to_string())?;
        let again = log.try_clone().map_err(|error| error.to_string())?;
        let mut guard =
            Guarded::command(self.command(Path::new("sh")), "INT", &self.programs.join("postgres"));
        guard.arg("-D").arg(self.data());
        // No Unix socket: its path would break the limit of 107 bytes in some temporary folders.
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories="] {
            guard.args(["-c", setting]);
        }
        guard.args(["-c", &format!("port={}", self.port)]);
        guard.envs(self.environment.iter().map(|(name, value)| (name, value)));
        guard.stdout(log).stderr(again);
        self.running = Some(Guarded::spawn(guard, self.home.path()).map_err(|error| error.to_string())?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match PgConnection::connect(&self.url()).await {
                Ok(connection) => return connection.close().await.map_err(|error| error.to_string()),
                Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
                Err(error) => {
                    let log = fs::read_to_string(self.log()).unwrap_or_default();
                    return Err(format!("{error}; its log:\n{log}"));
                }
            }
        }
    }

    /// A command as the server's user, in a folder that it may read.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.home.path()).stdin(Stdio::null());
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.home.file("data")
    }

    fn log(&self) -> PathBuf {
        self.home.file("log")
    }
}

/// The programs of the newest version here: in Debian's folders, or else on the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let versions = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    let newest = versions.filter(|(_, folder)| folder.join("initdb").is_file()).max();
    newest.map(|(_, folder)| folder).or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file())
    })
}

fn somebody_works_in(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok()).any(|cwd| cwd == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_committed_survives_a_restart_and_a_kill() {
        let Some(mut server) = private_postgres().await else { return };
        let mut before = PgConnection::connect(&server.url()).await.unwrap();
        sqlx::query("CREATE TABLE kept (a INT)").execute(&mut before).await.unwrap();
        server.restart().await;
        assert!(sqlx::query("SELECT 1").execute(&mut before).await.is_err(), "its session was ended");

        let mut again = PgConnection::connect(&server.url()).await.unwrap();
        sqlx::query("INSERT INTO kept VALUES (1)").execute(&mut again).await.unwrap();
        server.kill().await;
        assert!(PgConnection::connect(&server.url()).await.is_err(), "nobody answers");
        server.start().await;
        let mut last = PgConnection::connect(&server.url()).await.unwrap();
        let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM kept").fetch_one(&mut last).await.unwrap();
        assert_eq!(kept, 1);
    }
}
