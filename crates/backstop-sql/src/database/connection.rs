//! The seam to a database driver: run a statement with bound values. Nothing else of a driver is needed.
//!
//! The owner of a transaction passes in a [`Connection`] on it; the outbox gets its own, short-lived ones from
//! [`Connections`].

use super::statement::{Statement, Value};
use crate::{BoxFuture, Error};

/// What a column is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Text; JSON columns are read as text too.
    Text,
    /// The key of a row: text, or the bytes of what should be text and is not.
    Key,
    /// A whole number.
    Int,
    /// A moment.
    Time,
}

/// Something that runs statements: a connection, a transaction, or anything that behaves like one.
pub trait Connection: Send {
    /// Whether a transaction is open, so that the next statement takes effect together with those before it.
    fn in_transaction(&self) -> bool;

    /// Runs a statement and returns how many rows it changed.
    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>>;

    /// Runs a statement and reads the rows it returns, each column as the kind given.
    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>>;

    /// Nobody else may use the connection after this: it is in the middle of a statement or of a transaction, or
    /// useless. A connection of a pool must be closed and not given back.
    fn give_up(&mut self);
}

/// Where the outbox gets its own connections: a pool.
pub trait Connections: Send + Sync + 'static {
    /// A connection for a short time, outside any business transaction.
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>>;
}

/// Implements the seam for the connection, pooled connection and pool of one of sqlx's databases.
/// They differ only in how moments and arrays are written and read.
macro_rules! sqlx_connection {
    // What derefs to a connection is one too.
    (@around $around:ty, $give_up:expr) => {
        impl $crate::connection::Connection for $around {
            fn in_transaction(&self) -> bool {
                $crate::connection::Connection::in_transaction(&**self)
            }

            fn execute<'a>(
                &'a mut self,
                statement: &'a $crate::statement::Statement,
            ) -> $crate::BoxFuture<'a, Result<u64, $crate::Error>> {
                $crate::connection::Connection::execute(&mut **self, statement)
            }

            fn fetch<'a>(
                &'a mut self,
                statement: &'a $crate::statement::Statement,
                columns: &'a [$crate::connection::Column],
            ) -> $crate::BoxFuture<'a, Result<Vec<Vec<$crate::statement::Value>>, $crate::Error>> {
                $crate::connection::Connection::fetch(&mut **self, statement, columns)
            }

            fn give_up(&mut self) {
                $give_up(self);
            }
        }
    };
    (
        $database:ty, $connection:ty,
        write_time: $write_time:expr, read_time: $read_time:expr, write_texts: $write_texts:expr,
        write_ints: $write_ints:expr, holds_bytes: $holds_bytes:expr
    ) => {
        impl $crate::connection::Connection for $connection {
            fn in_transaction(&self) -> bool {
                sqlx::Connection::is_in_transaction(self)
            }

            fn execute<'a>(
                &'a mut self,
                statement: &'a $crate::statement::Statement,
            ) -> $crate::BoxFuture<'a, Result<u64, $crate::Error>> {
                Box::pin(async move {
                    let done = if statement.values().is_empty() {
                        // Without values there is nothing to prepare for, and some statements cannot be prepared.
                        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.text())).execute(self).await
                    } else {
                        bound(statement).execute(self).await
                    };
                    Ok(done.map_err($crate::Error::database("running a statement"))?.rows_affected())
                })
            }

            fn fetch<'a>(
                &'a mut self,
                statement: &'a $crate::statement::Statement,
                columns: &'a [$crate::connection::Column],
            ) -> $crate::BoxFuture<'a, Result<Vec<Vec<$crate::statement::Value>>, $crate::Error>> {
                Box::pin(async move {
                    let rows = bound(statement)
                        .fetch_all(self)
                        .await
                        .map_err($crate::Error::database("running a query"))?;
                    let read_row =
                        |row| columns.iter().enumerate().map(|(at, kind)| read(row, at, *kind)).collect();
                    Ok(rows.iter().map(read_row).collect())
                })
            }

            /// The owner of the connection takes care of that.
            fn give_up(&mut self) {}
        }

        $crate::database::connection::sqlx_connection!(
            @around sqlx::pool::PoolConnection<$database>, sqlx::pool::PoolConnection::close_on_drop
        );
        $crate::database::connection::sqlx_connection!(@around sqlx::Transaction<'_, $database>, |_| {});

        impl $crate::connection::Connections for sqlx::Pool<$database> {
            fn connection(
                &self,
            ) -> $crate::BoxFuture<'_, Result<Box<dyn $crate::connection::Connection>, $crate::Error>> {
                Box::pin(async move {
                    let connection = $crate::database::acquire::acquire(self).await;
                    let connection =
                        connection.map_err($crate::Error::database("taking a connection from the pool"))?;
                    Ok(Box::new(connection) as Box<dyn $crate::connection::Connection>)
                })
            }
        }

        fn bound(
            statement: &$crate::statement::Statement,
        ) -> sqlx::query::Query<'_, $database, <$database as sqlx::Database>::Arguments> {
            // Safe by construction: a statement's text is ours, table names are checked, values are bound.
            let query = sqlx::query(sqlx::AssertSqlSafe(statement.text())).persistent(statement.is_prepared());
            statement.values().iter().fold(query, |query, value| match value {
                $crate::statement::Value::Text(text) => query.bind(text.as_deref()),
                $crate::statement::Value::Int(number) => query.bind(*number),
                $crate::statement::Value::Time(moment) => query.bind(moment.map($write_time)),
                $crate::statement::Value::Bytes(bytes) => query.bind(bytes.as_slice()),
                $crate::statement::Value::Texts(texts) => query.bind($write_texts(texts)),
                $crate::statement::Value::Ints(numbers) => query.bind($write_ints(numbers)),
                // Never bound: it only comes out of rows.
                $crate::statement::Value::Unreadable(_) => query.bind(None::<&str>),
            })
        }

        fn read(
            row: &<$database as sqlx::Database>::Row,
            index: usize,
            kind: $crate::connection::Column,
        ) -> $crate::statement::Value {
            use sqlx::Row;
            use $crate::statement::Value;
            let read =
                match kind {
                    $crate::connection::Column::Text => row.try_get_unchecked(index).map(Value::Text),
                    $crate::connection::Column::Key => {
                        let text = (!$holds_bytes(row, index)).then(|| row.try_get_unchecked(index).ok());
                        let bytes = |bytes: Option<Vec<u8>>| bytes.map_or(Value::Text(None), Value::Bytes);
                        match text.flatten() {
                            Some(text) => Ok(Value::Text(text)),
                            None => row.try_get_unchecked(index).map(bytes),
                        }
                    }
                    $crate::connection::Column::Int => row.try_get_unchecked(index).map(Value::Int),
                    $crate::connection::Column::Time => row.try_get_unchecked(index).map(|stored| {
                        match Option::map(stored, $read_time).transpose() {
                            Ok(moment) => Value::Time(moment),
                            Err(problem) => Value::Unreadable(problem),
                        }
                    }),
                };
            read.unwrap_or_else(|error| Value::Unreadable(error.to_string()))
        }
    };
}

pub(crate) use sqlx_connection;
