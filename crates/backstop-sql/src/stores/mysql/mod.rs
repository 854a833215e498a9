//! MySQL and MariaDB: row locks that others skip, no partial indexes, moments without a time zone, in UTC.

mod alone;
mod connection;
mod dialect;
pub(crate) mod open;

use std::sync::Arc;

use sqlx::{MySql, MySqlConnection, Pool, Transaction};

use super::beside::Beside;
use super::{Dialect, Right, Share, Supported, session};
use crate::connection::{Connection, Connections};
use crate::{BoxFuture, Error, TableName};

impl Supported for MySql {
    fn dialect() -> &'static dyn Dialect {
        &dialect::MysqlDialect
    }

    fn connections(pool: Pool<Self>) -> Arc<dyn Connections> {
        Arc::new(pool)
    }

    fn beside(pool: &Pool<Self>) -> Option<Arc<dyn Connections>> {
        Some(Arc::new(Beside::of(pool)))
    }

    fn seam(connection: &mut MySqlConnection) -> &mut dyn Connection {
        connection
    }

    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        Box::pin(async move { pool.begin_with(dialect::BEGIN_TO_APPEND).await })
    }

    fn right<'a>(
        pool: &'a Pool<Self>,
        table: &'a TableName,
        share: Share,
    ) -> BoxFuture<'a, Result<Right, Error>> {
        Box::pin(session::take::<alone::Locked>(pool, table, share))
    }
}
