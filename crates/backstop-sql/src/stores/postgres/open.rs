//! Opening a PostgreSQL database with the settings that an outbox wants.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::Error;
use crate::stores::url::{self, Form, Takes};

/// Opens the database of a URL: `postgres://user:password@host:5432/database`.
///
/// At most ten connections, a wait of at most ten seconds for one of them, sessions in UTC, and the name
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

pub(crate) use open as open_url;

/// [`open`] with at most this many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<PgPool, Error> {
    let options = options(url)?;
    let database = options.get_database().unwrap_or(options.get_username());
    let server = format!("PostgreSQL at {}:{}, database {database}", options.get_host(), options.get_port());
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(10));
    url::connect(pool, options, server).await
}

/// How the database of a URL is reached.
pub(crate) fn options(url: &str) -> Result<PgConnectOptions, Error> {
    FORM.check(url)?;
    // The driver reads these by itself, as PostgreSQL's own programs do.
    FORM.check_environment(&["PGPASSFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "SSL_CERT_FILE"])?;
    let options: PgConnectOptions = url.parse().map_err(|_| FORM.unreadable())?;
    let named = options.get_application_name().is_some();
    Ok(if named { options } else { options.application_name("backstop") })
}

/// The driver logs parameters that it does not know, with their values.
const FORM: Form = Form {
    example: "postgres://user:password@host:5432/database",
    names_server: true,
    parameters: &[
        ("sslmode", SSL_MODE),
        ("ssl-mode", SSL_MODE),
        ("sslrootcert", Takes::File),
        ("ssl-root-cert", Takes::File),
        ("ssl-ca", Takes::File),
        ("sslcert", Takes::File),
        ("ssl-cert", Takes::File),
        ("sslkey", Takes::File),
        ("ssl-key", Takes::File),
        ("application_name", Takes::Anything),
        ("dbname", Takes::Anything),
        ("host", Takes::Anything),
        ("hostaddr", Takes::Anything),
        ("options", Takes::Anything),
        ("options[…]", Takes::Anything),
        ("password", Takes::Anything),
        ("port", Takes::Anything),
        ("statement-cache-capacity", Takes::Anything),
        ("user", Takes::Anything),
    ],
};

const SSL_MODE: Takes = Takes::OneOf(&["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]);
