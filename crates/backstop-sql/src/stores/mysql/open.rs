//! Opening a MySQL or MariaDB database with the settings that an outbox wants.

use std::time::Duration;

use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::Error;
use crate::stores::url::{self, Form, Takes};

/// Opens the database of a URL: `mysql://user:password@host:3306/database`.
///
/// At most ten connections, a wait of at most ten seconds for one of them, sessions in UTC and in `utf8mb4`.
///
/// ```no_run
/// # async fn example() -> Result<(), backstop_sql::Error> {
/// let pool = backstop_sql::mysql::open("mysql://shop@db.example/orders").await?;
/// # Ok(()) }
/// ```
pub async fn open(url: &str) -> Result<MySqlPool, Error> {
    open_sized(url, 10).await
}

pub(crate) use open as open_url;

/// [`open`] with at most this many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<MySqlPool, Error> {
    let options = options(url)?;
    let database = options.get_database().unwrap_or_default();
    let server = format!("MySQL at {}:{}, database {database}", options.get_host(), options.get_port());
    let pool = MySqlPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(10));
    url::connect(pool, options, server).await
}

/// How the database of a URL is reached.
pub(crate) fn options(url: &str) -> Result<MySqlConnectOptions, Error> {
    FORM.check(url)?;
    FORM.check_environment(&["SSL_CERT_FILE"])?;
    let options: MySqlConnectOptions = url.parse().map_err(|_| FORM.unreadable())?;
    Ok(options.timezone(String::from("+00:00")).charset("utf8mb4"))
}

/// The driver passes over parameters that it does not know, and with a slip in `ssl-mode` over its encryption.
const FORM: Form = Form {
    example: "mysql://user:password@host:3306/database",
    names_server: true,
    parameters: &[
        ("ssl-mode", SSL_MODE),
        ("sslmode", SSL_MODE),
        ("ssl-ca", Takes::File),
        ("sslca", Takes::File),
        ("ssl-cert", Takes::File),
        ("sslcert", Takes::File),
        ("ssl-key", Takes::File),
        ("sslkey", Takes::File),
        ("charset", Takes::Anything),
        ("collation", Takes::Anything),
        ("socket", Takes::Anything),
        ("statement-cache-capacity", Takes::Anything),
        ("time-zone", Takes::Anything),
        ("timezone", Takes::Anything),
    ],
};

const SSL_MODE: Takes = Takes::OneOf(&["disabled", "preferred", "required", "verify_ca", "verify_identity"]);
