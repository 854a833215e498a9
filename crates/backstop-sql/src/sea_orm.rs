//! The seam on SeaORM: append with your own `DatabaseTransaction`.
//!
//! SeaORM hides the connection of its transactions, but runs statements with bound values, and that is all
//! the seam needs:
//!
//! ```no_run
//! use backstop_core::Event;
//! use sea_orm::TransactionTrait;
//!
//! # async fn example(outbox: backstop_sql::Outbox<sqlx::Postgres>, db: sea_orm::DatabaseConnection)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = db.begin().await?;
//! // … entities saved with `&tx` …
//! let event = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
//! let appended = outbox.writer().append(&mut tx, event).await?;
//! tx.commit().await?;
//! appended.committed();
//! # Ok(()) }
//! ```

use std::sync::Arc;

use backstop_core::Timestamp;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr};

use crate::connection::{Column, Connection};
use crate::statement::{Statement, Value};
use crate::{BoxFuture, Error};

impl Connection for DatabaseTransaction {
    fn in_transaction(&self) -> bool {
        true
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let statement = translate(self.get_database_backend(), statement);
            let done = self.execute_raw(statement).await.map_err(failed("running a statement"))?;
            Ok(done.rows_affected())
        })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let backend = self.get_database_backend();
            let statement = translate(backend, statement);
            let rows = self.query_all_raw(statement).await.map_err(failed("running a query"))?;
            let read_row = |row: &QueryResult| {
                columns.iter().enumerate().map(|(index, kind)| read(backend, row, index, *kind)).collect()
            };
            Ok(rows.iter().map(read_row).collect())
        })
    }

    /// The owner of the transaction takes care of that.
    fn give_up(&mut self) {}
}

/// What the database said, as it would be said without SeaORM between.
fn failed(doing: &'static str) -> impl FnOnce(DbErr) -> Error {
    move |error| match error {
        DbErr::Conn(RuntimeErr::SqlxError(said))
        | DbErr::Exec(RuntimeErr::SqlxError(said))
        | DbErr::Query(RuntimeErr::SqlxError(said)) => match Arc::try_unwrap(said) {
            Ok(source) => Error::Database { doing, source },
            Err(said) => Error::Driver { doing, source: said.into() },
        },
        other => Error::Driver { doing, source: other.into() },
    }
}

fn translate(backend: DbBackend, statement: &Statement) -> sea_orm::Statement {
    let values = statement.values().iter().map(|value| match value {
        Value::Text(text) => text.clone().into(),
        Value::Int(number) => (*number).into(),
        Value::Time(moment) => bind_time(backend, *moment),
        Value::Bytes(bytes) => bytes.clone().into(),
        Value::Texts(texts) => texts.clone().into(),
        Value::Ints(numbers) => numbers.clone().into(),
        // Never bound: it only comes out of rows.
        Value::Unreadable(_) => None::<String>.into(),
    });
    sea_orm::Statement::from_sql_and_values(backend, statement.text(), values)
}

/// Moments are text in our SQLite tables, and moments everywhere else.
fn bind_time(backend: DbBackend, moment: Option<Timestamp>) -> sea_orm::Value {
    match backend {
        #[cfg(feature = "sqlite")]
        DbBackend::Sqlite => moment.map(crate::stores::sqlite::write_time).into(),
        _ => moment.into(),
    }
}

fn read(backend: DbBackend, row: &QueryResult, index: usize, kind: Column) -> Value {
    let read = match kind {
        Column::Text | Column::Key => row.try_get_by_index(index).map(Value::Text),
        Column::Int => row.try_get_by_index(index).map(Value::Int),
        Column::Time => read_time(backend, row, index),
    };
    read.unwrap_or_else(|error| Value::Unreadable(error.to_string()))
}

fn read_time(backend: DbBackend, row: &QueryResult, index: usize) -> Result<Value, DbErr> {
    match backend {
        #[cfg(feature = "sqlite")]
        DbBackend::Sqlite => {
            let stored: Option<String> = row.try_get_by_index(index)?;
            let moment = stored.map(crate::stores::sqlite::read_time).transpose();
            Ok(moment.map_or_else(Value::Unreadable, Value::Time))
        }
        _ => row.try_get_by_index(index).map(Value::Time),
    }
}
