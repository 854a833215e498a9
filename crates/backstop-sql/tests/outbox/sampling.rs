//! What waits is seen by route, whatever the poller and the handlers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::inspect::{Report, Route};
use backstop_core::target::{Config, Target, Verdict};
use backstop_core::{Clock, Event, Failure, Handler, Outcome, SystemClock};
use backstop_sql::store::{At, Sample, Store};
use backstop_sql::{BoxFuture, Error, Outbox};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Slow;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::harness::*;

fn old(id: &str, kind: &str) -> Event {
    let then = SystemClock.now() - Duration::from_secs(600);
    Event::of(kind).id(id).aggregate("Order", "1").occurred_at(then).json(&()).unwrap()
}

fn route<'a>(report: &'a Report, name: &str) -> &'a Route {
    report.routes.iter().find(|route| route.name == name).unwrap_or_else(|| panic!("{name}: {report:?}"))
}

database_suite! {
    over shop

    /// Rules: O-423, O-438.
    async fn a_node_whose_queues_are_full_tells_the_true_age_and_what_waits_by_route(it) {
        let gate = Slow::gated();
        it.insert(&[old("a", "OrderPlaced"), old("b", "OrderPlaced"), old("c", "OrderPlaced"), old("d", "Unknown")]).await;
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let builder = Outbox::multi_node(it.pool.clone()).claim_locking(NEVER).interval(NEVER);
        let builder = builder.worker_count(1).cold_queue_capacity(1).name("orders").metrics_recorder(Arc::new(recorder));
        let builder = builder.on("Order", "OrderPlaced", gate.clone()).on("Order", "OrderPaid", |_: Event| async {});
        let outbox = builder.start().await.unwrap();
        gate.until_began(1).await;
        // One is with its handler and one in the queue: the poller has no room to look any further.
        let report = outbox.report().await;
        let placed = route(&report, "Order/OrderPlaced");
        assert_eq!(placed.waiting.events, 3, "{placed:?}");
        let waited = SystemClock.now() - placed.oldest_due.unwrap();
        assert!((600..700).contains(&waited.num_seconds()), "{waited}");
        let paid = route(&report, "Order/OrderPaid");
        assert_eq!((paid.waiting.events, paid.oldest_due), (0, None));
        assert!((600_000..700_000).contains(&outbox.metrics().lag_oldest_ms.value()));
        gate.open();
        eventually("all to end", async || it.count(DONE).await == 3 && it.count(DEAD).await == 1).await;
        let seen = async || {
            let report = outbox.report().await;
            let dead = report.routes.iter().find(|route| route.name == "no handler");
            dead.is_some_and(|dead| dead.dead.events == 1) && outbox.metrics().lag_oldest_ms.value() == 0
        };
        eventually("the next sample", seen).await;
        outbox.close().await.unwrap();

        let gauges: Vec<_> = snapshotter.snapshot().into_vec().into_iter().filter_map(|(key, _, _, value)| {
            let DebugValue::Gauge(value) = value else { return None };
            let labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            key.key().name().contains(".route.").then(|| format!("{}{{{}}} {value}", key.key().name(), labels.join(",")))
        }).collect();
        for gauge in [
            "outbox.route.waiting{outbox=orders,route=Order/OrderPlaced} 0",
            "outbox.route.waiting{outbox=orders,route=Order/OrderPaid} 0",
            "outbox.route.dead{outbox=orders,route=no handler} 1",
            "outbox.route.oldest.ms{outbox=orders,route=Order/OrderPlaced} 0",
            "outbox.route.available{outbox=orders,route=Order/OrderPaid} 1",
        ] {
            assert!(gauges.iter().any(|found| found == gauge), "{gauge}: {gauges:#?}");
        }
    }
}

/// Counts its samples, and how many ran at the same time at most; fails or panics when it is told to.
struct Counting {
    inner: Arc<dyn Store>,
    samples: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    fails: AtomicBool,
    hangs: AtomicBool,
}

impl Store for Counting {
    forward!(
        migrate,
        check,
        insert,
        release,
        settle,
        census,
        troubled,
        query_dead,
        count_dead,
        replay_dead,
        purge,
        poll,
        claim
    );

    fn sample(&self, at: At, cap: u32) -> BoxFuture<'_, Result<Option<Sample>, Error>> {
        Box::pin(async move {
            self.samples.fetch_add(1, Ordering::SeqCst);
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            if self.hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            let sample = self.inner.sample(at, cap).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            assert!(!self.fails.load(Ordering::SeqCst), "on purpose");
            sample
        })
    }
}

impl Counting {
    fn around(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            samples: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            fails: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
        })
    }
}

