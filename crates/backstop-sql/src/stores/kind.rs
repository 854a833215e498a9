//! Which database a URL means.

use super::DatabaseKind;
use crate::outbox::store::SqlStore;
use crate::queue::table::Tables;
use crate::{Error, TableName, Tls};

impl DatabaseKind {
    /// The kind that a URL's scheme names. The database need not be compiled in.
    pub fn of(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        let named = |kind: &Self| kind.schemes().contains(&scheme.to_ascii_lowercase().as_str());
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            // What only looks like a URL may be a password with a colon in it.
            let shown = rest.starts_with("//") && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
            Error::Scheme { scheme: if shown { scheme.to_owned() } else { String::new() } }
        })
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
        Self::check_with(url, &Tls::default())
    }

    /// Checks a URL and the settings for TLS beside it, as opening them does.
    ///
    /// ```
    /// use backstop_sql::{Tls, TlsMode, store::DatabaseKind};
    ///
    /// let tls = Tls { mode: Some(TlsMode::Require), ..Tls::default() };
    /// let error = DatabaseKind::check_with("sqlite:orders.db", &tls).unwrap_err();
    /// assert_eq!(error.to_string(), "setting tls is for database servers, and SQLite is a file");
    /// ```
    pub fn check_with(url: &str, tls: &Tls) -> Result<Self, Error> {
        let kind = Self::of(url)?;
        kind.check_url(url, tls)?;
        Ok(kind)
    }

    /// All migrations for a table of that name as one SQL text, for those who run them with their own tool: in
    /// `psql`, `mysql` or `sqlite3`, or copied into the migrations of another tool. It may be run on a table that
    /// exists already, and has the same effect as [`Store::migrate`](crate::store::Store::migrate).
    ///
    /// ```
    /// use backstop_sql::{TableName, store::DatabaseKind};
    ///
    /// let sql = DatabaseKind::Sqlite.migrations(&TableName::new("orders_outbox")?)?;
    /// assert!(sql.contains("CREATE TABLE IF NOT EXISTS orders_outbox ("));
    /// # Ok::<(), backstop_sql::Error>(())
    /// ```
    pub fn migrations(self, table: &TableName) -> Result<String, Error> {
        Ok(SqlStore::schema_of(table, self.outbox()?).script())
    }

    /// The same for the two tables of a queue.
    ///
    /// ```
    /// use backstop_sql::{TableName, store::DatabaseKind};
    ///
    /// let (events, log) = (TableName::new("jobs")?, TableName::new("jobs_done")?);
    /// let sql = DatabaseKind::Sqlite.queue_migrations(&events, &log)?;
    /// assert!(sql.contains("CREATE TABLE IF NOT EXISTS jobs (") && sql.contains("CREATE TABLE IF NOT EXISTS jobs_done ("));
    /// # Ok::<(), backstop_sql::Error>(())
    /// ```
    pub fn queue_migrations(self, events: &TableName, log: &TableName) -> Result<String, Error> {
        let schemas = Tables::schemas(self.queue()?, events, log);
        Ok(schemas.map(|schema| schema.script()).join("\n"))
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
