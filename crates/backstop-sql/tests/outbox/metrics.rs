//! What an outbox exports: every name, what raises it, and what is logged beside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backstop_core::{Event, Outcome, SystemClock};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::Level;

use crate::flaky::Flaky;
use crate::harness::{DEAD, DONE, Shop, order};
use crate::logs::Logs;
use crate::tracked::Tracked;
use crate::watched::Watched;

/// A recorder, and what its counters and histograms were given. A snapshot takes what was added since the last.
struct Exported {
    snapshotter: Snapshotter,
    totals: BTreeMap<String, u64>,
    durations: BTreeMap<String, Vec<f64>>,
}

impl Exported {
    fn new() -> (Arc<DebuggingRecorder>, Self) {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        (Arc::new(recorder), Self { snapshotter, totals: BTreeMap::new(), durations: BTreeMap::new() })
    }

    /// Adds up the counters, keeps the durations, and gives back the gauges that are not zero.
    fn look(&mut self) -> BTreeMap<String, f64> {
        let mut gauges = BTreeMap::new();
        for (key, _, help, value) in self.snapshotter.snapshot().into_vec() {
            let name = key.key().name().to_owned();
            assert!(help.is_some(), "{name} has no description");
            match (key.kind(), value) {
                (MetricKind::Counter, DebugValue::Counter(more)) => {
                    *self.totals.entry(name).or_default() += more;
                }
                (MetricKind::Gauge, DebugValue::Gauge(value)) => {
                    gauges.insert(name, value.into_inner());
                }
                (MetricKind::Histogram, DebugValue::Histogram(values)) => {
                    let values = values.into_iter().map(|seconds| *seconds);
                    self.durations.entry(name).or_default().extend(values);
                }
                (kind, other) => panic!("{name} is a {kind:?} with another's value: {other:?}"),
            }
        }
        gauges.retain(|_, value| *value > 0.0);
        gauges
    }

    fn total(&mut self, name: &str) -> u64 {
        self.look();
        self.totals.get(name).copied().unwrap_or_else(|| panic!("{name} is not exported"))
    }

    fn durations(&mut self, name: &str) -> Vec<f64> {
        self.look();
        self.durations.get(name).cloned().unwrap_or_else(|| panic!("{name} is not exported"))
    }
}

/// Rules: O-037, O-425, O-427, O-428, O-429, O-430, O-431, O-432, O-433, O-434, O-436, O-437, O-438.
#[tokio::test]
async fn every_metric_is_exported_from_the_start_under_its_name() {
    let shop = Shop::open().await;
    let (recorder, exported) = Exported::new();
    let outbox = shop.outbox().metrics_recorder(recorder).start().await.unwrap();
    let found: BTreeMap<_, _> = exported
        .snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, ..)| (key.key().name().to_owned(), key.kind()))
        .collect();
    for counter in [
        "outbox.enqueue.hot",
        "outbox.enqueue.hot.dropped",
        "outbox.enqueue.cold",
        "outbox.dispatch.success",
        "outbox.dispatch.failure",
        "outbox.dispatch.dead",
        "outbox.dispatch.deferred",
        "outbox.enqueue.hot.skipped.delayed",
    ] {
        assert_eq!(found.get(counter), Some(&MetricKind::Counter), "{counter}");
    }
    for gauge in ["outbox.queue.hot.depth", "outbox.queue.cold.depth", "outbox.lag.oldest.ms"] {
        assert_eq!(found.get(gauge), Some(&MetricKind::Gauge), "{gauge}");
    }
    for histogram in ["outbox.dispatch.duration.seconds", "outbox.delivery.latency.seconds"] {
        assert_eq!(found.get(histogram), Some(&MetricKind::Histogram), "{histogram}");
    }
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn two_outboxes_share_their_metrics_names_and_differ_by_the_label_with_theirs() {
    let shop = Shop::open().await;
    let (recorder, exported) = Exported::new();
    let orders = shop.outbox().name("orders").metrics_recorder(recorder.clone()).start().await.unwrap();
    let refunds = shop.outbox().name("refunds").table("refunds").metrics_recorder(recorder);
    let refunds = refunds.start().await.unwrap();
    let mut tx = orders.begin().await.unwrap();
    tx.append(order("1")).await.unwrap();
    tx.commit().await.unwrap();
    orders.close().await.unwrap();
    refunds.close().await.unwrap();
    let mut appended = BTreeMap::new();
    for (key, _, _, value) in exported.snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        let [("outbox", name)] = labels[..] else { panic!("{key:?}") };
        if key.key().name() == "outbox.append" {
            appended.insert(name.to_owned(), value);
        }
    }
    let (one, none) = (DebugValue::Counter(1), DebugValue::Counter(0));
    assert_eq!(appended, BTreeMap::from([("orders".to_owned(), one), ("refunds".to_owned(), none)]));
}

