//! Opening a PostgreSQL database with the settings that an outbox wants.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};

use crate::stores::url::{self, Form, Takes};
use crate::{Error, Tls, TlsMode};

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

/// Opens the database of a URL, with TLS as the settings say.
pub(crate) async fn open_url(url: &str, tls: &Tls) -> Result<PgPool, Error> {
    open_with(url, 10, tls).await
}

/// [`open`] with at most this many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<PgPool, Error> {
    open_with(url, connections, &Tls::default()).await
}

/// [`open_sized`], with TLS as the settings say, and as the URL says where they say nothing.
pub async fn open_with(url: &str, connections: u32, tls: &Tls) -> Result<PgPool, Error> {
    let options = options(url, tls)?;
    let database = options.get_database().unwrap_or(options.get_username());
    let server = format!("PostgreSQL at {}:{}, database {database}", options.get_host(), options.get_port());
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(10));
    url::connect(pool, options, server).await
}

/// How the database of a URL is reached.
pub(crate) fn options(url: &str, tls: &Tls) -> Result<PgConnectOptions, Error> {
    FORM.check(url)?;
    // The driver reads these by itself, as PostgreSQL's own programs do.
    FORM.check_environment(&["PGPASSFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "SSL_CERT_FILE"])?;
    let options: PgConnectOptions = url.parse().map_err(|_| FORM.unreadable())?;
    let options = encrypted(options, FORM.tls(url, tls)?);
    let named = options.get_application_name().is_some();
    Ok(if named { options } else { options.application_name("backstop") })
}

fn encrypted(mut options: PgConnectOptions, tls: Tls) -> PgConnectOptions {
    let Tls { mode, ca, certificate, key } = tls;
    if let Some(mode) = mode {
        options = options.ssl_mode(match mode {
            TlsMode::Disable => PgSslMode::Disable,
            TlsMode::Prefer => PgSslMode::Prefer,
            TlsMode::Require => PgSslMode::Require,
            TlsMode::VerifyCa => PgSslMode::VerifyCa,
            TlsMode::VerifyFull => PgSslMode::VerifyFull,
        });
    }
    if let Some(ca) = ca {
        options = options.ssl_root_cert_from_pem(ca.reveal().as_bytes().to_vec());
    }
    if let Some(certificate) = certificate {
        options = options.ssl_client_cert_from_pem(certificate.reveal());
    }
    if let Some(key) = key {
        options = options.ssl_client_key_from_pem(key.reveal());
    }
    options
}

/// The driver logs parameters that it does not know, with their values.
const FORM: Form = Form {
    example: "postgres://user:password@host:5432/database",
    names_server: true,
    parameters: &[
        ("sslmode", SSL_MODE),
        ("ssl-mode", SSL_MODE),
        ("sslrootcert", Takes::Pem("ca")),
        ("ssl-root-cert", Takes::Pem("ca")),
        ("ssl-ca", Takes::Pem("ca")),
        ("sslcert", Takes::Pem("certificate")),
        ("ssl-cert", Takes::Pem("certificate")),
        ("sslkey", Takes::Pem("key")),
        ("ssl-key", Takes::Pem("key")),
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

const SSL_MODE: Takes = Takes::Mode(&[
    ("disable", TlsMode::Disable),
    // The driver encrypts nothing then.
    ("allow", TlsMode::Disable),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
]);
