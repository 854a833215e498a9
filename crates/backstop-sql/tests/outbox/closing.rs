//! Closing: what is queued is drained, what does not end is left to the next start, and `close` comes back.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backstop_core::Event;
use backstop_sql::Error;
use backstop_sql::outbox::dispatcher::Settings;
use backstop_sql::outbox::{Dispatcher, Queued};
use backstop_testkit::handlers::{Recording, Slow};
use tracing::Level;

use crate::harness::{DONE, NEVER, NEW, Shop, metrics, order, shop};
use crate::logs::Logs;
use crate::spied::Spied;
use crate::steps::{commit, dispatch, orders, placed};

const SHORT: Duration = Duration::from_millis(100);

/// Closes, and fails if that takes far longer than the drain time-out.
async fn close_in_time(dispatcher: &Dispatcher) -> Result<(), Error> {
    let began = Instant::now();
    let closed = tokio::time::timeout(Duration::from_secs(5), dispatcher.close()).await;
    let closed = closed.expect("close does not come back");
    assert!(began.elapsed() >= SHORT || closed.is_ok());
    closed
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-287, O-323.
    async fn what_is_queued_is_handled_and_settled_before_close_returns(shop) {
        shop.insert(&orders(20)).await;
        let recorder = Recording::of(Slow::by(Duration::from_millis(5)));
        let dispatcher = dispatch(&shop, Settings::default().worker_count(2), recorder.clone());
        for (n, order) in orders(20).into_iter().enumerate() {
            assert!(dispatcher.enqueue(if n % 2 == 0 { Queued::hot(order) } else { Queued::cold(order, 0) }));
        }
        dispatcher.close().await.unwrap();
        assert_eq!((recorder.events().len(), shop.count(DONE).await), (20, 20));
        dispatcher.close().await.unwrap();
    }

    /// Rules: O-324, O-325.
    async fn a_handler_that_never_ends_is_aborted_and_its_event_stays_in_the_table(shop) {
        let logs = Logs::catch();
        shop.insert(&orders(3)).await;
        let stuck = Slow::gated();
        let settings = Settings::default().worker_count(1).drain_timeout(SHORT);
        let dispatcher = dispatch(&shop, settings, stuck.clone());
        for order in orders(3) {
            assert!(dispatcher.enqueue(Queued::hot(order)));
        }
        stuck.until_began(1).await;
        let closed = close_in_time(&dispatcher).await;
        assert!(matches!(closed, Err(Error::Drain(SHORT))), "{closed:?}");
        assert_eq!((stuck.in_progress(), shop.count(NEW).await), (0, 3));
        let told = logs.having(Level::WARN, "stay in the table");
        assert!(told[0].contains("running=1") && told[0].contains("hot=2"), "{told:?}");
    }

    /// Rules: O-325.
    async fn what_others_finished_is_settled_although_one_handler_never_ends(shop) {
        shop.insert(&orders(5)).await;
        let dispatcher = dispatch(&shop, Settings::default().drain_timeout(SHORT), |event: Event| async move {
            if event.id() == "0002" {
                pending::<()>().await;
            }
        });
        for order in orders(5) {
            assert!(dispatcher.enqueue(Queued::hot(order)));
        }
        assert!(close_in_time(&dispatcher).await.is_err());
        assert_eq!((shop.count(DONE).await, shop.row("0002").await.status), (4, NEW));
    }
}

/// Rules: O-324, O-325.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_its_thread_does_not_keep_close_from_returning() {
    let shop = Shop::open().await;
    shop.insert(&orders(2)).await;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let recorder = Recording::of(move |event: Event| {
        let blocked = blocked.clone();
        async move {
            if event.id() == "0000" {
                let _ = blocked.lock().unwrap().recv(); // no await: nobody can abort it here
            }
        }
    });
    let dispatcher = dispatch(&shop, Settings::default().drain_timeout(SHORT), recorder.clone());
    for order in orders(2) {
        assert!(dispatcher.enqueue(Queued::hot(order)));
    }
    recorder.until(2).await;
    let closed = close_in_time(&dispatcher).await;
    drop(release);
    assert!(matches!(closed, Err(Error::Drain(_))), "{closed:?}");
    assert_eq!((shop.row("0000").await.status, shop.row("0001").await.status), (NEW, DONE));
}

/// Rules: O-324.
#[tokio::test]
async fn a_database_that_never_answers_does_not_keep_close_from_returning() {
    let shop = Shop::open().await;
    shop.insert(&[order("1")]).await;
    let store = Spied::of(&shop.store).before_settle(pending);
    let recorder = Recording::new();
    let dispatcher = Settings::default()
        .drain_timeout(SHORT)
        .start(store.shared(), placed(recorder.clone()), metrics())
        .unwrap();
    assert!(dispatcher.enqueue(Queued::hot(order("1"))));
    recorder.until_answered(1).await;
    let closed = close_in_time(&dispatcher).await;
    assert!(matches!(closed, Err(Error::Drain(_))), "{closed:?}");
}

#[tokio::test]
async fn whoever_closes_second_waits_for_the_first() {
    let shop = Shop::open().await;
    shop.insert(&[order("1")]).await;
    let gate = Slow::gated();
    let dispatcher = Arc::new(dispatch(&shop, Settings::default(), gate.clone()));
    assert!(dispatcher.enqueue(Queued::hot(order("1"))));
    gate.until_began(1).await;
    let first = tokio::spawn({
        let dispatcher = dispatcher.clone();
        async move { dispatcher.close().await }
    });
    backstop_testkit::eventually("closing", async || dispatcher.cold_queue_remaining_capacity() == 0).await;
    let mut second = Box::pin(dispatcher.close());
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut second).await.is_err());
    gate.open();
    second.await.unwrap();
    assert_eq!(shop.row("1").await.status, DONE);
    first.await.unwrap().unwrap();
}

database_suite! {
    over shop on 1 thread

    async fn a_close_that_was_given_up_goes_on_by_itself(shop) {
        shop.insert(&orders(2)).await;
        let gate = Slow::gated();
        let settings = Settings::default().worker_count(1).drain_timeout(NEVER);
        let dispatcher = dispatch(&shop, settings, gate.clone());
        for order in orders(2) {
            assert!(dispatcher.enqueue(Queued::cold(order, 0)));
        }
        gate.until_began(1).await;
        assert!(tokio::time::timeout(SHORT, dispatcher.close()).await.is_err(), "it waits for the handler");
        gate.open();
        dispatcher.close().await.unwrap();
        assert_eq!(shop.count(DONE).await, 2, "whoever closes next waits for it");
    }

    async fn an_outbox_says_that_it_did_not_stop_in_time_and_the_next_one_delivers(shop) {
        let stuck = Slow::gated();
        let outbox = shop
            .outbox()
            .drain_timeout(SHORT)
            .worker_count(1)
            .on("Order", "OrderPlaced", stuck.clone())
            .start()
            .await
            .unwrap();
        commit(&outbox, orders(3)).await;
        stuck.until_began(1).await;
        assert!(matches!(outbox.close().await, Err(Error::Drain(_))));
        outbox.close().await.unwrap();
        // What is appended now waits in the table, and the commit does not fail.
        commit(&outbox, vec![order("late")]).await;
        assert_eq!(shop.count(NEW).await, 4);

        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(4).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.count(DONE).await, 4);
    }
}
