//! A whole MariaDB server for one test, to be stopped and started again with other options.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::{Connection as _, MySqlConnection};
use tokio::time::{Instant, sleep};

use super::guarded::{Guarded, PATIENCE, free_port};
use super::{Directory, account, directory};
use crate::skip;

/// A MariaDB server of the test's own, on a free port of the loopback address. It ends with this value, and its data goes
/// with it.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(mut server) = backstop_testkit::servers::private_mysql().await else { return };
/// server.set_options(["--read-only".to_owned()]);
/// server.restart().await; // it comes back read-only
/// # });
/// ```
#[derive(Debug)]
pub struct PrivateMysql {
    home: Directory,
    /// The user that the server runs as, where it must not run as the test's.
    account: Option<(u32, u32)>,
    port: u16,
    options: Vec<String>,
    running: Option<Guarded>,
}

/// Starts a server; `None` where MariaDB is not installed or cannot be started, and then the test is marked as
/// [skipped](crate::skip()).
pub async fn private_mysql() -> Option<PrivateMysql> {
    let started = match PrivateMysql::prepare() {
        Ok(mut server) => server.try_start().await.map(|()| server),
        Err(error) => Err(error),
    };
    started.inspect_err(|why| skip(format_args!("no MariaDB of the test's own: {why}"))).ok()
}

impl PrivateMysql {
    /// The address for a driver, as the administrator; it stays the same over restarts.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/mysql", self.port)
    }

    /// The address of a database for one of its users, who has no password.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// The options of the server, such as `--read-only`, from the next start on.
    pub fn set_options(&mut self, options: impl IntoIterator<Item = String>) {
        self.options = options.into_iter().collect();
    }

    /// Writes a file that the server alone may read, and tells where it is.
    ///
    /// # Panics
    ///
    /// If there is no room for it.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.file(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .and_then(|()| self.account.map_or(Ok(()), |(uid, gid)| chown(&path, Some(uid), Some(gid))));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    /// Stops the server as an administrator would, and starts it again.
    ///
    /// # Panics
    ///
    /// If it does not answer after that.
    pub async fn restart(&mut self) {
        if let Some(server) = self.running.take() {
            server.stop().await;
        }
        if let Err(why) = self.try_start().await {
            panic!("MariaDB did not start again: {why}");
        }
    }

    /// Everything up to the first start.
    fn prepare() -> Result<Self, String> {
        let account = account::of("mysql")?;
        let home = directory();
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let server = Self { home, account, port, options: Vec::new(), running: None };
        if let Some((uid, gid)) = account {
            chown(server.home.path(), Some(uid), Some(gid)).map_err(|error| error.to_string())?;
        }
        let mut install = server.command(Path::new("mariadb-install-db"));
        install.arg("--no-defaults").arg(server.data());
        install.args(["--skip-test-db", "--auth-root-authentication-method=normal"]);
        let made = install.output().map_err(|error| format!("mariadb-install-db: {error}"))?;
        if !made.status.success() {
            return Err(format!("mariadb-install-db: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        Ok(server)
    }

    async fn try_start(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|error| error.to_string())?;
        let again = log.try_clone().map_err(|error| error.to_string())?;
        let mut guard = Guarded::command(self.command(Path::new("sh")), "TERM", Path::new("mariadbd"));
        guard.arg("--no-defaults").arg(self.data()).arg(format!("--tmpdir={}", self.home.path().display()));
        // The socket's name is relative to the data: a full path would break the limit of 107 bytes in some folders.
        guard.args(["--bind-address=127.0.0.1", "--socket=mysql.sock"]).arg(format!("--port={}", self.port));
        guard.args(&self.options).stdout(log).stderr(again);
        self.running = Some(Guarded::spawn(guard, self.home.path()).map_err(|error| error.to_string())?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match MySqlConnection::connect(&self.url()).await {
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

    fn data(&self) -> String {
        format!("--datadir={}", self.home.file("data").display())
    }

    fn log(&self) -> PathBuf {
        self.home.file("log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_comes_back_with_its_data_and_with_other_options() {
        let Some(mut server) = private_mysql().await else { return };
        let mut before = MySqlConnection::connect(&server.url()).await.unwrap();
        for statement in ["CREATE DATABASE shop", "CREATE TABLE shop.kept (a INT)"] {
            sqlx::raw_sql(statement).execute(&mut before).await.unwrap();
        }
        server.set_options(["--read-only".to_owned()]);
        server.restart().await;
        let mut again = MySqlConnection::connect(&server.url()).await.unwrap();
        let found: (bool, i64) =
            sqlx::query_as("SELECT @@global.read_only, (SELECT count(*) FROM shop.kept)")
                .fetch_one(&mut again)
                .await
                .unwrap();
        assert_eq!(found, (true, 0));
    }
}