#[tokio::test]
async fn the_latency_counts_each_delivered_event_once_and_the_duration_each_call() {
    let shop = Shop::open().await;
    let (recorder, mut exported) = Exported::new();
    let minute_ago = backstop_core::Clock::now(&SystemClock) - Duration::from_secs(60);
    let old = |id: &str| Event::of("OrderPlaced").id(id).aggregate("Order", "1").occurred_at(minute_ago);
    let again = Failing::times(1);
    let outbox = shop
        .outbox()
        .metrics_recorder(recorder)
        .max_attempts(2)
        .retry_policy(|_: u32, _: backstop_core::retry::Jitter| Duration::ZERO)
        .on("Order", "OrderPlaced", |_: Event| async {})
        .on("Order", "FailsOnce", again)
        .on("Order", "Fails", Failing::always())
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all(["1", "2", "3"].map(|id| old(id).json(&()).unwrap()).into()).await.unwrap();
    for kind in ["FailsOnce", "Fails", "Unheard"] {
        tx.append(Event::of(kind).id(kind).aggregate("Order", "1").json(&()).unwrap()).await.unwrap();
    }
    tx.commit().await.unwrap();
    eventually("all to end", async || {
        outbox.nudge();
        shop.count(DONE).await == 4 && shop.count(DEAD).await == 2
    })
    .await;
    outbox.close().await.unwrap();
    let latencies = exported.durations("outbox.delivery.latency.seconds");
    let waited = latencies.iter().filter(|seconds| (60.0..120.0).contains(*seconds)).count();
    assert_eq!((latencies.len(), waited), (4, 3), "{latencies:?}");
    assert_eq!(outbox.metrics().delivery_latency.count(), outbox.metrics().dispatch_success.total());
    // Nobody is called for an event that no handler is for.
    assert_eq!(exported.durations("outbox.dispatch.duration.seconds").len(), 3 + 2 + 2);
}

/// Rules: O-426.
#[tokio::test]
async fn a_prefix_keeps_two_outboxes_apart() {
    let shop = Shop::open().await;
    let (recorder, mut exported) = Exported::new();
    let orders = shop.outbox().metrics_prefix("orders.outbox").metrics_recorder(recorder.clone());
    let orders = orders.on("Order", "OrderPlaced", |_: Event| async {}).start().await.unwrap();
    let refunds = shop.outbox().table("refunds").metrics_prefix("refunds.outbox").metrics_recorder(recorder);
    let refunds = refunds.start().await.unwrap();
    let mut tx = orders.begin().await.unwrap();
    tx.append(order("1")).await.unwrap();
    tx.commit().await.unwrap();
    orders.close().await.unwrap();
    refunds.close().await.unwrap();
    assert_eq!(exported.total("orders.outbox.append"), 1);
    assert_eq!(exported.total("refunds.outbox.append"), 0);
}

/// Rules: O-063.
#[tokio::test]
async fn without_a_word_metrics_go_to_the_recorder_of_the_process() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // Stands for the recorder of the process, on this test's thread only.
    let _installed = metrics::set_default_local_recorder(&recorder);
    let shop = Shop::open().await;
    let outbox = shop.outbox().start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("1")).await.unwrap();
    tx.commit().await.unwrap();
    outbox.close().await.unwrap();
    let found = snapshotter.snapshot().into_vec().into_iter();
    let appended =
        found.filter(|(key, ..)| key.key().name() == "outbox.append").map(|(.., value)| value).next();
    assert_eq!(appended, Some(DebugValue::Counter(1)));
}

