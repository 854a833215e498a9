//! Burning down a backlog on SQLite, and the same by hand over the same tables. There only one can write at a time, so
//! the loop has one connection.

use std::time::Instant;

use anyhow::{Result, ensure};
use sqlx::{AssertSqlSafe, Executor, Row, SqliteConnection, SqlitePool};

use super::overlapped::BATCH;
use super::{backlog, ours};
use crate::contender::Drained;
use crate::sqlite::Fresh;

const NOW: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now')";

const CLAIM: &str = "update events
     set status = 'PROCESSING', attempts = attempts + 1, claim_seq = claim_seq + 1,
         processing_started_at = {now}, updated_at = {now}
     where id in (select id from events indexed by idx_events_ready
         where status = 'PENDING' and available_at is null order by id limit ?)
     returning id, event, attempts, created_at";

const INSERT: &str =
    "insert into event_log (id, payload, status, attempts, created_at, updated_at, event_type)
     select id, event, 'COMPLETED', attempts, created_at, {now}, event_type from events
     where status = 'PROCESSING' and";

const DELETE: &str = "delete from events where status = 'PROCESSING' and";

pub(super) async fn worker(events: u32) -> Result<Drained> {
    on_fresh(events, |pool| ours::worker(pool, events)).await
}

pub(super) async fn raw(events: u32) -> Result<Drained> {
    on_fresh(events, async move |pool| {
        let mut connection = pool.acquire().await?;
        let start = Instant::now();
        let mut moved = 0;
        loop {
            let claim = sqlx::query(AssertSqlSafe(CLAIM.replace("{now}", NOW))).bind(BATCH);
            let rows = claim.fetch_all(&mut *connection).await?;
            if rows.is_empty() {
                break;
            }
            let _event_bytes: usize = rows.iter().map(|row| row.get::<String, _>(1).len()).sum();
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            connection.execute("begin immediate").await?;
            change(&mut connection, INSERT, &ids).await?;
            moved += change(&mut connection, DELETE, &ids).await?;
            connection.execute("commit").await?;
        }
        ensure!(moved == u64::from(events), "{moved} of {events} are in the log");
        Ok(Drained { events, took: start.elapsed() })
    })
    .await
}

async fn change(connection: &mut SqliteConnection, statement: &str, ids: &[i64]) -> Result<u64> {
    let (statement, marks) = (statement.replace("{now}", NOW), vec!["?"; ids.len()].join(", "));
    let mut query = sqlx::query(AssertSqlSafe(format!("{statement} id in ({marks})")));
    for id in ids {
        query = query.bind(id);
    }
    Ok(query.execute(connection).await?.rows_affected())
}

async fn on_fresh<F>(events: u32, drain: impl FnOnce(SqlitePool) -> F) -> Result<Drained>
where
    F: Future<Output = Result<Drained>>,
{
    let database = Fresh::create().await?;
    backlog::publish(&database.pool, events).await?;
    database.pool.execute("analyze").await?;
    database.pool.execute("pragma wal_checkpoint(truncate)").await?;
    let drained = drain(database.pool.clone()).await?;
    database.drop().await;
    Ok(drained)
}
