//! MySQL and MariaDB: row locks that others skip, no partial indexes, moments without a time zone, in UTC.

mod connection;
mod dialect;
mod lock;
pub(crate) mod open;
mod outbox;
mod queue;

use std::sync::Arc;

use sqlx::{MySql, Pool, Transaction};

use super::Supported;
use crate::connection::Connections;
use crate::database::reserve::Reserve;
use crate::database::acquire::told;
use crate::database::dialect::Dialect;
use crate::database::lock::{Right, Share, session};
use crate::outbox::store::words::Words;
use crate::queue::table::words::Words as QueueWords;
use crate::{BoxFuture, Error, TableName};

impl Supported for MySql {
    fn dialect() -> &'static dyn Dialect {
        &dialect::MysqlDialect
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

    fn reserve(pool: &Pool<Self>) -> Option<Arc<dyn Connections>> {
        Some(Arc::new(Reserve::of(pool)))
    }

    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        Box::pin(async move { told(pool, pool.begin_with(dialect::BEGIN_TO_APPEND).await).await })
    }

    fn right<'a>(
        pool: &'a Pool<Self>,
        table: &'a TableName,
        share: Share,
    ) -> BoxFuture<'a, Result<Right, Error>> {
        Box::pin(session::take::<lock::Locked>(pool, table, share))
    }
}
