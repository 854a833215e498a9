//! Events in flight: held in memory from the queue to the settlement, and never delivered twice meanwhile.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::outbox::dispatcher::Settings;
use backstop_sql::outbox::{Hold, InFlight, Queued, Tracker};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::handlers::{Recording, Slow};
use tokio::sync::Semaphore;

use crate::harness::{DONE, NEW, Shop, order, shop};
use crate::spied::Spied;
use crate::steps::{commit, dispatch, orders, until_count, until_status};

/// Rules: O-332, O-333.
#[test]
fn an_id_is_held_once_until_it_is_let_go() {
    let tracker = InFlight::new();
    let hold = tracker.try_acquire("a").unwrap();
    assert!(tracker.try_acquire("a").is_none());
    assert!(tracker.try_acquire("b").is_some());
    assert_eq!(tracker.held(), 2);
    tracker.release(&hold);
    assert_eq!(tracker.held(), 1);
    assert!(tracker.try_acquire("a").is_some());
}

/// Rules: O-272, O-334.
#[test]
fn without_a_time_to_live_an_id_is_held_for_ever() {
    let clock = ManualClock::new();
    let tracker = InFlight::new().clock(clock.clone());
    let _hold = tracker.try_acquire("a").unwrap();
    clock.advance(Duration::from_secs(100 * 365 * 86_400));
    assert!(tracker.try_acquire("a").is_none());
    assert_eq!(format!("{:?}", InFlight::default()), "InFlight { held: 0, ttl: None, .. }");
}

/// Rules: O-335.
#[test]
fn an_id_older_than_its_time_to_live_can_be_taken_again_and_its_first_holder_frees_nothing() {
    let clock = ManualClock::new();
    let tracker = InFlight::with_ttl(Duration::from_secs(60)).clock(clock.clone());
    let first = tracker.try_acquire("a").unwrap();
    clock.advance(Duration::from_secs(60));
    assert!(tracker.try_acquire("a").is_none(), "as old as the time-to-live is not older");
    clock.advance(Duration::from_micros(1));
    let second = tracker.try_acquire("a").unwrap();
    tracker.release(&first);
    assert!(tracker.try_acquire("a").is_none());
    tracker.release(&second);
    assert!(tracker.try_acquire("a").is_some());
}

/// Rules: O-336.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_who_want_an_id_at_once_exactly_one_gets_it() {
    let tracker = Arc::new(InFlight::new());
    for round in 0..50 {
        let start = Arc::new(tokio::sync::Barrier::new(16));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (tracker, start) = (tracker.clone(), start.clone());
            tasks.spawn(async move {
                start.wait().await;
                tracker.try_acquire(&round.to_string())
            });
        }
        let won = tasks.join_all().await.into_iter().flatten().count();
        assert_eq!(won, 1);
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-272, O-288, O-331.
    async fn an_event_that_waits_or_is_being_handled_is_dropped_when_it_is_offered_again(shop) {
        shop.insert(&orders(2)).await;
        let recorder = Recording::new();
        let gate = Slow::gated().then(recorder.clone());
        let dispatcher = dispatch(&shop, Settings::default().worker_count(1), gate.clone());
        for order in orders(2) {
            assert!(dispatcher.enqueue(Queued::hot(order)));
        }
        gate.until_began(1).await; // one is being handled, the other waits
        for order in orders(2) {
            assert!(dispatcher.enqueue(Queued::hot(order.clone())), "its delivery is under way");
            assert!(dispatcher.enqueue(Queued::cold(order, 0)));
        }
        gate.open();
        dispatcher.close().await.unwrap();
        assert_eq!(recorder.ids(), ["0000", "0001"]);
    }

    /// Rules: O-288.
    async fn the_poller_does_not_deliver_again_what_waits_in_a_queue(shop) {
        let recorder = Recording::new();
        let gate = Slow::gated().then(recorder.clone());
        let outbox =
            shop.outbox().worker_count(1).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        commit(&outbox, orders(5)).await;
        gate.until_began(1).await;
        shop.insert(&[order("other")]).await;
        for _ in 0..3 {
            outbox.nudge();
            backstop_testkit::eventually("the poller to look", async || {
                outbox.metrics().enqueue_cold.total() == 1
            })
            .await;
        }
        gate.open();
        until_count(&shop, DONE, 6).await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.events().len(), 6);
    }
}

database_suite! {
    over shop on 2 threads

    /// The poller has read a row; before it hands the row on, the hot path delivers and settles it.
    async fn an_event_that_is_settled_while_the_poller_reads_is_not_delivered_again(shop) {
        let (reading, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (read, held) = (reading.clone(), go_on.clone());
        let store = Spied::of(&shop.store).after_read(move || {
            let (read, held) = (read.clone(), held.clone());
            async move {
                read.add_permits(1);
                if let Ok(permit) = held.acquire().await {
                    permit.forget();
                }
            }
        });
        let recorder = Recording::new();
        let gate = Slow::gated().then(recorder.clone());
        go_on.add_permits(1); // the look at the start finds nothing
        let outbox =
            shop.outbox().store(store.shared()).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        reading.acquire().await.unwrap().forget();

        commit(&outbox, vec![order("1")]).await;
        gate.until_began(1).await;
        outbox.nudge();
        reading.acquire().await.unwrap().forget(); // the poller has the row in its hands
        gate.open();
        until_status(&shop, "1", DONE).await;
        go_on.close();
        // A later look that finds another row shows that the earlier one is over.
        shop.insert(&[order("2")]).await;
        outbox.nudge();
        until_status(&shop, "2", DONE).await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.count_of("1"), 1);
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-009.
    async fn what_a_process_held_is_forgotten_with_it_and_delivered_by_the_next(shop) {
        let stuck = Slow::gated();
        let outbox = shop
            .outbox()
            .drain_timeout(Duration::from_millis(10))
            .on("Order", "OrderPlaced", stuck.clone())
            .start()
            .await
            .unwrap();
        commit(&outbox, vec![order("1")]).await;
        stuck.until_began(1).await;
        assert!(outbox.close().await.is_err());
        assert_eq!(shop.row("1").await.status, NEW);

        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(1).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("1").await.status, DONE);
    }
}

/// A tracker that lets nobody hold anything.
struct Jealous;

impl Tracker for Jealous {
    fn try_acquire(&self, _: &str) -> Option<Hold> {
        None
    }

    fn release(&self, _: &Hold) {}

    fn held(&self) -> usize {
        0
    }
}

/// Rules: O-272.
#[tokio::test]
async fn a_tracker_of_ones_own_takes_the_place_of_the_standard_one() {
    let shop = Shop::open().await;
    shop.insert(&[order("1")]).await;
    let dispatcher = dispatch(&shop, Settings::default().tracker(Jealous), |_: Event| async {});
    assert!(dispatcher.enqueue(Queued::hot(order("1"))), "it is in flight elsewhere, says the tracker");
    dispatcher.close().await.unwrap();
    assert_eq!(shop.row("1").await.status, NEW);
}
