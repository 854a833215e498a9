//! The dispatcher: two bounded queues, a fixed number of workers, one handler for each event.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::{Event, Failure, telemetry};
use backstop_sql::Error;
use backstop_sql::outbox::dispatcher::Settings;
use backstop_sql::outbox::{Queued, Registry, Source, interceptor};
use backstop_testkit::handlers::{Failing, Recording, Slow};
use metrics_util::debugging::DebuggingRecorder;

use crate::harness::{DEAD, DONE, NEW, RETRY, Shop, metrics, order};
use crate::spied::Spied;
use crate::steps::{Log, commit, dispatch, due_in, orders, placed, tried, until_status};

/// Rules: O-274, O-275, O-276, O-277, O-281.
#[test]
fn the_defaults_are_four_workers_a_thousand_places_ten_tries_and_five_seconds() {
    assert_eq!(
        format!("{:?}", Settings::default()),
        "Settings { config: Config { worker_count: 4, hot_queue_capacity: 1000, cold_queue_capacity: 1000, \
         queue_bytes: 67108864, max_attempts: 10, drain_timeout: 5s, done: Keep }, .. }"
    );
}

/// Rules: O-274, O-275, O-276, O-277, O-403.
#[tokio::test]
async fn settings_below_one_are_refused_and_all_of_them_are_told() {
    let shop = Shop::open().await;
    let settings = Settings::default().worker_count(0).hot_queue_capacity(0).cold_queue_capacity(0);
    let settings = settings.queue_bytes(0).max_attempts(0);
    let refused = settings.start(shop.store.clone(), Registry::new(), metrics()).unwrap_err();
    let Error::Settings { faults } = &refused else { panic!("{refused}") };
    let named: Vec<_> = faults.iter().map(|fault| fault.setting).collect();
    let all = ["worker-count", "hot-queue-capacity", "cold-queue-capacity", "queue-bytes", "max-attempts"];
    assert_eq!(named, all);
}

/// Rules: O-273.
#[tokio::test]
async fn unless_told_otherwise_retries_wait_from_200_ms_on_and_at_most_60_s_spread_by_half() {
    let shop = Shop::open().await;
    shop.insert(&orders(2)).await;
    let dispatcher = dispatch(&shop, Settings::default().max_attempts(100), Failing::always());
    tried(&shop, "0000", 4).await;
    tried(&shop, "0001", 50).await;
    assert!(dispatcher.enqueue(Queued::cold(order("0000"), 4))); // the fifth try fails: 3.2 s
    assert!(dispatcher.enqueue(Queued::cold(order("0001"), 50))); // far beyond the maximum
    dispatcher.close().await.unwrap();
    let (fifth, late) = (due_in(&shop, "0000").await, due_in(&shop, "0001").await);
    assert!((1.0..4.9).contains(&fifth), "{fifth}");
    assert!((29.0..91.0).contains(&late), "{late}");
}

/// Rules: O-278.
#[tokio::test]
async fn without_a_recorder_metrics_go_nowhere_and_can_still_be_read() {
    let shop = Shop::open().await;
    shop.insert(&orders(1)).await;
    let metrics = Arc::new(telemetry::Outbox::new("quiet"));
    let dispatcher =
        Settings::default().start(shop.store.clone(), placed(Recording::new()), metrics.clone()).unwrap();
    let elsewhere = DebuggingRecorder::new();
    metrics::with_local_recorder(&elsewhere, || assert!(dispatcher.enqueue(Queued::hot(order("0000")))));
    dispatcher.close().await.unwrap();
    assert!(elsewhere.snapshotter().snapshot().into_vec().is_empty());
    assert_eq!((metrics.enqueue_hot.total(), metrics.dispatch_success.total()), (1, 1));
}

