//! Opening a MySQL or MariaDB database with the settings that an outbox wants.

use std::time::Duration;

use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::Error;

/// Opens the database of a URL: `mysql://user:password@host:3306/database`.
///
/// At most ten connections, ten seconds of patience for one of them, sessions in UTC and in `utf8mb4`.
///
/// ```no_run
/// # async fn example() -> Result<(), backstop_sql::Error> {
/// let pool = backstop_sql::mysql::open("mysql://shop@db.example/orders").await?;
/// # Ok(()) }
/// ```
pub async fn open(url: &str) -> Result<MySqlPool, Error> {
    open_sized(url, 10).await
}

/// [`open`] with at most so many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<MySqlPool, Error> {
    let options: MySqlConnectOptions = url.parse().map_err(Error::Url)?;
    let options = options.timezone(String::from("+00:00")).charset("utf8mb4");
    let database = options.get_database().unwrap_or_default();
    let server = format!("MySQL at {}:{}, database {database}", options.get_host(), options.get_port());
    MySqlPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(10))
        .connect_with(options)
        .await
        .map_err(|source| Error::Connect { server, source })
}
