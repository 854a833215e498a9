//! PostgreSQL: row locks that others skip, partial indexes, moments with a time zone.

mod connection;
mod dialect;
mod lock;
pub(crate) mod open;
mod outbox;
mod queue;

use std::sync::Arc;

use sqlx::{Pool, Postgres, Transaction};

use super::Supported;
use crate::connection::Connections;
use crate::database::reserve::Reserve;
use crate::database::acquire::told;
use crate::database::dialect::Dialect;
use crate::database::lock::{Right, Share, session};
use crate::outbox::store::words::Words;
use crate::queue::table::words::Words as QueueWords;
use crate::wake_up::WakeUps;
use crate::wake_up::postgres::Channel;
use crate::{BoxFuture, Error, TableName};

impl Supported for Postgres {
    fn dialect() -> &'static dyn Dialect {
        &dialect::PostgresDialect
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
        Box::pin(async move { told(pool, pool.begin().await).await })
    }

    fn wake_ups(pool: &Pool<Self>, table: &TableName) -> Option<Arc<dyn WakeUps>> {
        Some(Arc::new(Channel::new(pool, table)))
    }

    fn right<'a>(
        pool: &'a Pool<Self>,
        table: &'a TableName,
        share: Share,
    ) -> BoxFuture<'a, Result<Right, Error>> {
        Box::pin(session::take::<lock::Locked>(pool, table, share))
    }
}