/// Rules: O-414, O-415, O-416, O-417, O-418, O-419, O-420, O-421, O-435.
#[tokio::test]
async fn each_counter_is_raised_by_what_it_is_named_after_and_never_lowered() {
    let shop = Shop::open().await;
    let (recorder, mut exported) = Exported::new();
    let (gate, store, tracker) = (Slow::gated(), Watched::around(shop.store.clone()), Tracked::default());
    store.hold_up();
    let outbox = shop
        .outbox()
        .store(store.clone())
        .tracker(tracker.clone())
        .metrics_recorder(recorder)
        .worker_count(1)
        .hot_queue_capacity(1)
        .max_attempts(2)
        .retry_policy(|_: u32, _: backstop_core::retry::Jitter| Duration::ZERO)
        .on("Order", "OrderPlaced", gate.clone())
        .on("Order", "Fails", Failing::always())
        .on(
            "Order",
            "Deferred",
            Recording::of(|_: Event| async { Outcome::retry_after(Duration::from_secs(3_600)) }),
        )
        .start()
        .await
        .unwrap();
    let append = async |event: Event| {
        let mut tx = outbox.begin().await.unwrap();
        tx.append(event).await.unwrap();
        tx.commit().await.unwrap();
    };
    let of = |kind: &str| Event::of(kind).aggregate("Order", "1");

    append(order("at work")).await;
    gate.until_began(1).await;
    append(order("queued")).await;
    append(order("dropped")).await;
    append(of("OrderPlaced").deliver_after(Duration::from_secs(3_600)).json(&()).unwrap()).await;
    let mut seen = |name: &str| exported.total(&format!("outbox.{name}"));
    assert_eq!(
        (seen("enqueue.hot"), seen("enqueue.hot.dropped"), seen("enqueue.hot.skipped.delayed")),
        (2, 1, 1)
    );
    assert_eq!(seen("dispatch.success"), 0);

    gate.open();
    eventually("two to be done", async || shop.count(DONE).await == 2).await;
    store.let_go(1_000);
    eventually("the third to be done", async || shop.count(DONE).await == 3).await;
    assert_eq!((seen("enqueue.hot"), seen("enqueue.hot.dropped"), seen("enqueue.cold")), (2, 1, 1));

    append(of("Deferred").json(&()).unwrap()).await;
    eventually("it to be deferred", async || tracker.is_idle()).await;
    append(of("Fails").id("fails").json(&()).unwrap()).await;
    eventually("the second try", async || {
        outbox.nudge();
        shop.row("fails").await.status == DEAD
    })
    .await;
    outbox.close().await.unwrap();
    // The failure that kills is a death and no failure that is tried again.
    assert_eq!((seen("dispatch.failure"), seen("dispatch.dead"), seen("dispatch.deferred")), (1, 1, 1));
    assert_eq!((seen("dispatch.success"), seen("append")), (3, 6));
    // What is exported is what the outbox itself tells.
    assert_eq!(seen("enqueue.cold"), outbox.metrics().enqueue_cold.total());
}

/// Rules: O-422, O-436, O-437.
#[tokio::test]
async fn the_depths_show_what_waits_in_each_queue() {
    let shop = Shop::open().await;
    let (recorder, mut exported) = Exported::new();
    let (gate, store) = (Slow::gated(), Watched::around(shop.store.clone()));
    store.hold_up();
    let builder = shop.outbox().store(store.clone()).metrics_recorder(recorder).worker_count(1);
    let outbox = builder.on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("at work")).await.unwrap();
    tx.commit().await.unwrap();
    gate.until_began(1).await;
    shop.insert(&["1", "2", "3"].map(order)).await;
    store.let_go(1);
    eventually("the cold queue to fill", async || outbox.metrics().enqueue_cold.total() == 3).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all(vec![order("4"), order("5")]).await.unwrap();
    tx.commit().await.unwrap();
    let gauges = exported.look();
    assert_eq!(gauges.get("outbox.queue.hot.depth"), Some(&2.0));
    assert_eq!(gauges.get("outbox.queue.cold.depth"), Some(&3.0));
    gate.open();
    store.let_go(1_000); // another look may have begun, and closing waits for it
    outbox.close().await.unwrap();
    assert_eq!((outbox.metrics().queue_hot_depth.value(), outbox.metrics().queue_cold_depth.value()), (0, 0));
}

