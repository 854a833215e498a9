//! What the tests share: a fresh database with an outbox table, and short ways to look at it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Event, telemetry};
use backstop_sql::Outbox;
use backstop_sql::outbox::{Builder, SingleNode};
use backstop_sql::store::Store;
use sqlx::Sqlite;

use crate::fresh::Fresh;
pub(crate) use crate::fresh::{Database, State as Row};

/// Longer than any test runs: whoever waits this long was not woken.
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

/// A fresh database with a migrated table and one of the shop's own.
pub(crate) struct Shop<DB: Database = Sqlite> {
    pub(crate) store: Arc<dyn Store>,
    database: Fresh<DB>,
}

impl<DB: Database> Deref for Shop<DB> {
    type Target = Fresh<DB>;

    fn deref(&self) -> &Fresh<DB> {
        &self.database
    }
}

/// A shop on any database, for suites; `None` where there is no server for it.
pub(crate) async fn shop<DB: Database>() -> Option<Shop<DB>> {
    let database = DB::make_schema().await?;
    database.store.migrate().await.unwrap();
    database.run("create table shop_order (id varchar(36))").await;
    Some(Shop { store: Arc::new(database.store.clone()), database })
}

impl Shop {
    /// A shop on SQLite, for tests in which the database does not matter.
    pub(crate) async fn open() -> Self {
        shop().await.unwrap()
    }
}

impl<DB: Database> Shop<DB> {
    /// Another shop, on a database of the same kind.
    pub(crate) async fn another(&self) -> Self {
        shop().await.unwrap()
    }

    /// An outbox on the shop's table whose poller sleeps unless it is nudged, and whose retries come never:
    /// tests decide what runs when.
    pub(crate) fn outbox(&self) -> Builder<DB, SingleNode> {
        Outbox::single_node(self.pool.clone()).interval(NEVER).retry_policy(|_: u32, _: Jitter| NEVER)
    }

    /// The row of an event.
    pub(crate) async fn row(&self, id: &str) -> Row {
        self.state(id).await
    }

    /// How many rows there are of a status.
    pub(crate) async fn count(&self, status: i64) -> i64 {
        self.number(&format!("select count(*) from outbox_event where status = {status}")).await
    }

    /// How many rows there are.
    pub(crate) async fn rows(&self) -> i64 {
        self.number("select count(*) from outbox_event").await
    }
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
