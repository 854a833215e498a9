//! Burning down a backlog on PostgreSQL, and the same by hand over the same tables.

use std::time::Instant;

use anyhow::{Result, ensure};
use sqlx::{Executor, PgConnection, PgPool, Row};

use super::overlapped::{self, BATCH};
use super::{backlog, ours};
use crate::contender::Drained;
use crate::postgres::Fresh;

const CLAIM: &str = "with chosen as materialized (
         select ctid from events where status = 'PENDING' and available_at is null
         order by id limit $1 for update skip locked)
     update events as e
     set status = 'PROCESSING', attempts = attempts + 1, claim_seq = claim_seq + 1,
         processing_started_at = statement_timestamp(), updated_at = statement_timestamp()
     from chosen where e.ctid = chosen.ctid
     returning id, event::text, attempts, created_at";

const FINISH: &str = "with gone as (
         delete from events where status = 'PROCESSING' and id = any($1) returning *)
     insert into event_log (id, payload, status, attempts, created_at, updated_at, event_type)
     select id, event::text, 'COMPLETED', attempts, created_at, statement_timestamp(), event_type from gone";

pub(super) async fn worker(events: u32) -> Result<Drained> {
    on_fresh(events, |pool| ours::worker(pool, events)).await
}

/// One connection: a batch is claimed, then moved.
pub(super) async fn raw_one_connection(events: u32) -> Result<Drained> {
    on_fresh(events, async move |pool| {
        let mut connection = pool.acquire().await?;
        let start = Instant::now();
        let mut moved = 0;
        loop {
            let ids = claim(&mut connection).await?;
            if ids.is_empty() {
                break;
            }
            moved += finish(&mut connection, ids).await?;
        }
        ensure!(moved == u64::from(events), "{moved} of {events} are in the log");
        Ok(Drained { events, took: start.elapsed() })
    })
    .await
}

pub(super) async fn raw_overlapped(events: u32) -> Result<Drained> {
    on_fresh(events, async move |pool| overlap(pool, events, "set synchronous_commit = on").await).await
}

/// A claim that a crash of the server takes back is claimed again, so it need not wait for the disk.
pub(super) async fn raw_overlapped_lazy(events: u32) -> Result<Drained> {
    on_fresh(events, async move |pool| overlap(pool, events, "set synchronous_commit = off").await).await
}

async fn overlap(pool: PgPool, events: u32, claims_begin: &'static str) -> Result<Drained> {
    let (mut claims, mut moves) = (pool.acquire().await?, pool.acquire().await?);
    claims.execute(claims_begin).await?;
    overlapped::run(events, async || claim(&mut claims).await, async |ids| finish(&mut moves, ids).await)
        .await
}

async fn claim(connection: &mut PgConnection) -> Result<Vec<i64>> {
    let rows = sqlx::query(CLAIM).bind(BATCH).fetch_all(connection).await?;
    let _event_bytes: usize = rows.iter().map(|row| row.get::<String, _>(1).len()).sum();
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn finish(connection: &mut PgConnection, mut ids: Vec<i64>) -> Result<u64> {
    ids.sort_unstable();
    Ok(sqlx::query(FINISH).bind(ids).execute(connection).await?.rows_affected())
}

async fn on_fresh<F>(events: u32, drain: impl FnOnce(PgPool) -> F) -> Result<Drained>
where
    F: Future<Output = Result<Drained>>,
{
    let database = Fresh::create().await?;
    backlog::publish(&database.pool, events).await?;
    database.settle_down().await?;
    let drained = drain(database.pool.clone()).await?;
    database.drop().await?;
    Ok(drained)
}
