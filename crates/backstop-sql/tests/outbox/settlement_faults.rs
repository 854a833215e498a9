//! Settlements that go wrong: handlers and policies that panic, databases that refuse.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::inspect::Health;
use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::Outbox;
use backstop_sql::outbox::Queued;
use backstop_sql::outbox::dispatcher::Settings;
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};
use tracing::Level;

use crate::flaky::Flaky;
use crate::harness::{DONE, Database, NEW, RETRY, Shop, metrics, order, shop};
use crate::logs::Logs;
use crate::spied::Spied;
use crate::steps::{commit, dispatch, due_in, orders, placed, tried, until_count, until_status};

/// Lets every update pass but those of one row.
async fn refuse_bad(shop: &Shop<impl Database>) {
    shop.refuse_updates("refuse", "new.event_id = 'bad'").await;
}

#[tokio::test]
async fn a_handler_that_panics_has_failed_and_its_worker_goes_on() {
    let shop = Shop::open().await;
    shop.insert(&orders(6)).await;
    let panics = |event: Event| async move {
        assert!(event.id() == "0005", "no stock for {}", event.id());
    };
    let dispatcher = dispatch(&shop, Settings::default().worker_count(1), panics);
    for order in orders(6) {
        assert!(dispatcher.enqueue(Queued::hot(order)));
    }
    let row = until_status(&shop, "0000", RETRY).await;
    assert_eq!(row.last_error.as_deref(), Some("panic: the handler panicked: no stock for 0000"));
    until_status(&shop, "0005", DONE).await;
    dispatcher.close().await.unwrap();
    assert_eq!(shop.count(RETRY).await, 5);
}

/// Panics before it even gives a future.
struct Unready;

impl Handler for Unready {
    fn handle(&self, _: Event) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        panic!("not ready");
        #[expect(unreachable_code, reason = "says which type the future would have")]
        async {
            Ok(Outcome::Done)
        }
    }
}

#[tokio::test]
async fn a_handler_that_panics_before_it_begins_has_failed_too() {
    let shop = Shop::open().await;
    shop.insert(&[order("1")]).await;
    let dispatcher = dispatch(&shop, Settings::default().worker_count(1), Unready);
    assert!(dispatcher.enqueue(Queued::hot(order("1"))));
    dispatcher.close().await.unwrap();
    assert_eq!(shop.row("1").await.last_error.as_deref(), Some("panic: the handler panicked: not ready"));
}

/// Rules: O-440.
#[tokio::test]
async fn a_retry_policy_that_panics_is_told_and_the_standard_delay_is_used() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    shop.insert(&orders(6)).await;
    let policy = |_: u32, _: Jitter| -> Duration { panic!("on purpose") };
    let settings = Settings::default().worker_count(1).retry_policy(policy);
    let dispatcher = dispatch(&shop, settings, Failing::always());
    for event in orders(6) {
        tried(&shop, event.id(), 4).await;
        assert!(dispatcher.enqueue(Queued::cold(event, 4)));
    }
    dispatcher.close().await.unwrap();
    assert_eq!(shop.count(RETRY).await, 6);
    assert_eq!(shop.row("0000").await.last_error.as_deref(), Some("test: failed on purpose"));
    let due = due_in(&shop, "0000").await;
    assert!((1.0..4.9).contains(&due), "{due}");
    assert!(!logs.having(Level::ERROR, "retry policy").is_empty(), "{}", logs.all());
}

/// Rules: O-298, O-440, O-447.
#[tokio::test]
async fn an_event_whose_settlement_is_refused_stays_in_hand_and_comes_again_only_after_a_restart() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let recorder = Recording::new();
    let start =
        || shop.outbox().store(store.clone()).worker_count(1).on("Order", "OrderPlaced", recorder.clone());
    let outbox = start().start().await.unwrap();
    switches.settle_fails.store(true, Ordering::SeqCst);
    commit(&outbox, vec![order("1"), order("2")]).await;
    recorder.until(2).await;
    eventually("errors in the log", async || {
        logs.having(Level::ERROR, "refuses to record the result").len() == 2
    })
    .await;
    outbox.nudge(); // the poller finds the rows, which are still in hand
    assert_eq!((shop.row("1").await.status, outbox.metrics().dispatch_success.total()), (NEW, 0));
    switches.settle_fails.store(false, Ordering::SeqCst);
    until_count(&shop, DONE, 2).await;
    assert_eq!((recorder.count_of("1"), recorder.count_of("2")), (1, 1));

    switches.settle_fails.store(true, Ordering::SeqCst);
    commit(&outbox, vec![order("3")]).await;
    recorder.until(3).await;
    outbox.close().await.unwrap();
    switches.settle_fails.store(false, Ordering::SeqCst);
    let outbox = start().start().await.unwrap();
    until_status(&shop, "3", DONE).await;
    assert_eq!(recorder.count_of("3"), 2);
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn what_became_of_an_event_is_kept_while_the_database_is_away_and_written_when_it_is_back() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let recorder = Recording::new();
    let outbox =
        shop.outbox().store(store).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
    switches.settle_times_out.store(true, Ordering::SeqCst);
    commit(&outbox, vec![order("1")]).await;
    recorder.until(1).await;
    eventually("several tries", async || switches.settles.load(Ordering::SeqCst) > 2).await;
    outbox.nudge(); // the poller finds the row, which is still in flight
    assert_eq!(shop.row("1").await.status, NEW);
    switches.settle_times_out.store(false, Ordering::SeqCst);
    until_status(&shop, "1", DONE).await;
    outbox.close().await.unwrap();
    assert_eq!(recorder.count_of("1"), 1);
}