#[tokio::test]
async fn a_sample_is_taken_without_anybody_who_looks_and_never_two_at_once() {
    let shop = Shop::open().await;
    let store = Counting::around(shop.store.clone());
    let outbox = shop.outbox().store(store.clone()).start().await.unwrap();
    // Written by somebody else, so that the poller, which sleeps, does not know of it.
    shop.insert(&[old("a", "OrderPlaced")]).await;
    eventually("the lag", async || outbox.metrics().lag_oldest_ms.value() >= 600_000).await;
    let looks: Vec<_> = (0..20)
        .map(|_| {
            let outbox = outbox.clone();
            tokio::spawn(async move { outbox.report().await })
        })
        .collect();
    for look in looks {
        look.await.unwrap();
    }
    assert_eq!(store.most.load(Ordering::SeqCst), 1);
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn a_sample_that_hangs_holds_up_neither_deliveries_nor_the_end() {
    let shop = Shop::open().await;
    let store = Counting::around(shop.store.clone());
    store.hangs.store(true, Ordering::SeqCst);
    let builder = shop.outbox().store(store.clone()).on("Order", "OrderPlaced", |_: Event| async {});
    let outbox = builder.start().await.unwrap();
    eventually("a sample", async || store.samples.load(Ordering::SeqCst) == 1).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("a")).await.unwrap();
    tx.commit().await.unwrap();
    eventually("the event to be handled", async || shop.count(DONE).await == 1).await;
    tokio::time::timeout(Duration::from_secs(20), outbox.close())
        .await
        .expect("closing waits for a sample")
        .unwrap();
}

#[tokio::test]
async fn a_store_that_panics_when_it_is_sampled_ends_nothing() {
    let shop = Shop::open().await;
    let store = Counting::around(shop.store.clone());
    store.fails.store(true, Ordering::SeqCst);
    let outbox = shop.outbox().store(store.clone()).start().await.unwrap();
    eventually("a sample", async || store.samples.load(Ordering::SeqCst) == 1).await;
    store.fails.store(false, Ordering::SeqCst);
    eventually("a sample that works", async || {
        tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.report().await.routes.is_empty() }
        })
        .await
        .is_ok()
    })
    .await;
    outbox.close().await.unwrap();
}

/// Sends nowhere, through a target that is away or is not.
#[derive(Clone)]
struct Relay {
    target: Target,
    away: Arc<AtomicBool>,
}

impl Handler for Relay {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        let permit = self.target.admit([event.id()])?;
        let why = || "connection refused".to_owned();
        let away = self.away.load(Ordering::SeqCst);
        let verdict = if away {
            Verdict::Unavailable { class: "connect", wait: None, why: why() }
        } else {
            Verdict::Done
        };
        permit.answer(verdict)
    }

    fn target(&self) -> Option<&Target> {
        Some(&self.target)
    }
}

#[tokio::test]
async fn a_route_that_waits_says_why_since_when_and_how_many() {
    let shop = Shop::open().await;
    let before = SystemClock.now();
    let away = Arc::new(AtomicBool::new(true));
    let (pause, open) = (Duration::from_millis(50), Duration::from_millis(200));
    let opens = (Some(1), 1, open);
    let mut config = Config { pause, ..Config::default() };
    let breaker = &mut config.breaker;
    (breaker.consecutive_failures, breaker.half_open_calls, breaker.wait_in_open) = opens;
    let target = Target::new("webhook", "billing", &config, Arc::new(SystemClock));
    let relay = Relay { target, away: away.clone() };
    let later = Arc::new(AtomicBool::new(true));
    let defers = {
        let later = later.clone();
        move |_: Event| {
            let later = later.load(Ordering::SeqCst);
            async move { if later { Outcome::RetryAfter(Duration::from_millis(100)) } else { Outcome::Done } }
        }
    };
    shop.insert(&[old("a", "OrderPlaced"), old("b", "OrderPlaced")]).await;
    shop.insert(&[old("c", "OrderPaid"), old("d", "OrderPaid")]).await;
    let builder = shop.outbox().on("Order", "OrderPlaced", relay).on("Order", "OrderPaid", defers);
    let outbox = builder.start().await.unwrap();
    let paused = async |name: &str| route(&outbox.report().await, name).paused.clone();
    eventually("both routes to wait", async || {
        paused("Order/OrderPlaced").await.is_some() && paused("Order/OrderPaid").await.is_some()
    })
    .await;
    let report = outbox.report().await;
    let placed = route(&report, "Order/OrderPlaced");
    assert_eq!(placed.waiting.events, 2);
    let why = placed.paused.as_ref().unwrap();
    assert_eq!(why.state, "held");
    assert_eq!(why.why, "unavailable: the target is unavailable: connection refused");
    assert!(why.since >= before && why.since <= SystemClock.now());
    assert_eq!(why.target.as_deref(), Some("billing"));
    // None is known while one is on its way.
    eventually("the next probe to be known", async || {
        let next = paused("Order/OrderPlaced").await.and_then(|why| why.next_probe);
        next.is_some_and(|at| at >= before && at <= SystemClock.now() + Duration::from_secs(1))
    })
    .await;
    let why = route(&report, "Order/OrderPaid").paused.clone().unwrap();
    assert_eq!((why.state, why.why.as_str()), ("deferred", "its handler asks to come back later"));
    assert!(why.since >= before);

    away.store(false, Ordering::SeqCst);
    later.store(false, Ordering::SeqCst);
    eventually("all to be handled", async || shop.count(DONE).await == 4).await;
    assert_eq!((paused("Order/OrderPlaced").await, paused("Order/OrderPaid").await), (None, None));
    assert!(outbox.metrics().dispatch_wait.count() >= 3);
    outbox.close().await.unwrap();
}
