//! Draining while somebody else keeps a snapshot open: a report, a dump, a forgotten transaction.

use anyhow::Result;
use backstop_sql::store::Done;
use sqlx::{Connection, Executor, PgConnection, PgPool};

use super::ours;
use crate::contender::Drained;
use crate::postgres::Fresh;

pub(super) async fn single_node(events: u32) -> Result<Drained> {
    with_snapshot(events, |pool| ours::single_node(pool, events, Some(500), Done::Keep)).await
}

pub(super) async fn multi_node(events: u32) -> Result<Drained> {
    with_snapshot(events, |pool| ours::multi_node(pool, events, 500)).await
}

async fn with_snapshot<F>(events: u32, drain: impl FnOnce(PgPool) -> F + Send) -> Result<Drained>
where
    F: Future<Output = Result<Drained>> + Send,
{
    let database = Fresh::create().await?;
    database.fill_ours(events, &[]).await?;
    let mut elsewhere = PgConnection::connect(&database.url).await?;
    elsewhere.execute("begin isolation level repeatable read").await?;
    // The first statement takes the snapshot, not the beginning.
    elsewhere.execute("select count(*) from pg_class").await?;
    let drained = drain(database.pool.clone()).await?;
    elsewhere.execute("rollback").await?;
    elsewhere.close().await?;
    database.drop().await?;
    Ok(drained)
}
