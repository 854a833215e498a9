//! SQLite: one file, one writer at a time, moments kept as text that sorts.

mod connection;
mod dialect;
mod lock;
pub(crate) mod open;
mod outbox;
mod queue;

use std::sync::Arc;

use sqlx::{Connection as _, Pool, SqlSafeStr as _, Sqlite, Transaction};

#[cfg(feature = "sea-orm")]
pub(crate) use connection::{read_time, write_time};

use super::Supported;
use crate::connection::Connections;
use crate::database::dialect::Dialect;
use crate::database::lock::{Right, Share};
use crate::outbox::store::words::Words;
use crate::queue::table::words::Words as QueueWords;
use crate::{BoxFuture, Error, TableName};

impl Supported for Sqlite {
    fn dialect() -> &'static dyn Dialect {
        &dialect::SqliteDialect
    }

    fn outbox() -> &'static Words {
        &outbox::WORDS
    }

    fn queue() -> &'static QueueWords {
        &queue::WORDS
    }

    fn connections(pool: Pool<Self>) -> Arc<dyn Connections> {
        Arc::new(pool)
    }

    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        Box::pin(async move {
            let mut connection = pool.acquire().await?;
            // A full disk can end a transaction by itself. The driver then fails to roll it back, and believes for ever that it
            // is still open.
            while connection.is_in_transaction() {
                connection.close().await?;
                connection = pool.acquire().await?;
            }
            Transaction::begin(connection, Some(dialect::BEGIN_TO_APPEND.into_sql_str())).await
        })
    }

    fn right<'a>(
        pool: &'a Pool<Self>,
        table: &'a TableName,
        share: Share,
    ) -> BoxFuture<'a, Result<Right, Error>> {
        Box::pin(lock::take(pool, table, share))
    }
}
