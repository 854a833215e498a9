//! Burning down a backlog on MariaDB or MySQL, and the same by hand over the same tables.

use anyhow::Result;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, MySqlPool, Row};

use super::overlapped::{self, BATCH};
use super::{backlog, ours};
use crate::contender::Drained;
use crate::mariadb::Fresh;

const BEGIN: &str = "set transaction isolation level read committed; start transaction";

const CHOOSE: &str = "select id, event, attempts, created_at from events force index (idx_events_ready)
     where status = 'PENDING' and available_at is null order by id limit ? for update skip locked";

const CLAIM: &str = "update events force index (primary)
     set status = 'PROCESSING', attempts = attempts + 1, claim_seq = claim_seq + 1,
         processing_started_at = utc_timestamp(6), updated_at = utc_timestamp(6)
     where";

const INSERT: &str =
    "insert into event_log (id, payload, status, attempts, created_at, updated_at, event_type)
     select id, event, 'COMPLETED', attempts, created_at, utc_timestamp(6), event_type
     from events force index (primary) where status = 'PROCESSING' and";

const DELETE: &str = "delete events from events force index (primary) where status = 'PROCESSING' and";

pub(super) async fn worker(events: u32) -> Result<Drained> {
    on_fresh(events, |pool| ours::worker(pool, events)).await
}

pub(super) async fn raw_overlapped(events: u32) -> Result<Drained> {
    on_fresh(events, async move |pool| {
        let (mut claims, mut moves) = (pool.acquire().await?, pool.acquire().await?);
        overlapped::run(events, async || claim(&mut claims).await, async |ids| finish(&mut moves, &ids).await)
            .await
    })
    .await
}

async fn claim(connection: &mut MySqlConnection) -> Result<Vec<i64>> {
    connection.execute(BEGIN).await?;
    let rows = sqlx::query(CHOOSE).bind(BATCH).fetch_all(&mut *connection).await?;
    let _event_bytes: usize = rows.iter().map(|row| row.get::<String, _>(1).len()).sum();
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    if !ids.is_empty() {
        change(connection, CLAIM, &ids).await?;
    }
    connection.execute("commit").await?;
    Ok(ids)
}

async fn finish(connection: &mut MySqlConnection, ids: &[i64]) -> Result<u64> {
    connection.execute(BEGIN).await?;
    change(connection, INSERT, ids).await?;
    let moved = change(connection, DELETE, ids).await?;
    connection.execute("commit").await?;
    Ok(moved)
}

async fn change(connection: &mut MySqlConnection, statement: &str, ids: &[i64]) -> Result<u64> {
    let marks = vec!["?"; ids.len()].join(", ");
    let mut query = sqlx::query(AssertSqlSafe(format!("{statement} id in ({marks})")));
    for id in ids {
        query = query.bind(id);
    }
    Ok(query.execute(connection).await?.rows_affected())
}

async fn on_fresh<F>(events: u32, drain: impl FnOnce(MySqlPool) -> F) -> Result<Drained>
where
    F: Future<Output = Result<Drained>>,
{
    let database = Fresh::create().await?;
    backlog::publish(&database.pool, events).await?;
    database.pool.execute("analyze table events").await?;
    let drained = drain(database.pool.clone()).await?;
    database.drop().await?;
    Ok(drained)
}
