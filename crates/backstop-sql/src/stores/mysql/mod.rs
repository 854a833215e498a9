//! MySQL and MariaDB: row locks that others skip, no partial indexes, moments without a time zone, in UTC.

mod alone;
mod connection;
mod dialect;
pub(crate) mod open;

use std::sync::Arc;

use sqlx::pool::PoolOptions;
use sqlx::{MySql, MySqlConnection, Pool, Transaction};

use super::session::{BESIDE, IDLE};
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
        let one = PoolOptions::<Self>::new().max_connections(1).acquire_timeout(BESIDE).idle_timeout(IDLE);
        Some(Arc::new(one.connect_lazy_with((*pool.connect_options()).clone())))
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