#[tokio::test]
async fn closing_waits_for_a_database_that_is_away_as_long_as_it_may_and_says_what_it_left() {
    for comes_back in [false, true] {
        let shop = Shop::open().await;
        let (store, switches) = Flaky::around(shop.store.clone());
        let recorder = Recording::new();
        let outbox = shop
            .outbox()
            .store(store)
            .drain_timeout(Duration::from_secs(1))
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        switches.settle_times_out.store(true, Ordering::SeqCst);
        commit(&outbox, vec![order("1")]).await;
        recorder.until(1).await;
        let closing = tokio::spawn(async move { outbox.close().await });
        if comes_back {
            tokio::time::sleep(Duration::from_millis(150)).await;
            switches.settle_times_out.store(false, Ordering::SeqCst);
        }
        assert_eq!(closing.await.unwrap().is_ok(), comes_back);
        assert_eq!(shop.row("1").await.status, if comes_back { DONE } else { NEW });
    }
}

#[tokio::test]
async fn while_deliveries_stand_still_the_table_is_not_looked_at() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let builder = shop.outbox().store(store).worker_count(1).interval(Duration::from_millis(5));
    let outbox = builder.on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
    switches.settle_fails.store(true, Ordering::SeqCst);
    commit(&outbox, orders(3)).await;
    eventually("a stand-still", async || matches!(outbox.report().await.health, Health::Down(_))).await;
    let polls = switches.polls.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(200)).await; // many intervals
    assert!(switches.polls.load(Ordering::SeqCst) <= polls + 1, "one may have been under way");
    switches.settle_fails.store(false, Ordering::SeqCst);
    until_count(&shop, DONE, 3).await;
    shop.insert(&[order("later")]).await;
    until_status(&shop, "later", DONE).await;
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn when_deliveries_go_on_the_table_is_looked_at_without_waiting_for_the_interval() {
    for trouble_stays in [false, true] {
        let shop = Shop::open().await;
        if trouble_stays {
            refuse_bad(&shop).await; // one of them for ever, which stops nobody
        }
        let (store, switches) = Flaky::around(shop.store.clone());
        let builder = shop.outbox().store(store).worker_count(1); // with an interval of an hour
        let outbox = builder.on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
        let rests = async |times| switches.rests.load(Ordering::SeqCst) >= times;
        // Once before the first look. A look that saw something new would be followed by others soon.
        eventually("a look that finds nothing", async || rests(2).await).await;
        switches.settle_fails.store(true, Ordering::SeqCst);
        commit(&outbox, ["bad", "a", "b"].map(order).to_vec()).await;
        eventually("a stand-still", async || matches!(outbox.report().await.health, Health::Down(_))).await;
        shop.insert(&[order("later")]).await;
        outbox.nudge();
        eventually("a look in vain", async || rests(3).await).await;
        switches.settle_fails.store(false, Ordering::SeqCst);
        until_status(&shop, "later", DONE).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("bad").await.status, if trouble_stays { NEW } else { DONE });
    }
}

database_suite! {
    over shop on 1 thread

    async fn refusals_that_are_not_in_a_row_stop_nobody(shop) {
        let logs = Logs::catch();
        refuse_bad(&shop).await;
        shop.refuse_updates("refuse_worse", "new.event_id in ('worse', 'worst')").await;
        let outbox = shop.outbox().on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
        for (bad, good) in [("bad", "a"), ("worse", "b"), ("worst", "c")] {
            commit(&outbox, vec![order(bad)]).await;
            let refused = async || !logs.having(Level::ERROR, &format!("event_id=\"{bad}\"")).is_empty();
            eventually("a refusal", refused).await;
            commit(&outbox, vec![order(good)]).await;
            until_status(&shop, good, DONE).await;
        }
        outbox.close().await.unwrap();
        assert!(logs.having(Level::ERROR, "deliveries are stopped").is_empty(), "{}", logs.all());
    }
}

