//! An outbox of a settings file on each database, and events in every state, for the tests of `backstop outbox`.

use std::any::Any;
use std::process::{Child, Stdio};
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, Event, SystemClock, Timestamp};
use backstop_sql::TableName;
use backstop_sql::store::{At, Settle, SqlStore, Store};
use backstop_testkit::servers;

use crate::support::{Ended, Place};

/// A settings file with one outbox, and its table.
pub(crate) struct Tables {
    pub(crate) place: Place,
    pub(crate) store: SqlStore,
    url: String,
    /// Goes last: the database goes with it.
    _database: Box<dyn Any>,
}

/// With a poller that looks at the table often.
pub(crate) const SETTINGS: &str = "\
outbox:
  name: orders
  database: {url: env:ORDERS_URL}
  poller: {interval-ms: 100}
  handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

pub(crate) async fn on_sqlite() -> Option<Tables> {
    let database = servers::sqlite();
    Some(Tables::open(database.url(), database).await)
}

pub(crate) async fn on_postgres() -> Option<Tables> {
    let database = servers::postgres().await?;
    Some(Tables::open(database.url(), database).await)
}

pub(crate) async fn on_mysql() -> Option<Tables> {
    let database = servers::mysql().await?;
    Some(Tables::open(database.url(), database).await)
}

impl Tables {
    /// On the database of that URL, which the caller keeps.
    pub(crate) async fn on(url: String) -> Self {
        Self::open(url, ()).await
    }

    async fn open(url: String, database: impl Any) -> Self {
        let place = Place::with(SETTINGS).variable("ORDERS_URL", url.clone());
        place.run(&["migrate"]).with(0);
        let store = SqlStore::connect(&url, TableName::default()).await.unwrap();
        Self { place, store, url, _database: Box::new(database) }
    }

    /// Runs `backstop outbox`.
    pub(crate) fn outbox(&self, arguments: &[&str]) -> Ended {
        self.place.run(&[&["outbox"], arguments].concat())
    }

    /// Starts `backstop outbox`, and does not wait for it.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.place.command(&[&["outbox"], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Inserts an event.
    pub(crate) async fn insert(&self, id: &str, event_type: &str, about: &str) {
        let event = Event::of(event_type).id(id).aggregate(about, "42").payload_json("{\"total\":1.10}");
        assert!(self.store.bring_back(&event.build().unwrap()).await.unwrap());
    }

    /// Inserts an event that is dead since the moment given.
    pub(crate) async fn bury(&self, id: &str, event_type: &str, error: &str, since: Timestamp) {
        self.insert(id, event_type, "Order").await;
        self.settle_at(At::Instant(since), id, Settlement::Dead { error: error.to_owned() }).await;
    }

    /// Inserts so many dead events, `e-0000` and so on.
    pub(crate) async fn bury_many(&self, number: u32) {
        for index in 0..number {
            self.bury(&format!("e-{index:04}"), "OrderPlaced", "timeout: no answer", SystemClock.now()).await;
        }
    }

    pub(crate) async fn settle(&self, id: &str, settlement: Settlement) {
        self.settle_at(At::Database, id, settlement).await;
    }

    async fn settle_at(&self, at: At, id: &str, settlement: Settlement) {
        let settle = Settle { id: id.to_owned(), claim: None, attempts: None, generation: None, settlement };
        assert_eq!(self.store.settle(at, &[settle]).await.unwrap(), 1);
    }

    /// Claims everything that is due.
    pub(crate) async fn claim(&self, node: &str) {
        let due = backstop_sql::store::Due { limit: 100, ..Default::default() };
        self.store.claim(&node.into(), Duration::from_secs(60), due).await.unwrap();
    }

    /// Runs a statement on the SQLite file of the settings.
    pub(crate) async fn run(&self, statement: &'static str) {
        let pool = sqlx::SqlitePool::connect(&self.url).await.unwrap();
        sqlx::query(statement).execute(&pool).await.unwrap();
        pool.close().await;
    }

    /// The status of an event, if it has a row.
    pub(crate) async fn status(&self, id: &str) -> Option<i64> {
        Some(self.store.whereabouts(At::Database, id).await.unwrap()?.status)
    }

    /// How many events are dead.
    pub(crate) async fn dead(&self) -> u64 {
        self.store.count_dead(&backstop_sql::store::DeadFilter::default()).await.unwrap()
    }
}
