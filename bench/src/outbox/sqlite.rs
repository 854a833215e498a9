//! Draining a backlog on SQLite, against the same loop by hand.

use std::time::Instant;

use anyhow::{Result, ensure};
use backstop_sql::TableName;
use backstop_sql::store::{Done, SqlStore, Store};
use sqlx::{AssertSqlSafe, Executor, Row, SqlitePool};

use super::ours;
use super::raw::BATCH;
use crate::contender::Drained;
use crate::sqlite::Fresh;

const FILL: &str = "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ?)
     insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, attempts,
         available_at, created_at)
     select printf('%026d', n), 'OrderPlaced', 'Order', n, json_object('order', n, 'text', ?), 0, 0,
         strftime('%Y-%m-%d %H:%M:%S', 'now', '-1 hour', (n / 1000000) || ' seconds') || printf('.%06d', n % 1000000),
         strftime('%Y-%m-%d %H:%M:%S', 'now', '-1 hour', (n / 1000000) || ' seconds') || printf('.%06d', n % 1000000)
     from numbers";

const SELECT: &str =
    "select event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, attempts,
         created_at, available_at
     from outbox_event indexed by idx_due
     where status in (0, 2) and available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
     order by available_at, created_at, event_id limit ?";

pub(super) async fn single_node(events: u32) -> Result<Drained> {
    on_fresh(events, |pool| ours::single_node(pool, events, Some(500), Done::Keep)).await
}

pub(super) async fn raw_select_done(events: u32) -> Result<Drained> {
    on_fresh(events, async |pool| drain(&pool, events).await).await
}

async fn drain(pool: &SqlitePool, events: u32) -> Result<Drained> {
    let mut connection = pool.acquire().await?;
    let start = Instant::now();
    let mut settled = 0;
    loop {
        let rows = sqlx::query(SELECT).bind(BATCH).fetch_all(&mut *connection).await?;
        if rows.is_empty() {
            break;
        }
        let _payload_bytes: usize = rows.iter().map(|row| row.get::<String, _>(5).len()).sum();
        let marks = vec!["?"; rows.len()].join(", ");
        let mut done = sqlx::query(AssertSqlSafe(format!(
            "update outbox_event set status = 1, done_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
                 locked_by = null, locked_at = null
             where status not in (1, 3) and event_id in ({marks})"
        )));
        for row in &rows {
            done = done.bind(row.get::<String, _>(0));
        }
        settled += done.execute(&mut *connection).await?.rows_affected();
    }
    ensure!(settled == u64::from(events), "{settled} of {events} are done");
    Ok(Drained { events, took: start.elapsed() })
}

async fn on_fresh<F>(events: u32, drain: impl FnOnce(SqlitePool) -> F) -> Result<Drained>
where
    F: Future<Output = Result<Drained>>,
{
    let database = Fresh::create().await?;
    let pool = &database.pool;
    SqlStore::on(pool.clone(), TableName::default()).migrate().await?;
    sqlx::query(FILL).bind(events).bind("x".repeat(170)).execute(pool).await?;
    pool.execute("analyze").await?;
    pool.execute("pragma wal_checkpoint(truncate)").await?;
    let drained = drain(pool.clone()).await?;
    database.drop().await;
    Ok(drained)
}