#[tokio::test]
async fn one_event_that_cannot_be_settled_stops_nobody_however_often_it_is_tried() {
    let shop = Shop::open().await;
    refuse_bad(&shop).await;
    let outbox = shop.outbox().on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
    commit(&outbox, vec![order("bad")]).await;
    tokio::time::sleep(Duration::from_secs(4)).await; // it is tried after 0, 1 and 3 s
    commit(&outbox, vec![order("good")]).await;
    until_status(&shop, "good", DONE).await;
    outbox.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    async fn in_strict_order_nothing_is_settled_behind_what_the_database_refuses(shop) {
        refuse_bad(&shop).await;
        let outbox = Outbox::ordered(shop.pool.clone()).interval(Duration::from_millis(5));
        let outbox = outbox.on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
        commit(&outbox, ["bad", "c", "d"].map(order).to_vec()).await;
        eventually("a stand-still", async || matches!(outbox.report().await.health, Health::Down(_))).await;
        assert_eq!(shop.count(NEW).await, 3);
        shop.drop_trigger("refuse").await;
        until_count(&shop, DONE, 3).await;
        outbox.close().await.unwrap();
    }
}

#[tokio::test]
async fn in_strict_order_what_is_refused_is_tried_ever_later() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    switches.settle_fails.store(true, Ordering::SeqCst);
    let outbox = Outbox::ordered(shop.pool.clone()).interval(Duration::from_millis(5)).store(store);
    let outbox = outbox.on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
    commit(&outbox, vec![order("1")]).await;
    eventually("a try", async || switches.settles.load(Ordering::SeqCst) > 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tries = switches.settles.load(Ordering::SeqCst);
    assert!(tries <= 5, "after 0, 100, 300, 700 and 1500 ms: {tries}");
    switches.settle_fails.store(false, Ordering::SeqCst);
    until_count(&shop, DONE, 1).await;
    outbox.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    async fn what_the_database_refused_is_tried_once_more_when_the_node_closes(shop) {
        let logs = Logs::catch();
        let (store, switches) = Flaky::around(shop.store.clone());
        let builder = shop.outbox().store(store).on("Order", "OrderPlaced", Recording::new());
        let outbox = builder.start().await.unwrap();
        switches.settle_fails.store(true, Ordering::SeqCst);
        commit(&outbox, vec![order("1")]).await;
        let refused = async || !logs.having(Level::ERROR, "refuses to record the result").is_empty();
        eventually("a refusal", refused).await;
        switches.settle_fails.store(false, Ordering::SeqCst);
        outbox.close().await.unwrap();
        assert_eq!(shop.row("1").await.status, DONE);
    }

    async fn one_settlement_that_cannot_be_written_does_not_sink_those_beside_it(shop) {
        refuse_bad(&shop).await;
        let gate = Slow::gated();
        let outbox =
            shop.outbox().worker_count(5).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        commit(&outbox, ["a", "b", "bad", "c", "d"].map(order).to_vec()).await;
        gate.until_began(5).await;
        gate.open(); // all five settle together
        until_count(&shop, DONE, 4).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("bad").await.status, NEW);
        assert_eq!(outbox.metrics().dispatch_success.total(), 4);
    }

    async fn a_try_is_counted_once_also_when_a_settlement_beside_it_cannot_be_written(shop) {
        refuse_bad(&shop).await;
        let gate = Slow::gated().then(Failing::always());
        let outbox =
            shop.outbox().worker_count(5).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        commit(&outbox, ["a", "b", "bad", "c", "d"].map(order).to_vec()).await;
        gate.until_began(5).await;
        gate.open();
        until_count(&shop, RETRY, 4).await;
        outbox.close().await.unwrap();
        for id in ["a", "b", "c", "d"] {
            assert_eq!(shop.row(id).await.attempts, 1, "{id}");
        }
    }
}

#[tokio::test]
async fn a_store_that_panics_while_it_settles_is_asked_again_and_nothing_else_waits() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    shop.insert(&orders(2)).await;
    let panics = std::sync::Arc::new(AtomicBool::new(true));
    let now = panics.clone();
    let store = Spied::of(&shop.store).before_settle(move || {
        let panics = now.load(Ordering::SeqCst);
        async move { assert!(!panics, "on purpose") }
    });
    let recorder = Recording::new();
    let dispatcher = Settings::default().start(store.shared(), placed(recorder.clone()), metrics()).unwrap();
    assert!(dispatcher.enqueue(Queued::cold(order("0000"), 0)));
    eventually("an error in the log", async || !logs.having(Level::ERROR, "event_id=\"0000\"").is_empty())
        .await;
    panics.store(false, Ordering::SeqCst);
    assert!(dispatcher.enqueue(Queued::cold(order("0001"), 0)));
    until_count(&shop, DONE, 2).await;
    dispatcher.close().await.unwrap();
    assert_eq!((recorder.count_of("0000"), recorder.count_of("0001")), (1, 1));
}
