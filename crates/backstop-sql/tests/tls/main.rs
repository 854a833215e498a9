//! Encrypted connections to a server: whom it must be, what it is shown, and what is said when either side refuses.

mod mysql;
mod postgres;

use std::time::{Duration, Instant};

use backstop_sql::store::SqlStore;
use backstop_sql::{Error, TableName, Tls};
use backstop_testkit::certificates::Certified;

/// The pool's patience is twice that.
const AT_ONCE: Duration = Duration::from_secs(5);

fn showing(tls: Tls, certified: Certified) -> Tls {
    Tls { certificate: Some(certified.certificate.into()), key: Some(certified.key.into()), ..tls }
}

/// What is said of a connection that is refused, at once.
async fn error(url: &str, tls: &Tls) -> Error {
    let begun = Instant::now();
    let error = SqlStore::connect_with(url, tls, TableName::default()).await.unwrap_err();
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
    error
}

/// What is said of a connection that is refused for its encryption.
async fn refused(url: &str, tls: &Tls) -> String {
    let error = error(url, tls).await;
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    error.to_string()
}
