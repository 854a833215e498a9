//! Hand-written loops over the same table and columns: the ceiling.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::{PgPool, Row};

const BATCH: i64 = 500;

/// One node that owns the table: read a batch, mark it done.
pub(crate) async fn select_and_done(pool: PgPool, events: u32) -> Result<Duration> {
    select_and(pool, events, DONE).await
}

/// One node that owns the table: read a batch, delete it.
pub(crate) async fn select_and_delete(pool: PgPool, events: u32) -> Result<Duration> {
    select_and(pool, events, DELETE).await
}

const DONE: &str = "update outbox_event
     set status = 1, done_at = statement_timestamp(), locked_by = null, locked_at = null
     where status not in (1, 3) and event_id = any($1)";
const DELETE: &str = "delete from outbox_event where status not in (1, 3) and event_id = any($1)";

async fn select_and(pool: PgPool, events: u32, settle: &'static str) -> Result<Duration> {
    let mut connection = pool.acquire().await?;
    let start = Instant::now();
    let mut seen = 0;
    loop {
        let rows = sqlx::query(
            "select event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload::text, headers::text,
                 attempts, created_at, available_at
             from outbox_event where status in (0, 2) and available_at <= statement_timestamp()
             order by available_at, created_at, event_id limit $1",
        )
        .bind(BATCH)
        .fetch_all(&mut *connection)
        .await?;
        if rows.is_empty() {
            break;
        }
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let _payload_bytes: usize = rows.iter().map(|row| row.get::<String, _>(5).len()).sum();
        seen += run(&mut connection, settle, &ids).await?;
    }
    ensure!(seen == u64::from(events));
    Ok(start.elapsed())
}

/// One of several nodes: claim a batch by writing the lock columns, mark it done.
pub(crate) async fn claim_and_done(pool: PgPool, events: u32) -> Result<Duration> {
    let mut connection = pool.acquire().await?;
    let start = Instant::now();
    let mut seen = 0;
    loop {
        let rows = sqlx::query(
            "with due as materialized (
                 select ctid from outbox_event
                 where status in (0, 2) and available_at <= statement_timestamp()
                   and (locked_by is null or locked_at < statement_timestamp() - interval '5 minutes')
                 order by available_at, created_at, event_id limit $1 for update skip locked)
             update outbox_event as o
             set locked_by = 'raw', locked_at = statement_timestamp(), claim_seq = claim_seq + 1
             from due where o.ctid = due.ctid
             returning event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload::text, headers::text,
                 attempts, created_at, available_at",
        )
        .bind(BATCH)
        .fetch_all(&mut *connection)
        .await?;
        if rows.is_empty() {
            break;
        }
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let _payload_bytes: usize = rows.iter().map(|row| row.get::<String, _>(5).len()).sum();
        seen += run(&mut connection, DONE, &ids).await?;
    }
    ensure!(seen == u64::from(events));
    Ok(start.elapsed())
}

async fn run(connection: &mut sqlx::PgConnection, settle: &'static str, ids: &[String]) -> Result<u64> {
    Ok(sqlx::query(settle).bind(ids).execute(connection).await?.rows_affected())
}