/// Rules: O-005, O-293, O-299.
#[tokio::test]
async fn a_dispatcher_alone_takes_both_kinds_calls_the_handler_and_settles_the_rows() {
    let shop = Shop::open().await;
    shop.insert(&orders(2)).await;
    let recorder = Recording::new();
    let dispatcher = dispatch(&shop, Settings::default(), recorder.clone());
    assert!(dispatcher.enqueue(Queued::hot(order("0000"))));
    assert!(dispatcher.enqueue(Queued::cold(order("0001"), 0)));
    until_status(&shop, "0000", DONE).await;
    until_status(&shop, "0001", DONE).await;
    let mut seen = recorder.events();
    seen.sort_by(|a, b| a.id().cmp(b.id()));
    assert_eq!(
        seen.iter().map(Event::payload_json).collect::<Vec<_>>(),
        [r#"{"order":"0000"}"#, r#"{"order":"0001"}"#]
    );
    dispatcher.close().await.unwrap();
}

/// Rules: O-013, O-017, O-219.
#[tokio::test]
async fn committed_and_polled_events_take_the_same_way_from_different_queues() {
    let shop = Shop::open().await;
    let log = Log::default();
    let seen = log.clone();
    let recorder = Recording::new();
    let outbox = shop
        .outbox()
        .interceptor(interceptor::before(move |event| {
            seen.note(event.id());
            Ok(())
        }))
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    commit(&outbox, vec![order("hot")]).await;
    until_status(&shop, "hot", DONE).await;
    assert_eq!((outbox.metrics().enqueue_hot.total(), outbox.metrics().enqueue_cold.total()), (1, 0));
    shop.insert(&[order("cold")]).await;
    outbox.nudge();
    until_status(&shop, "cold", DONE).await;
    assert_eq!((outbox.metrics().enqueue_hot.total(), outbox.metrics().enqueue_cold.total()), (1, 1));
    assert_eq!((log.entries(), recorder.ids()), (vec!["hot".into(), "cold".into()], log.entries()));
    outbox.close().await.unwrap();
}

/// Rules: O-282, O-284, O-286, O-401, O-402.
#[tokio::test]
async fn a_full_queue_refuses_and_the_cold_one_tells_its_room() {
    let shop = Shop::open().await;
    let gate = Slow::gated();
    let settings = Settings::default().worker_count(1).hot_queue_capacity(2).cold_queue_capacity(3);
    let dispatcher = dispatch(&shop, settings, gate.clone());
    assert_eq!(dispatcher.cold_queue_remaining_capacity(), 3);
    assert!(dispatcher.enqueue(Queued::hot(order("busy"))));
    gate.until_began(1).await;
    let hot: Vec<_> = (0..4).map(|n| dispatcher.enqueue(Queued::hot(order(&format!("h{n}"))))).collect();
    let cold: Vec<_> = (0..4).map(|n| dispatcher.enqueue(Queued::cold(order(&format!("c{n}")), 0))).collect();
    assert_eq!((hot, cold), (vec![true, true, false, false], vec![true, true, true, false]));
    assert_eq!(dispatcher.cold_queue_remaining_capacity(), 0);
    gate.open();
    dispatcher.close().await.unwrap();
}

/// Rules: O-283, O-285, O-322.
#[tokio::test]
async fn a_closing_dispatcher_takes_nothing_more() {
    let shop = Shop::open().await;
    let gate = Slow::gated();
    let dispatcher = Arc::new(dispatch(&shop, Settings::default(), gate.clone()));
    assert!(dispatcher.enqueue(Queued::hot(order("1"))));
    gate.until_began(1).await;
    let closing = tokio::spawn({
        let dispatcher = dispatcher.clone();
        async move { dispatcher.close().await }
    });
    backstop_testkit::eventually("closing", async || dispatcher.cold_queue_remaining_capacity() == 0).await;
    assert!(!dispatcher.enqueue(Queued::hot(order("2"))));
    assert!(!dispatcher.enqueue(Queued::cold(order("3"), 0)));
    gate.open();
    closing.await.unwrap().unwrap();
    assert_eq!(gate.began(), 1);
}

/// Rules: O-311, O-326, O-327.
#[tokio::test]
async fn no_more_events_are_handled_at_once_than_there_are_workers() {
    let shop = Shop::open().await;
    let metrics = metrics();
    let gate = Slow::gated();
    let dispatcher = Settings::default()
        .worker_count(3)
        .start(shop.store.clone(), placed(gate.clone()), metrics.clone())
        .unwrap();
    for order in orders(10) {
        assert!(dispatcher.enqueue(Queued::hot(order)));
    }
    gate.until_began(3).await;
    tokio::task::yield_now().await;
    assert_eq!((gate.in_progress(), metrics.queue_hot_depth.value()), (3, 7));
    gate.let_through(1);
    gate.until_began(4).await;
    assert_eq!((gate.in_progress(), metrics.queue_hot_depth.value()), (3, 6));
    gate.open();
    dispatcher.close().await.unwrap();
    assert_eq!((gate.began(), gate.most_at_once()), (10, 3));
}

/// Rules: O-015, O-320, O-321.
#[tokio::test]
async fn two_draws_of_three_are_hot_and_the_third_is_cold_however_much_hot_waits() {
    let shop = Shop::open().await;
    let recorder = Recording::new();
    let gate = Slow::gated().then(recorder.clone());
    let dispatcher = dispatch(&shop, Settings::default().worker_count(1), gate.clone());
    assert!(dispatcher.enqueue(Queued::hot(order("h"))));
    gate.until_began(1).await; // the first draw
    for n in 0..20 {
        assert!(dispatcher.enqueue(Queued::hot(order(&format!("h{n}")))));
    }
    for n in 0..4 {
        assert!(dispatcher.enqueue(Queued::cold(order(&format!("c{n}")), 0)));
    }
    gate.open();
    let drawn = recorder.until(25).await;
    let drawn: Vec<_> = drawn.iter().map(Event::id).collect();
    assert_eq!(drawn[..12], ["h", "h0", "c0", "h1", "h2", "c1", "h3", "h4", "c2", "h5", "h6", "c3"]);
    // The cold queue is empty now, and nobody waits for it.
    assert_eq!(drawn[12..14], ["h7", "h8"]);
    dispatcher.close().await.unwrap();
}

/// Rules: O-329, O-330.
#[tokio::test]
async fn a_hot_event_starts_at_no_tries_and_a_cold_one_at_those_of_its_row() {
    let hot = Queued::hot(order("x"));
    assert_eq!((hot.event.id(), hot.source, hot.attempts), ("x", Source::Hot, 0));
    let cold = Queued::cold(order("y"), 7);
    assert_eq!((cold.event.id(), cold.source, cold.attempts), ("y", Source::Cold, 7));

    let shop = Shop::open().await;
    shop.insert(&orders(2)).await;
    sqlx::query("update outbox_event set attempts = 2, status = 2 where event_id = '0001'")
        .execute(&shop.pool)
        .await
        .unwrap();
    let outbox =
        shop.outbox().max_attempts(3).on("Order", "OrderPlaced", Failing::always()).start().await.unwrap();
    commit(&outbox, vec![order("hot")]).await;
    assert_eq!(until_status(&shop, "hot", RETRY).await.attempts, 1);
    assert_eq!(until_status(&shop, "0000", RETRY).await.attempts, 1);
    until_status(&shop, "0001", DEAD).await; // its third try was the last
    outbox.close().await.unwrap();
}

/// Rules: O-290.
#[tokio::test]
async fn an_event_goes_to_the_one_handler_of_its_pair() {
    let shop = Shop::open().await;
    let handlers: Vec<_> = (0..4).map(|_| Recording::new()).collect();
    let outbox = shop
        .outbox()
        .on("Order", "OrderPlaced", handlers[0].clone())
        .on("Order", "OrderPaid", handlers[1].clone())
        .on("Invoice", "OrderPlaced", handlers[2].clone())
        .on_global("OrderPlaced", handlers[3].clone())
        .start()
        .await
        .unwrap();
    commit(&outbox, vec![order("1")]).await;
    until_status(&shop, "1", DONE).await;
    outbox.close().await.unwrap();
    assert_eq!(handlers.iter().map(|handler| handler.events().len()).collect::<Vec<_>>(), [1, 0, 0, 0]);
}

/// Rules: O-291, O-292.
#[tokio::test]
async fn an_event_without_a_handler_is_dead_at_once_and_never_tried_again() {
    let shop = Shop::open().await;
    let outbox = shop.outbox().max_attempts(1_000).start().await.unwrap();
    commit(&outbox, vec![order("1")]).await;
    let row = until_status(&shop, "1", DEAD).await;
    assert_eq!(row.attempts, 0);
    let error = row.last_error.unwrap();
    assert!(error.starts_with("unroutable: ") && error.contains("OrderPlaced"), "{error}");
    outbox.close().await.unwrap();
    assert_eq!(outbox.metrics().dispatch_failure.total(), 0);
}

/// Rules: O-297, O-312.
#[tokio::test]
async fn a_worker_draws_intercepts_calls_intercepts_again_and_then_settles() {
    let shop = Shop::open().await;
    shop.insert(&[order("1")]).await;
    let log = Log::default();
    let (before, handled, after, settled) = (log.clone(), log.clone(), log.clone(), log.clone());
    let store = Spied::of(&shop.store).before_settle(move || {
        settled.note("settle");
        async {}
    });
    let dispatcher = Settings::default()
        .interceptor(interceptor::before(move |_| {
            before.note("before");
            Ok(())
        }))
        .interceptor(interceptor::after(move |_, _| {
            after.note("after");
            // Gives the settler every chance to be early.
            std::thread::sleep(Duration::from_millis(20));
            after.note("after ended");
            Ok(())
        }))
        .start(
            store.shared(),
            placed(move |_: Event| {
                handled.note("handler");
                async { Ok::<_, Failure>(()) }
            }),
            metrics(),
        )
        .unwrap();
    assert!(dispatcher.enqueue(Queued::hot(order("1"))));
    dispatcher.close().await.unwrap();
    assert_eq!(log.entries(), ["before", "handler", "after", "after ended", "settle"]);
    assert_eq!(shop.row("1").await.status, DONE);
}

/// Rules: O-448.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_tasks_enqueue_at_once_and_nothing_is_lost_or_doubled() {
    let shop = Shop::open().await;
    shop.insert(&orders(800)).await;
    let recorder = Recording::new();
    let dispatcher = Arc::new(dispatch(&shop, Settings::default().worker_count(8), recorder.clone()));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let dispatcher = dispatcher.clone();
        tasks.spawn(async move {
            for n in (0..50).map(|n| task * 50 + n) {
                let event = order(&format!("{n:04}"));
                let queued = if n % 2 == 0 { Queued::hot(event) } else { Queued::cold(event, 0) };
                while !dispatcher.enqueue(queued.clone()) {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    tasks.join_all().await;
    dispatcher.close().await.unwrap();
    let mut ids = recorder.ids();
    ids.sort_unstable();
    assert_eq!(ids, orders(800).iter().map(Event::id).collect::<Vec<_>>());
    assert_eq!((shop.count(DONE).await, shop.count(NEW).await), (800, 0));
}
