//! Where a test plays: a fresh PostgreSQL database with the table, an audit of its settlements, and a folder.

use std::time::Duration;

use backstop_sql::TableName;
use backstop_sql::store::{SqlStore, Store as _};
use backstop_testkit::eventually_within;
use backstop_testkit::servers::{self, Directory, PostgresDatabase};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, query, query_scalar, raw_sql};

use super::PATIENCE;
use super::ledger::Ledger;
use super::node::Settings;
use super::turn::Turn;

/// Writes down every row that ends: which session ended it, and whose claim the row was under at that moment.
const AUDIT: &str = "
create table settled (event_id text not null, session text not null, owner text, status smallint not null);
create function audit() returns trigger language plpgsql as $$ begin
  insert into settled select n.event_id, current_setting('application_name'), o.locked_by, n.status
  from n join o using (event_id) where n.status in (1, 3) and o.status not in (1, 3);
  return null;
end $$;
create trigger audit after update on outbox_event
  referencing old table as o new table as n for each statement execute function audit();";

pub(crate) struct Stage {
    url: String,
    pub(crate) pool: PgPool,
    folder: Directory,
    /// Dropped last, and the database with it.
    _database: Option<PostgresDatabase>,
    _turn: Turn,
}

impl Stage {
    /// On the shared server; `None` where there is none, and then the test is marked as skipped.
    pub(crate) async fn shared() -> Option<Self> {
        let database = servers::postgres().await?;
        Some(Self::of(database.url(), Some(database), Turn::beside().await).await)
    }

    /// The same, with no other test running.
    pub(crate) async fn alone() -> Option<Self> {
        let database = servers::postgres().await?;
        Some(Self::of(database.url(), Some(database), Turn::alone().await).await)
    }

    /// On the database of a URL.
    pub(crate) async fn on(url: String) -> Self {
        Self::of(url, None, Turn::beside().await).await
    }

    async fn of(url: String, database: Option<PostgresDatabase>, turn: Turn) -> Self {
        let pool = PgPoolOptions::new().max_connections(5).connect(&url).await.unwrap();
        SqlStore::on(pool.clone(), TableName::default()).migrate().await.unwrap();
        raw_sql(AUDIT).execute(&pool).await.unwrap();
        Self { url, pool, folder: servers::directory(), _database: database, _turn: turn }
    }

    /// A node of that name, which its sessions bear too, so that the audit knows it.
    pub(crate) fn node(&self, name: &str) -> Settings {
        self.node_at(name, &self.url)
    }

    /// The same by another way, such as a proxy.
    pub(crate) fn node_at(&self, name: &str, url: &str) -> Settings {
        let sign = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{sign}application_name={name}");
        Settings::new(name, &url, self.folder.path().to_owned())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A backlog that nobody has claimed, written by plain SQL.
    pub(crate) async fn backlog(&self, events: usize) {
        let insert = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, \
             status, available_at, created_at) \
             select 'backlog-' || lpad(n::text, 8, '0'), 'Counted', 'Counter', (n % 100)::text, \
             json_build_object('n', n), 0, now(), now() from generate_series(1, $1) n";
        query(insert).bind(i64::try_from(events).unwrap()).execute(&self.pool).await.unwrap();
        // As autovacuum would soon; without it the first plans are made for an empty table.
        raw_sql("analyze outbox_event").execute(&self.pool).await.unwrap();
    }

    /// How many rows are in a state that plain SQL tells.
    pub(crate) async fn count(&self, condition: &'static str) -> usize {
        let sql = sqlx::AssertSqlSafe(format!("select count(*) from outbox_event where {condition}"));
        let count: i64 = query_scalar(sql).fetch_one(&self.pool).await.unwrap();
        usize::try_from(count).unwrap()
    }

    /// The events that a node has claimed and not settled.
    pub(crate) async fn claimed_by(&self, node: &str) -> Vec<String> {
        let claimed =
            "select event_id from outbox_event where locked_by = $1 and status in (0, 2) order by event_id";
        query_scalar(claimed).bind(node).fetch_all(&self.pool).await.unwrap()
    }

    /// Waits until a node whose handlers stand still has so many claims, and neither takes nor settles any more.
    pub(crate) async fn until_claimed(&self, node: &str, rows: usize) {
        let mut before = Vec::new();
        eventually_within(PATIENCE, &format!("{rows} rows claimed by {node}"), async || {
            let claimed = self.claimed_by(node).await;
            let is_still = claimed == before;
            before = claimed;
            tokio::time::sleep(Duration::from_millis(300)).await;
            is_still && before.len() >= rows
        })
        .await;
    }

    /// The database's clock, in microseconds.
    pub(crate) async fn database_now(&self) -> i64 {
        let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        query_scalar(now).fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until so many rows are done.
    pub(crate) async fn until_done(&self, rows: usize) {
        eventually_within(PATIENCE, &format!("{rows} rows that are done"), async || {
            // Counted only as far as it matters; a database that is being restarted is asked again.
            let done = "select count(*) from (select 1 from outbox_event where status = 1 limit $1) as done";
            let limit = i64::try_from(rows).unwrap();
            let done = query_scalar::<_, i64>(done).bind(limit).fetch_one(&self.pool).await;
            done.is_ok_and(|done| done >= limit)
        })
        .await;
    }

    /// Waits until no row waits any more.
    pub(crate) async fn until_drained(&self) {
        let waiting = "select exists(select 1 from outbox_event where status in (0, 2))";
        eventually_within(PATIENCE, "a table in which nothing waits", async || {
            // A database that is being restarted is asked again.
            query_scalar::<_, bool>(waiting).fetch_one(&self.pool).await.is_ok_and(|waits| !waits)
        })
        .await;
    }

    /// The same where nodes are still appending, of rows that are so many at least.
    pub(crate) async fn until_drained_for_good(&self, rows: usize) {
        self.until_done(rows).await;
        self.until_drained().await;
    }

    /// Everything that is known, after the fact.
    pub(crate) async fn ledger(&self) -> Ledger {
        let rows = "select event_id, status, payload::text, claim_seq from outbox_event";
        let rows = sqlx::query_as(rows).fetch_all(&self.pool).await.unwrap();
        let settled = "select event_id, session, owner, status from settled";
        let settled = sqlx::query_as(settled).fetch_all(&self.pool).await.unwrap();
        Ledger::read(rows, settled, self.folder.path())
    }
}
