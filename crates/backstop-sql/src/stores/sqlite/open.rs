//! Opening a SQLite file with the settings that an outbox wants.

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::Error;

/// SQLite has one writer; more connections only let more readers in.
const CONNECTIONS: u32 = 4;

/// Opens a database file, and creates it if there is none.
///
/// Write-ahead logging, so that readers and the writer do not wait for each other; a sync at each commit, so that
/// what was delivered survives a power cut; five seconds of patience for the write lock; four connections.
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
pub(crate) async fn open_url(url: &str) -> Result<SqlitePool, Error> {
    open_sized(url, CONNECTIONS).await
}

/// Opens the file that a URL names, such as `sqlite:orders.db`, as [`open`] does, with at most so many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<SqlitePool, Error> {
    let options: SqliteConnectOptions = url.parse().map_err(Error::Url)?;
    // As with a path, unless the URL says what it wants.
    let options = if url.contains("mode=") { options } else { options.create_if_missing(true) };
    connect(options, connections).await
}

async fn connect(options: SqliteConnectOptions, connections: u32) -> Result<SqlitePool, Error> {
    let path = options.get_filename().to_owned();
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
