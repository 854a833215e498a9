//! Dead letters: written before the row says DEAD, and a warning where they cannot be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::burial::Cause;
use backstop_core::{CloudEvent, Event, Failure, Outcome};
use backstop_sql::Outbox;
use sqlx::Sqlite;
use tracing::Level;

use crate::harness::{DEAD, NEW, Shop, order};
use crate::logs::Logs;
use crate::steps::{commit, orders, until_count, until_status};

async fn append(outbox: &Outbox<Sqlite>, event: Event) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append(event).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_letter_is_safe_before_the_row_says_dead() {
    let shop = Shop::open().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (pool, seeing) = (shop.pool.clone(), Arc::clone(&seen));
    let outbox = shop
        .outbox()
        .on("Order", "OrderPlaced", |_: Event| async { Outcome::dead_because("cancelled") })
        .dead_letters(move |event: CloudEvent, cause: Cause| {
            let (pool, seeing) = (pool.clone(), Arc::clone(&seeing));
            async move {
                let status = sqlx::query_scalar::<_, i64>("select status from outbox_event");
                let status = status.fetch_one(&pool).await?;
                let cause = (cause.error, cause.attempts, cause.first_failed_at == Some(cause.failed_at));
                seeing.lock().unwrap().push((event.id().to_owned(), status, cause));
                Ok::<(), Failure>(())
            }
        })
        .start()
        .await
        .unwrap();
    append(&outbox, order("1")).await;
    until_status(&shop, "1", DEAD).await;
    outbox.close().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [("1".to_owned(), NEW, ("cancelled".to_owned(), 1, true))]);
}

#[tokio::test]
async fn a_letter_that_is_not_taken_is_one_warning_that_shows_no_payload() {
    let shop = Shop::open().await;
    let logs = Logs::catch();
    let outbox = shop
        .outbox()
        .on("Order", "OrderPlaced", |_: Event| async { Outcome::dead() })
        .dead_letters(|_: CloudEvent, _: Cause| async {
            Err::<(), _>(Failure::transient("dead-letters", "no room"))
        })
        .start()
        .await
        .unwrap();
    append(&outbox, order("o-17")).await;
    until_status(&shop, "o-17", DEAD).await;
    outbox.close().await.unwrap();
    let warnings = logs.having(Level::WARN, "the dead event is in the table only");
    assert_eq!(warnings.len(), 1, "{}", logs.all());
    assert!(warnings[0].contains("event_id=\"o-17\"") && warnings[0].contains("dead-letters: no room"));
    assert!(!logs.all().contains(order("o-17").payload_json()), "{}", logs.all());
    assert_eq!(outbox.metrics().letter_failed.total(), 1);
}

#[tokio::test]
async fn a_disk_that_hangs_holds_the_workers_once_and_not_for_every_event() {
    let shop = Shop::open().await;
    let logs = Logs::catch();
    let tried = Arc::new(AtomicU64::new(0));
    let trying = Arc::clone(&tried);
    let outbox = shop
        .outbox()
        .worker_count(1)
        .on("Order", "OrderPlaced", |_: Event| async { Outcome::dead() })
        .dead_letters(move |_: CloudEvent, _: Cause| {
            trying.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<(), Failure>>()
        })
        .dead_letter_timeout(Duration::from_secs(1))
        .start()
        .await
        .unwrap();
    commit(&outbox, orders(200)).await;
    until_count(&shop, DEAD, 200).await;
    outbox.close().await.unwrap();
    let tried = tried.load(Ordering::SeqCst);
    assert!((1..100).contains(&tried), "{tried} of 200 were tried");
    assert_eq!(outbox.metrics().letter_failed.total(), 200);
    assert_eq!(logs.having(Level::WARN, "writing dead letters hangs").len(), 1, "{}", logs.all());
    let told = logs.having(Level::WARN, "the dead event is in the table only");
    assert_eq!(told.len() as u64, tried, "{}", logs.all());
}
