//! Opening a PostgreSQL database with the settings that an outbox wants.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::Error;

/// Opens the database of a URL: `postgres://user:password@host:5432/database`.
///
/// At most ten connections, ten seconds of patience for one of them, sessions in UTC, and the name
/// `backstop` in `pg_stat_activity` unless the URL gives another.
///
/// ```no_run
/// # async fn example() -> Result<(), backstop_sql::Error> {
/// let pool = backstop_sql::postgres::open("postgres://shop@db.example/orders").await?;
/// # Ok(()) }
/// ```
pub async fn open(url: &str) -> Result<PgPool, Error> {
    open_sized(url, 10).await
}

/// [`open`] with at most so many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<PgPool, Error> {
    let mut options: PgConnectOptions = url.parse().map_err(Error::Url)?;
    if options.get_application_name().is_none() {
        options = options.application_name("backstop");
    }
    let database = options.get_database().unwrap_or(options.get_username());
    let server = format!("PostgreSQL at {}:{}, database {database}", options.get_host(), options.get_port());
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(10))
        .connect_with(options)
        .await
        .map_err(|source| Error::Connect { server, source })
}
