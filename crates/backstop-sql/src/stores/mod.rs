//! One folder per database, each with the same files: what differs between them, and nothing else.

/// The databases: kind, folder, cargo feature, sqlx's name, how people call it, and the schemes of its URLs.
macro_rules! databases {
    ($($(#[$doc:meta])* $Kind:ident, $folder:ident, $feature:literal, $DB:ty, $name:literal, $schemes:expr;)*) => {
        $(#[cfg(feature = $feature)] pub(crate) mod $folder;)*

        /// Opening a database: a module for each that is compiled in.
        pub mod opening {
            $(#[cfg(feature = $feature)] $(#[$doc])* pub mod $folder {
                pub use crate::stores::$folder::open::{open, open_sized, open_with};
            })*
        }

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
            $($(#[$doc])* $Kind,)*
        }

        #[allow(unreachable_patterns, unused_variables, clippy::unused_async, reason = "a feature may be off")]
        impl DatabaseKind {
            const ALL: [Self; [$($name),*].len()] = [$(Self::$Kind),*];

            /// What people call it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$Kind => $name),* }
            }

            fn schemes(self) -> &'static [&'static str] {
                match self { $(Self::$Kind => &$schemes),* }
            }

            fn missing(self) -> Error {
                let feature = match self { $(Self::$Kind => $feature),* };
                Error::Feature { database: self.name(), feature }
            }

            fn check_url(self, url: &str, tls: &Tls) -> Result<(), Error> {
                match self {
                    $(#[cfg(feature = $feature)] Self::$Kind => $folder::open::options(url, tls).map(drop),)*
                    _ => Err(self.missing()),
                }
            }

            fn outbox(self) -> Result<&'static Words, Error> {
                match self {
                    $(#[cfg(feature = $feature)] Self::$Kind => Ok(<$DB as Supported>::outbox()),)*
                    _ => Err(self.missing()),
                }
            }

            pub(crate) async fn connect(
                self,
                url: &str,
                tls: &Tls,
                table: TableName,
            ) -> Result<SqlStore, Error> {
                match self {
                    $(#[cfg(feature = $feature)]
                    Self::$Kind => Ok(SqlStore::on($folder::open::open_url(url, tls).await?, table)),)*
                    _ => Err(self.missing()),
                }
            }

            pub(crate) async fn connect_queue(
                self,
                url: &str,
                tls: &Tls,
                events: TableName,
                log: TableName,
            ) -> Result<Operations, Error> {
                match self {
                    $(#[cfg(feature = $feature)]
                    Self::$Kind => Ok(Operations::on($folder::open::open_url(url, tls).await?, events, log)),)*
                    _ => Err(self.missing()),
                }
            }

            fn queue(self) -> Result<&'static QueueWords, Error> {
                match self {
                    $(#[cfg(feature = $feature)] Self::$Kind => Ok(<$DB as Supported>::queue()),)*
                    _ => Err(self.missing()),
                }
            }
        }
    };
}

mod kind;
#[cfg(feature = "_server")]
mod tls;
#[cfg(feature = "_any")]
mod url;

use std::sync::Arc;

use crate::connection::{Connection, Connections};
use crate::database::dialect::Dialect;
use crate::database::lock::{Right, Share};
use crate::outbox::store::SqlStore;
use crate::outbox::store::words::Words;
use crate::queue::Operations;
use crate::queue::table::words::Words as QueueWords;
use crate::wake_up::WakeUps;
use crate::{BoxFuture, Error, TableName, Tls};

databases! {
    /// MySQL or MariaDB.
    Mysql, mysql, "mysql", sqlx::MySql, "MySQL", ["mysql", "mariadb"];
    /// PostgreSQL.
    Postgres, postgres, "postgres", sqlx::Postgres, "PostgreSQL", ["postgres", "postgresql"];
    /// SQLite.
    Sqlite, sqlite, "sqlite", sqlx::Sqlite, "SQLite", ["sqlite"];
}

/// A database that components work on, by sqlx's name for it.
pub trait Supported: sqlx::Database<Connection: Connection> {
    /// What is particular about it.
    #[doc(hidden)]
    fn dialect() -> &'static dyn Dialect;

    /// What is particular about the outbox's table on it.
    #[doc(hidden)]
    fn outbox() -> &'static Words;

    /// What is particular about the queue's tables on it.
    #[doc(hidden)]
    fn queue() -> &'static QueueWords;

    /// Its pool as a source of connections.
    #[doc(hidden)]
    fn connections(pool: sqlx::Pool<Self>) -> Arc<dyn Connections>;

    /// Connections beside the pool, opened when they are needed, for what must not wait for the application. None if
    /// more connections would not help.
    #[doc(hidden)]
    fn reserve(_pool: &sqlx::Pool<Self>) -> Option<Arc<dyn Connections>> {
        None
    }

    /// Begins a transaction that is going to write.
    #[doc(hidden)]
    fn begin(pool: &sqlx::Pool<Self>)
    -> BoxFuture<'_, Result<sqlx::Transaction<'static, Self>, sqlx::Error>>;

    /// The wake-ups of a table, if the database supports them.
    #[doc(hidden)]
    fn wake_ups(_pool: &sqlx::Pool<Self>, _table: &TableName) -> Option<Arc<dyn WakeUps>> {
        None
    }

    /// Takes the right to deliver from a table, or says that somebody else has it.
    #[doc(hidden)]
    fn right<'a>(
        pool: &'a sqlx::Pool<Self>,
        table: &'a TableName,
        share: Share,
    ) -> BoxFuture<'a, Result<Right, Error>>;
}
