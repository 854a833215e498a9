//! One folder per database, each with the same files: what differs between them, and nothing else.

mod sql;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::fmt;
use std::sync::Arc;

use chrono::TimeDelta;

use crate::BoxFuture;
use crate::connection::{Connection, Connections};
use crate::migration::Migration;
use crate::statement::{Marks, Statement};
use crate::store::At;

pub(crate) use sql::SqlStore;

/// A database that the outbox works on, by sqlx's name for it.
pub trait Supported: sqlx::Database {
    /// What is particular about it.
    #[doc(hidden)]
    fn dialect() -> &'static dyn Dialect;

    /// Its pool as a source of connections.
    #[doc(hidden)]
    fn connections(pool: sqlx::Pool<Self>) -> Arc<dyn Connections>;

    /// Its connection as the seam.
    #[doc(hidden)]
    fn seam(connection: &mut Self::Connection) -> &mut dyn Connection;

    /// Begins a transaction that is going to write.
    #[doc(hidden)]
    fn begin(pool: &sqlx::Pool<Self>)
    -> BoxFuture<'_, Result<sqlx::Transaction<'static, Self>, sqlx::Error>>;
}

/// What is particular about a database: the words and statements in which it differs from the others.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// How it marks bound values.
    fn marks(&self) -> Marks;

    /// Adds the moment `at` plus `offset`.
    fn moment(&self, statement: &mut Statement, at: At, offset: TimeDelta);

    /// Adds a list of pairs for a left-hand side of two columns, as in `(a, b) in …`.
    fn pairs(&self, statement: &mut Statement, pairs: &[(&str, i64)]);

    /// The migrations, in order.
    fn migrations(&self) -> &'static [Migration];

    /// Statements that run before and after a migration, so that two nodes do not migrate at once.
    fn migration_lock(&self) -> (&'static str, &'static str, &'static str);
}
