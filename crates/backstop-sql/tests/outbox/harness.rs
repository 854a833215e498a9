//! What the tests share: a fresh database with an outbox table, and short ways to look at it.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Event, telemetry};
use backstop_sql::Outbox;
use backstop_sql::TableName;
use backstop_sql::outbox::{Builder, SingleNode};
use backstop_sql::store::{SqlStore, Store};
use backstop_testkit::servers::{SqliteDatabase, sqlite};
use sqlx::{Row as _, Sqlite, SqlitePool};

/// Longer than any test runs: whoever waits this long was not woken.
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

/// A fresh SQLite file with a migrated table.
pub(crate) struct Shop {
    pub(crate) pool: SqlitePool,
    pub(crate) store: Arc<dyn Store>,
    _database: SqliteDatabase,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let database = sqlite();
        let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(SqlStore::on(pool.clone(), TableName::default()));
        store.migrate().await.unwrap();
        sqlx::query("create table shop_order (id text)").execute(&pool).await.unwrap();
        Self { pool, store, _database: database }
    }

    /// An outbox on the shop's table whose poller sleeps unless it is nudged, and whose retries come never:
    /// tests decide what runs when.
    pub(crate) fn outbox(&self) -> Builder<Sqlite, SingleNode> {
        Outbox::single_node(self.pool.clone()).interval(NEVER).retry_policy(|_: u32, _: Jitter| NEVER)
    }

    /// Inserts events without an outbox, as if another process had.
    pub(crate) async fn insert(&self, events: &[Event]) {
        let mut tx = self.pool.begin().await.unwrap();
        self.store.insert(&mut tx, events, None).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// The row of an event.
    pub(crate) async fn row(&self, id: &str) -> Row {
        self.find(id).await.unwrap_or_else(|| panic!("there is no row {id}"))
    }

    /// The row of an event, if there is one.
    pub(crate) async fn find(&self, id: &str) -> Option<Row> {
        let row = sqlx::query(
            "select status, attempts, last_error, done_at, locked_by, available_at, created_at, locked_at
             from outbox_event where event_id = ?",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await
        .unwrap()?;
        Some(Row {
            status: row.get(0),
            attempts: row.get(1),
            last_error: row.get(2),
            done_at: row.get(3),
            locked_by: row.get(4),
            available_at: row.get(5),
            created_at: row.get(6),
            locked_at: row.get(7),
        })
    }

    /// How many rows there are of a status.
    pub(crate) async fn count(&self, status: i64) -> i64 {
        let counted = sqlx::query_scalar("select count(*) from outbox_event where status = ?").bind(status);
        counted.fetch_one(&self.pool).await.unwrap()
    }

    /// How many rows there are.
    pub(crate) async fn rows(&self) -> i64 {
        sqlx::query_scalar("select count(*) from outbox_event").fetch_one(&self.pool).await.unwrap()
    }
}

/// What a test looks at of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) status: i64,
    pub(crate) attempts: i64,
    pub(crate) last_error: Option<String>,
    pub(crate) done_at: Option<String>,
    pub(crate) locked_by: Option<String>,
    pub(crate) available_at: String,
    pub(crate) created_at: String,
    pub(crate) locked_at: Option<String>,
}

pub(crate) const NEW: i64 = 0;
pub(crate) const DONE: i64 = 1;
pub(crate) const RETRY: i64 = 2;
pub(crate) const DEAD: i64 = 3;

/// An event about order `id`, with that id.
pub(crate) fn order(id: &str) -> Event {
    Event::of("OrderPlaced").id(id).aggregate("Order", id).json(&serde_json::json!({ "order": id })).unwrap()
}

/// Metrics of their own, for parts that are used alone.
pub(crate) fn metrics() -> Arc<telemetry::Outbox> {
    Arc::new(telemetry::Outbox::new("test"))
}
