//! Opening a SQLite file with the settings that an outbox wants.

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::stores::url::{Form, Takes};
use crate::{Error, SettingFault, Tls};

/// SQLite has one writer; more connections only let more readers in.
const CONNECTIONS: u32 = 4;

/// Opens a database file, and creates it if there is none.
///
/// Write-ahead logging, so that readers and the writer do not wait for each other; a sync at each commit, so that a
/// commit whose event was delivered survives a power cut; a wait of at most five seconds for the write lock; four
/// connections.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let path = directory.path().join("orders.db");
/// let pool = backstop_sql::sqlite::open(&path).await?;
/// # pool.close().await;
/// # Ok::<(), backstop_sql::Error>(()) }).unwrap();
/// ```
pub async fn open(path: impl AsRef<Path>) -> Result<SqlitePool, Error> {
    connect(SqliteConnectOptions::new().filename(&path).create_if_missing(true), CONNECTIONS).await
}

/// Opens the file that a URL names.
pub(crate) async fn open_url(url: &str, tls: &Tls) -> Result<SqlitePool, Error> {
    open_with(url, CONNECTIONS, tls).await
}

/// Opens the file that a URL names, such as `sqlite:orders.db`, as [`open`] does, with at most this many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<SqlitePool, Error> {
    open_with(url, connections, &Tls::default()).await
}

/// [`open_sized`], and the same settings as for servers: none of them may be given.
pub async fn open_with(url: &str, connections: u32, tls: &Tls) -> Result<SqlitePool, Error> {
    connect(options(url, tls)?, connections).await
}

/// How the file of a URL is opened.
pub(crate) fn options(url: &str, tls: &Tls) -> Result<SqliteConnectOptions, Error> {
    FORM.check(url)?;
    if *tls != Tls::default() {
        let rule = "is for database servers, and SQLite is a file".to_owned();
        return Err(Error::Settings { faults: vec![SettingFault { group: String::new(), setting: "tls", rule }] });
    }
    let options: SqliteConnectOptions = url.parse().map_err(|_| FORM.unreadable())?;
    // As with a path, unless the URL says what it wants.
    let says =
        url.split_once('?').is_some_and(|(_, query)| query.split('&').any(|it| it.starts_with("mode=")));
    Ok(if says { options } else { options.create_if_missing(true) })
}

/// The driver quotes parameters that it does not understand.
const FORM: Form = Form {
    example: "sqlite:orders.db",
    names_server: false,
    parameters: &[
        ("mode", Takes::OneOf(&["ro", "rw", "rwc", "memory"])),
        ("cache", Takes::OneOf(&["private", "shared"])),
        ("immutable", Takes::OneOf(&["true", "1", "false", "0"])),
        ("vfs", Takes::OneOf(&["unix", "unix-dotfile", "unix-excl", "unix-none"])),
    ],
};

async fn connect(options: SqliteConnectOptions, connections: u32) -> Result<SqlitePool, Error> {
    let path = options.get_filename().to_owned();
    // SQLite would wait at a pipe for ever.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let source = sqlx::Error::Io(std::io::Error::other("it is not a regular file"));
        return Err(Error::Open { path, source });
    }
    let options = options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5));
    SqlitePoolOptions::new()
        .max_connections(connections)
        .connect_with(options)
        .await
        .map_err(|source| Error::Open { path, source })
}
