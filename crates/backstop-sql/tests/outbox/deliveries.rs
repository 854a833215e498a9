//! What a handler is told beside its event, and what is said of a transaction that nobody ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Delivery, Event};
use tracing::Level;

use crate::harness::{DONE, Shop, order};
use crate::logs::Logs;
use crate::steps::until_status;

#[tokio::test]
async fn a_handler_is_told_the_attempt_the_component_the_route_and_since_when_an_event_waits() {
    let shop = Shop::open().await;
    let seen: Arc<Mutex<Vec<Delivery>>> = Arc::default();
    let handler = {
        let seen = seen.clone();
        move |delivery: Delivery| {
            let seen = seen.clone();
            async move {
                let attempt = delivery.attempt;
                seen.lock().unwrap().push(delivery);
                // Any error will do.
                if attempt < 3 { Err(format!("attempt {attempt}")) } else { Ok(()) }
            }
        }
    };
    let moment = Duration::from_millis(5);
    let outbox = shop.outbox().name("orders").interval(moment).retry_policy(move |_: u32, _: Jitter| moment);
    let outbox = outbox.on("Order", "OrderPlaced", handler).start().await.unwrap();
    let event = order("a");
    let since = event.occurred_at();
    outbox.transaction(async |tx| tx.append(event).await).await.unwrap();
    until_status(&shop, "a", DONE).await;
    outbox.close().await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    for delivery in &*seen {
        assert_eq!((&*delivery.component, &*delivery.route), ("orders", "Order/OrderPlaced"));
        // A row keeps microseconds.
        assert_eq!(delivery.since.timestamp_micros(), since.timestamp_micros());
        assert_eq!(delivery.event.id(), "a");
    }
}

#[tokio::test]
async fn a_transaction_that_is_dropped_with_events_in_it_says_so_and_one_that_was_ended_does_not() {
    let shop = Shop::open().await;
    let outbox = shop.outbox().on("Order", "OrderPlaced", |_: Event| async {}).start().await.unwrap();
    let logs = Logs::catch();
    let said = || logs.having(Level::WARN, "dropped without `commit`").len();

    drop(outbox.begin().await.unwrap());
    let mut rolled_back = outbox.begin().await.unwrap();
    rolled_back.append(order("a")).await.unwrap();
    rolled_back.rollback().await.unwrap();
    let mut committed = outbox.begin().await.unwrap();
    committed.append(order("b")).await.unwrap();
    committed.commit().await.unwrap();
    assert_eq!(said(), 0, "{}", logs.all());

    let mut forgotten = outbox.begin().await.unwrap();
    forgotten.append(order("c")).await.unwrap();
    drop(forgotten);
    assert_eq!(said(), 1, "{}", logs.all());
    outbox.close().await.unwrap();
}
