//! Which database a URL means.

use super::{Dialect, SqlStore};
use crate::{Error, TableName, migration};

/// A kind of database, as a URL names it.
///
/// ```
/// use backstop_sql::store::DatabaseKind;
///
/// assert_eq!(DatabaseKind::of("postgresql://host/orders")?, DatabaseKind::Postgres);
/// assert_eq!(DatabaseKind::of("mariadb://host/orders")?, DatabaseKind::Mysql);
/// assert!(DatabaseKind::of("oracle://host/orders").is_err());
/// # Ok::<(), backstop_sql::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatabaseKind {
    /// MySQL or MariaDB.
    Mysql,
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

impl DatabaseKind {
    /// The kind that a URL's scheme names. The database need not be compiled in.
    pub fn of(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        match scheme.to_ascii_lowercase().as_str() {
            "mysql" | "mariadb" => Ok(Self::Mysql),
            "postgres" | "postgresql" => Ok(Self::Postgres),
            "sqlite" => Ok(Self::Sqlite),
            // What only looks like a URL may be a password with a colon in it.
            _ => {
                let shown = rest.starts_with("//") && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
                Err(Error::Scheme { scheme: if shown { scheme.to_owned() } else { String::new() } })
            }
        }
    }

    /// Checks a URL as opening it does, without opening anything. No error repeats what may be a password.
    ///
    /// ```
    /// use backstop_sql::store::DatabaseKind;
    ///
    /// assert_eq!(DatabaseKind::check("sqlite:orders.db")?, DatabaseKind::Sqlite);
    /// let error = DatabaseKind::check("sqlite:orders.db?pasword=hunter2").unwrap_err().to_string();
    /// assert!(error.contains("pasword") && !error.contains("hunter2"));
    /// # Ok::<(), backstop_sql::Error>(())
    /// ```
    pub fn check(url: &str) -> Result<Self, Error> {
        let kind = Self::of(url)?;
        match kind {
            #[cfg(feature = "mysql")]
            Self::Mysql => super::mysql::open::options(url).map(|_| kind),
            #[cfg(feature = "postgres")]
            Self::Postgres => super::postgres::open::options(url).map(|_| kind),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => super::sqlite::open::options(url).map(|_| kind),
            #[allow(unreachable_patterns, reason = "reached where a feature is off")]
            _ => Err(kind.missing()),
        }
    }

    /// All migrations for a table of that name as one SQL text, for whoever runs them with a tool of their
    /// own: in `psql`, `mysql` or `sqlite3`, or copied into the migrations of another tool. It may be run on
    /// a table that is there already, and leaves behind what [`Store::migrate`](crate::store::Store::migrate)
    /// would have.
    ///
    /// ```
    /// use backstop_sql::{TableName, store::DatabaseKind};
    ///
    /// let sql = DatabaseKind::Sqlite.migrations(&TableName::new("orders_outbox")?)?;
    /// assert!(sql.contains("CREATE TABLE IF NOT EXISTS orders_outbox ("));
    /// # Ok::<(), backstop_sql::Error>(())
    /// ```
    pub fn migrations(self, table: &TableName) -> Result<String, Error> {
        Ok(migration::script(self.dialect()?, table))
    }

    fn dialect(self) -> Result<&'static dyn Dialect, Error> {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql => Ok(<sqlx::MySql as super::Supported>::dialect()),
            #[cfg(feature = "postgres")]
            Self::Postgres => Ok(<sqlx::Postgres as super::Supported>::dialect()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => Ok(<sqlx::Sqlite as super::Supported>::dialect()),
            #[allow(unreachable_patterns, reason = "reached where a feature is off")]
            _ => Err(self.missing()),
        }
    }

    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
        expect(clippy::unused_async, unused_variables, reason = "there is nothing to connect to")
    )]
    pub(super) async fn connect(self, url: &str, table: TableName) -> Result<SqlStore, Error> {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql => Ok(SqlStore::on(super::mysql::open::open(url).await?, table)),
            #[cfg(feature = "postgres")]
            Self::Postgres => Ok(SqlStore::on(super::postgres::open::open(url).await?, table)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => Ok(SqlStore::on(super::sqlite::open::open_url(url).await?, table)),
            #[allow(unreachable_patterns, reason = "reached where a feature is off")]
            _ => Err(self.missing()),
        }
    }

    fn missing(self) -> Error {
        let (database, feature) = match self {
            Self::Mysql => ("MySQL", "mysql"),
            Self::Postgres => ("PostgreSQL", "postgres"),
            Self::Sqlite => ("SQLite", "sqlite"),
        };
        Error::Feature { database, feature }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: O-049.
    #[test]
    fn the_scheme_names_the_database_and_an_unknown_one_is_named_without_the_rest_of_the_url() {
        for (url, kind) in [
            ("postgres://h/d", DatabaseKind::Postgres),
            ("PostgreSQL://h/d", DatabaseKind::Postgres),
            ("mysql://h/d", DatabaseKind::Mysql),
            ("mariadb://h/d", DatabaseKind::Mysql),
            ("sqlite::memory:", DatabaseKind::Sqlite),
            ("sqlite:orders.db", DatabaseKind::Sqlite),
        ] {
            assert_eq!(DatabaseKind::of(url).unwrap(), kind, "{url}");
        }
        for (url, scheme) in [
            ("oracle://scott:tiger@h/d", "oracle"),
            ("tiger", ""),
            ("", ""),
            ("tiger:x", ""),
            ("scott:tiger@h/d", ""),
            ("t1ger://", ""),
        ] {
            let error = DatabaseKind::of(url).unwrap_err();
            assert!(matches!(&error, Error::Scheme { scheme: found } if found == scheme), "{url}: {error}");
            assert!(!error.to_string().contains("tiger"), "{error}");
        }
    }

    /// Rules: O-049.
    #[test]
    fn a_database_that_is_not_compiled_in_is_an_error_that_names_the_feature() {
        let said = DatabaseKind::Postgres.missing().to_string();
        assert_eq!(
            said,
            "this program was built without PostgreSQL; build it with the cargo feature `postgres`"
        );
    }
}
