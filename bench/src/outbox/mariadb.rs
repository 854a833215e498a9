//! Draining a backlog on MariaDB or MySQL, against the same loops by hand.

use std::time::Instant;

use anyhow::{Result, ensure};
use backstop_sql::TableName;
use backstop_sql::store::{Done, SqlStore, Store};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, MySqlPool, Row};

use super::ours;
use super::raw::BATCH;
use crate::contender::Drained;
use crate::mariadb::Fresh;

const SELECT: &str =
    "(select event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, attempts,
         created_at, available_at
     from outbox_event force index (idx_status_available)
     where status = {status} and available_at <= utc_timestamp(6){free}
     order by available_at, created_at, event_id limit ?{lock})";

const FREE: &str = " and (locked_by is null or locked_at < utc_timestamp(6) - interval 5 minute)";

const FILL: &str = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status,
         attempts, available_at, created_at)
     with digits as (select 0 as d union all select 1 union all select 2 union all select 3 union all select 4
         union all select 5 union all select 6 union all select 7 union all select 8 union all select 9),
     numbers as (select 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d as n
         from digits a, digits b, digits c, digits d, digits e, digits f)
     select lpad(n, 26, '0'), 'OrderPlaced', 'Order', n, json_object('order', n, 'text', repeat('x', 170)), 0, 0,
         utc_timestamp(6) - interval 1 hour + interval n microsecond,
         utc_timestamp(6) - interval 1 hour + interval n microsecond
     from numbers where n <= ?";

pub(super) async fn single_node(events: u32) -> Result<Drained> {
    on_fresh(events, |pool| ours::single_node(pool, events, Some(500), Done::Keep)).await
}

pub(super) async fn multi_node(events: u32) -> Result<Drained> {
    on_fresh(events, |pool| ours::multi_node(pool, events, 500)).await
}

pub(super) async fn raw_select_done(events: u32) -> Result<Drained> {
    on_fresh(events, async |pool| drain(&pool, events, false).await).await
}

pub(super) async fn raw_claim_done(events: u32) -> Result<Drained> {
    on_fresh(events, async |pool| drain(&pool, events, true).await).await
}

async fn drain(pool: &MySqlPool, events: u32, claiming: bool) -> Result<Drained> {
    let (free, lock) = if claiming { (FREE, " for update skip locked") } else { ("", "") };
    let select = SELECT.replace("{free}", free).replace("{lock}", lock);
    let select = format!("{} union all {}", select.replace("{status}", "0"), select.replace("{status}", "2"));
    let mut connection = pool.acquire().await?;
    let start = Instant::now();
    let mut settled = 0;
    loop {
        let rows = match claiming {
            true => claim(&mut connection, &select).await?,
            false => read(&mut connection, &select).await?,
        };
        if rows.is_empty() {
            break;
        }
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let _payload_bytes: usize = rows.iter().map(|row| row.get::<String, _>(5).len()).sum();
        settled += update(&mut connection, DONE, &ids).await?;
    }
    ensure!(settled == u64::from(events), "{settled} of {events} are done");
    Ok(Drained { events, took: start.elapsed() })
}

const DONE: &str = "status = 1, done_at = utc_timestamp(6), locked_by = null, locked_at = null
     where status not in (1, 3) and";
const LOCK: &str = "locked_by = 'raw', locked_at = utc_timestamp(6), claim_seq = claim_seq + 1 where";

async fn read(connection: &mut MySqlConnection, select: &str) -> Result<Vec<MySqlRow>> {
    let query = sqlx::query(AssertSqlSafe(select)).bind(BATCH).bind(BATCH);
    Ok(query.fetch_all(connection).await?)
}

async fn claim(connection: &mut MySqlConnection, select: &str) -> Result<Vec<MySqlRow>> {
    connection.execute("set transaction isolation level read committed; start transaction").await?;
    let rows = read(connection, select).await?;
    if !rows.is_empty() {
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        update(connection, LOCK, &ids).await?;
    }
    connection.execute("commit").await?;
    Ok(rows)
}

async fn update(connection: &mut MySqlConnection, set: &str, ids: &[String]) -> Result<u64> {
    let marks = vec!["?"; ids.len()].join(", ");
    let mut query =
        sqlx::query(AssertSqlSafe(format!("update outbox_event set {set} event_id in ({marks})")));
    for id in ids {
        query = query.bind(id);
    }
    Ok(query.execute(connection).await?.rows_affected())
}

async fn on_fresh<F>(events: u32, drain: impl FnOnce(MySqlPool) -> F) -> Result<Drained>
where
    F: Future<Output = Result<Drained>>,
{
    ensure!(events <= 1_000_000, "at most a million events on MariaDB");
    let database = Fresh::create().await?;
    let pool = &database.pool;
    SqlStore::on(pool.clone(), TableName::default()).migrate().await?;
    sqlx::query(FILL).bind(events).execute(pool).await?;
    pool.execute("analyze table outbox_event").await?;
    let drained = drain(pool.clone()).await?;
    database.drop().await?;
    Ok(drained)
}
