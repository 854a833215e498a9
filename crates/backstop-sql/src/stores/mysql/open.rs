//! Opening a MySQL or MariaDB database with the settings that an outbox wants.

use std::time::Duration;

use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode};

use crate::stores::url::{self, Form, Takes};
use crate::{Error, Tls, TlsMode};

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

/// Opens the database of a URL, with TLS as the settings say.
pub(crate) async fn open_url(url: &str, tls: &Tls) -> Result<MySqlPool, Error> {
    open_with(url, 10, tls).await
}

/// [`open`] with at most this many connections.
pub async fn open_sized(url: &str, connections: u32) -> Result<MySqlPool, Error> {
    open_with(url, connections, &Tls::default()).await
}

/// [`open_sized`], with TLS as the settings say, and as the URL says where they say nothing.
pub async fn open_with(url: &str, connections: u32, tls: &Tls) -> Result<MySqlPool, Error> {
    let options = options(url, tls)?;
    let database = options.get_database().unwrap_or_default();
    let server = format!("MySQL at {}:{}, database {database}", options.get_host(), options.get_port());
    let pool = MySqlPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(10));
    url::connect(pool, options, server).await
}

/// How the database of a URL is reached.
pub(crate) fn options(url: &str, tls: &Tls) -> Result<MySqlConnectOptions, Error> {
    FORM.check(url)?;
    FORM.check_environment(&["SSL_CERT_FILE"])?;
    let options: MySqlConnectOptions = url.parse().map_err(|_| FORM.unreadable())?;
    let options = encrypted(options, FORM.tls(url, tls)?);
    Ok(options.timezone(String::from("+00:00")).charset("utf8mb4"))
}

fn encrypted(mut options: MySqlConnectOptions, tls: Tls) -> MySqlConnectOptions {
    let Tls { mode, ca, certificate, key } = tls;
    if let Some(mode) = mode {
        options = options.ssl_mode(match mode {
            TlsMode::Disable => MySqlSslMode::Disabled,
            TlsMode::Prefer => MySqlSslMode::Preferred,
            TlsMode::Require => MySqlSslMode::Required,
            TlsMode::VerifyCa => MySqlSslMode::VerifyCa,
            TlsMode::VerifyFull => MySqlSslMode::VerifyIdentity,
        });
    }
    if let Some(ca) = ca {
        options = options.ssl_ca_from_pem(ca.reveal().as_bytes().to_vec());
    }
    if let Some(certificate) = certificate {
        options = options.ssl_client_cert_from_pem(certificate.reveal());
    }
    if let Some(key) = key {
        options = options.ssl_client_key_from_pem(key.reveal());
    }
    options
}

/// The driver passes over parameters that it does not know, and with a slip in `ssl-mode` over its encryption.
const FORM: Form = Form {
    example: "mysql://user:password@host:3306/database",
    names_server: true,
    parameters: &[
        ("ssl-mode", SSL_MODE),
        ("sslmode", SSL_MODE),
        ("ssl-ca", Takes::Pem("ca")),
        ("sslca", Takes::Pem("ca")),
        ("ssl-cert", Takes::Pem("certificate")),
        ("sslcert", Takes::Pem("certificate")),
        ("ssl-key", Takes::Pem("key")),
        ("sslkey", Takes::Pem("key")),
        ("charset", Takes::Anything),
        ("collation", Takes::Anything),
        ("socket", Takes::Anything),
        ("statement-cache-capacity", Takes::Anything),
        ("time-zone", Takes::Anything),
        ("timezone", Takes::Anything),
    ],
};

const SSL_MODE: Takes = Takes::Mode(&[
    ("disabled", TlsMode::Disable),
    ("preferred", TlsMode::Prefer),
    ("required", TlsMode::Require),
    ("verify_ca", TlsMode::VerifyCa),
    ("verify_identity", TlsMode::VerifyFull),
]);