/// Rules: O-423, O-438.
#[tokio::test]
async fn the_lag_is_the_age_of_the_oldest_due_row_and_zero_without_one() {
    let shop = Shop::open().await;
    let (recorder, mut exported) = Exported::new();
    let (store, switches) = Flaky::around(shop.store.clone());
    let gate = Slow::gated();
    let minute_ago = backstop_core::Clock::now(&SystemClock) - Duration::from_secs(60);
    let old = |id: &str, kind: &str| Event::of(kind).id(id).aggregate("Order", "1").occurred_at(minute_ago);
    let in_an_hour = old("later", "OrderPlaced").deliver_after(Duration::from_secs(3_660)).json(&()).unwrap();
    shop.insert(&[old("old", "OrderPlaced").json(&()).unwrap(), order("young"), in_an_hour]).await;
    let builder = shop.outbox().metrics_recorder(recorder).store(store);
    let outbox = builder.on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
    gate.until_began(2).await;
    let lag = exported.look().get("outbox.lag.oldest.ms").copied().unwrap_or_default();
    assert!((60_000.0..90_000.0).contains(&lag), "{lag}");
    let told = outbox.metrics().lag_oldest_ms.value();

    // A look that failed learned nothing, so the value stays.
    switches.poll_fails.store(true, Ordering::SeqCst);
    let looks = switches.polls.load(Ordering::SeqCst);
    outbox.nudge();
    eventually("a look that fails", async || switches.polls.load(Ordering::SeqCst) > looks).await;
    assert_eq!(outbox.metrics().lag_oldest_ms.value(), told);
    switches.poll_fails.store(false, Ordering::SeqCst);

    gate.open();
    eventually("both to be done", async || shop.count(DONE).await == 2).await;
    outbox.nudge();
    // The row that is not due yet does not count.
    eventually("the lag to end", async || outbox.metrics().lag_oldest_ms.value() == 0).await;
    outbox.close().await.unwrap();
}

/// Rules: O-439, O-440, O-441, O-442.
#[tokio::test]
async fn a_death_a_broken_loop_and_an_unreadable_row_are_errors_in_the_log() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let store = Watched::around(store);
    store.hold_up();
    let builder = shop.outbox().store(store.clone()).max_attempts(1);
    let builder =
        builder.on("Order", "OrderPlaced", Failing::always()).on("Order", "Fine", |_: Event| async {});
    let outbox = builder.start().await.unwrap();

    let secret = "4111-1111-1111-1111";
    let event =
        Event::of("OrderPlaced").id("dies").aggregate("Order", "42").header("card", secret).json(&secret);
    let mut tx = outbox.begin().await.unwrap();
    tx.append(event.unwrap()).await.unwrap();
    tx.commit().await.unwrap();
    // The row says it first, and the log when that is written.
    let told = || logs.having(Level::ERROR, "an event is dead");
    eventually("the event to die", async || shop.row("dies").await.status == DEAD && !told().is_empty())
        .await;
    let told = told();
    assert_eq!(told.len(), 1, "{}", logs.all());
    for part in ["dies", "OrderPlaced", "Order", "42", "attempt=1", "failed on purpose"] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }

    switches.poll_fails.store(true, Ordering::SeqCst);
    store.let_go(1_000);
    let broken_look = async || !logs.having(Level::ERROR, "cannot look for due events").is_empty();
    eventually("the poller's error", broken_look).await;
    switches.poll_fails.store(false, Ordering::SeqCst);

    switches.settle_fails.store(true, Ordering::SeqCst);
    shop.insert(&[Event::of("Fine").id("unsettled").aggregate("Order", "1").json(&()).unwrap()]).await;
    outbox.nudge();
    let broken_desk =
        async || !logs.having(Level::ERROR, "refuses to record the result of an event").is_empty();
    eventually("the dispatcher's error", broken_desk).await;
    switches.settle_fails.store(false, Ordering::SeqCst);

    shop.insert(&[order("unreadable")]).await;
    let spoil = "update outbox_event set headers = '{\"a\":', available_at = created_at where event_id = 'unreadable'";
    sqlx::query(spoil).execute(&shop.pool).await.unwrap();
    outbox.nudge();
    eventually("the row to be buried", async || shop.row("unreadable").await.status == DEAD).await;
    outbox.close().await.unwrap();
    assert!(!logs.having(Level::ERROR, "cannot be decoded").is_empty(), "{}", logs.all());
    assert!(!logs.all().contains(secret), "a payload or header was logged:\n{}", logs.all());
}
