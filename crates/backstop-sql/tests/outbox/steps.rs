//! Steps that many tests take: commit events, wait for a row's fate, put a dispatcher together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Handler};
use backstop_sql::outbox::{Dispatcher, Registry, dispatcher};
use backstop_sql::store::{At, DatabaseKind, Settle};
use backstop_sql::{Outbox, Supported};
use backstop_testkit::eventually;

use crate::harness::{Database, Row, Shop, metrics, order};

/// Far enough ahead that it does not come during a test.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Appends events in one transaction and commits it.
pub(crate) async fn commit<DB: Supported>(outbox: &Outbox<DB>, events: Vec<Event>) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all(events).await.unwrap();
    tx.commit().await.unwrap();
}

/// Orders `0`, `1`, … up to `count`, with ids that sort.
pub(crate) fn orders(count: usize) -> Vec<Event> {
    (0..count).map(|n| order(&format!("{n:04}"))).collect()
}

/// Waits until an event's row has a status.
pub(crate) async fn until_status(shop: &Shop<impl Database>, id: &str, status: i64) -> Row {
    eventually(&format!("status {status} of {id}"), async || shop.row(id).await.status == status).await;
    shop.row(id).await
}

/// Waits until so many rows have a status.
pub(crate) async fn until_count(shop: &Shop<impl Database>, status: i64, count: i64) {
    eventually(&format!("{count} rows of status {status}"), async || shop.count(status).await == count).await;
}

/// Makes a row look as if so many tries had failed.
pub(crate) async fn tried(shop: &Shop<impl Database>, id: &str, attempts: u32) {
    shop.set(id, &format!("attempts = {attempts}")).await;
}

/// In how many seconds a row is due, by the database's clock.
pub(crate) async fn due_in(shop: &Shop<impl Database>, id: &str) -> f64 {
    let now = shop.store.next_due(At::Database, None).await.unwrap().unwrap().asked_at;
    let due = shop.row(id).await.available_at.unwrap() - now;
    due.as_seconds_f64()
}

/// Settles a row as handled, just now.
pub(crate) async fn settle_done(shop: &Shop<impl Database>, id: &str) {
    let (id, settlement) = (id.to_owned(), Settlement::Done);
    let settle = Settle { id, claim: None, attempts: None, generation: None, settlement };
    assert_eq!(shop.store.settle(At::Database, &[settle]).await.unwrap(), 1);
}

/// Makes a row of another program's, whose headers nobody can read.
pub(crate) async fn make_unreadable(shop: &Shop<impl Database>, id: &str) {
    // Columns of the type JSON take no other text.
    let headers = if shop.kind == DatabaseKind::Sqlite { "not json" } else { "[]" };
    shop.set(id, &format!("headers = '{headers}'")).await;
}

/// A registry with one handler, for orders that were placed.
pub(crate) fn placed(handler: impl Handler) -> Registry {
    let registry = Registry::new();
    registry.register("Order", "OrderPlaced", handler).unwrap();
    registry
}

/// Starts a dispatcher alone, on the shop's table.
pub(crate) fn dispatch(
    shop: &Shop<impl Database>,
    settings: dispatcher::Settings,
    handler: impl Handler,
) -> Dispatcher {
    settings.start(shop.store.clone(), placed(handler), metrics()).unwrap()
}

/// What happened, in its order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
