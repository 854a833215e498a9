//! The four modes: which parts each has, which settings it offers, and what they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure};
use backstop_sql::outbox::{Interceptor, interceptor, purge};
use backstop_sql::store::Order;
use backstop_sql::{Error, Outbox, Supported};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};

use crate::harness::{DEAD, DONE, NEVER, NEW, Shop, order, shop};
use crate::watched::{Asked, Watched};

const MINUTE: Duration = Duration::from_secs(60);

fn at_once(_: u32, _: Jitter) -> Duration {
    Duration::ZERO
}

async fn append<DB: Supported>(outbox: &Outbox<DB>, id: &str) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order(id)).await.unwrap();
    tx.commit().await.unwrap();
}

/// Runs the block for the two modes whose delivery can be tuned, with `$builder` on the table of a fresh shop each.
macro_rules! in_each_tunable_mode {
    ($fresh:expr, |$shop:ident, $mode:ident, $builder:ident| $body:block) => {{
        {
            let ($shop, $mode) = ($fresh, "single_node");
            let $builder = Outbox::single_node($shop.pool.clone());
            $body
        }
        {
            let ($shop, $mode) = ($fresh, "multi_node");
            let $builder = Outbox::multi_node($shop.pool.clone()).claim_locking(MINUTE);
            $body
        }
    }};
}

/// Runs the block for the three modes that deliver.
macro_rules! in_each_delivering_mode {
    ($fresh:expr, |$shop:ident, $mode:ident, $builder:ident| $body:block) => {{
        in_each_tunable_mode!($fresh, |$shop, $mode, $builder| $body);
        let ($shop, $mode) = ($fresh, "ordered");
        let $builder = Outbox::ordered($shop.pool.clone());
        $body
    }};
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-001, O-413, O-510, O-527, O-562, O-566.
    async fn each_mode_starts_writes_and_is_closed_as_one(shop) {
        in_each_delivering_mode!(shop.another().await, |shop, mode, builder| {
            let recorder = Recording::new();
            let outbox =
                builder.interval(NEVER).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
            let mut tx = shop.pool.begin().await.unwrap();
            let appended = outbox.writer().append(&mut tx, order("1")).await.unwrap();
            tx.commit().await.unwrap();
            appended.committed();
            outbox.nudge();
            recorder.until(1).await;
            outbox.close().await.unwrap();
            assert_eq!(shop.row("1").await.status, DONE, "{mode}");
            // Every part is closed: what is written from now on waits for the next start.
            append(&outbox, "2").await;
            outbox.nudge();
            outbox.close().await.unwrap();
            assert_eq!((shop.row("2").await.status, recorder.count_of("2")), (NEW, 0), "{mode}");
        });
        let outbox = Outbox::writer_only(shop.pool.clone()).start().await.unwrap();
        append(&outbox, "1").await;
        outbox.close().await.unwrap();
        outbox.close().await.unwrap();
        assert_eq!(shop.row("1").await.status, NEW);
    }

    /// Rules: O-081, O-511, O-512, O-513.
    async fn single_node_delivers_after_the_commit_and_its_poller_finds_the_rest_without_locks(shop) {
        let store = Watched::around(shop.store.clone());
        store.hold_up();
        let gate = Slow::gated();
        let recorder = Recording::of(gate.clone());
        let outbox = Outbox::single_node(shop.pool.clone())
            .store(store.clone())
            .interval(NEVER)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        assert!(matches!(store.first_asked().await, Asked::Poll(due) if due.order == Order::Due));
        append(&outbox, "hot").await;
        assert_eq!((outbox.metrics().enqueue_hot.total(), outbox.metrics().enqueue_cold.total()), (1, 0));
        shop.insert(&[order("cold")]).await;
        store.let_go(1);
        recorder.until(2).await;
        assert_eq!(outbox.metrics().enqueue_cold.total(), 1);
        for id in ["hot", "cold"] {
            assert_eq!(shop.row(id).await.locked_by, None, "{id}");
        }
        gate.open();
        store.let_go(1_000); // another look may have begun, and closing waits for it
        outbox.close().await.unwrap();
        assert!(store.asked().iter().all(|asked| asked.owner().is_none()));
    }

    /// Rules: O-082, O-516, O-517, O-518, O-544.
    async fn multi_node_delivers_after_the_commit_and_its_poller_claims_the_rest(shop) {
        let store = Watched::around(shop.store.clone());
        store.hold_up();
        let gate = Slow::gated();
        let recorder = Recording::of(gate.clone());
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking_as("node-a", MINUTE)
            .store(store.clone())
            .interval(NEVER)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        append(&outbox, "hot").await;
        assert_eq!((outbox.metrics().enqueue_hot.total(), outbox.metrics().enqueue_cold.total()), (1, 0));
        shop.insert(&[order("cold")]).await;
        store.let_go(1);
        recorder.until(2).await;
        for id in ["hot", "cold"] {
            assert_eq!(shop.row(id).await.locked_by.as_deref(), Some("node-a"), "{id}");
        }
        gate.open();
        store.let_go(1_000); // another look may have begun, and closing waits for it
        outbox.close().await.unwrap();
        assert_eq!(shop.count(DONE).await, 2);
        let as_asked = |asked: &Asked| matches!(asked, Asked::Claim { owner, timeout, .. } if owner == "node-a" && *timeout == MINUTE);
        assert!(store.asked().iter().all(as_asked), "{:?}", store.asked());
    }
}

/// Rules: O-543.
#[tokio::test]
async fn a_node_without_a_name_gets_one_that_is_new_at_each_start() {
    let shop = Shop::open().await;
    let mut owners = Vec::new();
    for _ in 0..2 {
        let store = Watched::around(shop.store.clone());
        let builder = Outbox::multi_node(shop.pool.clone()).claim_locking(MINUTE);
        let outbox = builder.store(store.clone()).start().await.unwrap();
        owners.push(store.first_asked().await.owner().unwrap().to_owned());
        outbox.close().await.unwrap();
    }
    assert!(owners.iter().all(|owner| (1..=128).contains(&owner.len())), "{owners:?}");
    assert_ne!(owners[0], owners[1]);
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-085, O-443, O-444, O-523, O-524, O-525, O-546.
    async fn writer_only_writes_and_neither_delivers_nor_looks(shop) {
        let logs = crate::logs::Logs::catch();
        let store = Watched::around(shop.store.clone());
        let outbox = Outbox::writer_only(shop.pool.clone()).store(store.clone()).start().await.unwrap();
        append(&outbox, "1").await;
        outbox.nudge();
        tokio::task::yield_now().await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("1").await.status, NEW);
        assert_eq!(store.asked(), []);
        let metrics = outbox.metrics();
        assert_eq!(
            (metrics.append.total(), metrics.enqueue_hot.total(), metrics.enqueue_hot_dropped.total()),
            (1, 0, 0)
        );
        assert!(logs.having(tracing::Level::WARN, "").is_empty(), "{}", logs.all());
    }

    /// Rules: O-086, O-547, O-548, O-549, O-550.
    async fn writer_only_may_purge_by_age_whatever_the_status(shop) {
        let hour_ago = backstop_core::Clock::now(&backstop_core::SystemClock) - 60 * MINUTE;
        let old = |id: &str| Event::of("OrderPlaced").id(id).occurred_at(hour_ago).json(&()).unwrap();
        shop.insert(&[old("1"), old("2"), old("3"), order("young")]).await;
        let settings = purge::Settings::default()
            .retention(Duration::from_secs(1_800))
            .batch_size(2)
            .interval(Duration::from_millis(10));
        let outbox = Outbox::writer_only(shop.pool.clone()).purge(settings).start().await.unwrap();
        eventually("the old rows to go", async || shop.rows().await == 1).await;
        assert_eq!(shop.row("young").await.status, NEW);
        // At its interval, so that rows which become old later go too.
        shop.insert(&[old("4")]).await;
        eventually("the next cycle", async || shop.find("4").await.is_none()).await;
        outbox.close().await.unwrap();
        assert_eq!(outbox.metrics().purge.total(), 4);
    }
}

/// Rules: O-514, O-538.
#[tokio::test]
async fn four_events_are_handled_at_once_unless_worker_count_says_otherwise() {
    in_each_tunable_mode!(Shop::open().await, |shop, mode, builder| {
        let events: Vec<_> = (0..8).map(|n| order(&n.to_string())).collect();
        shop.insert(&events).await;
        let gate = Slow::gated();
        let outbox = builder.interval(NEVER).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        gate.until_began(4).await;
        gate.open();
        gate.until_began(8).await;
        assert_eq!(gate.most_at_once(), 4, "{mode}");
        outbox.close().await.unwrap();
    });
    in_each_tunable_mode!(Shop::open().await, |shop, mode, builder| {
        let events: Vec<_> = (0..8).map(|n| order(&n.to_string())).collect();
        shop.insert(&events).await;
        let gate = Slow::gated();
        let builder = builder.worker_count(6).interval(NEVER);
        let outbox = builder.on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        gate.until_began(6).await;
        gate.open();
        gate.until_began(8).await;
        assert_eq!(gate.most_at_once(), 6, "{mode}");
        outbox.close().await.unwrap();
    });
}

/// Lets a failing event be tried until it is dead.
async fn until_dead(shop: &Shop, outbox: &Outbox<sqlx::Sqlite>, id: &str) {
    eventually("the event to die", async || {
        outbox.nudge();
        shop.row(id).await.status == DEAD
    })
    .await;
}

/// Rules: O-515, O-541, O-542.
#[tokio::test]
async fn an_event_is_tried_ten_times_unless_max_attempts_says_otherwise() {
    in_each_tunable_mode!(Shop::open().await, |shop, mode, builder| {
        let handler = Failing::always();
        let builder = builder.retry_policy(at_once).interval(NEVER);
        let outbox = builder.on("Order", "OrderPlaced", handler.clone()).start().await.unwrap();
        append(&outbox, "1").await;
        until_dead(&shop, &outbox, "1").await;
        assert_eq!(handler.tries_of("1"), 10, "{mode}");
        outbox.close().await.unwrap();
    });
    in_each_tunable_mode!(Shop::open().await, |shop, mode, builder| {
        let handler = Failing::always();
        let builder = builder.retry_policy(at_once).max_attempts(3).interval(NEVER);
        let outbox = builder.on("Order", "OrderPlaced", handler.clone()).start().await.unwrap();
        append(&outbox, "1").await;
        until_dead(&shop, &outbox, "1").await;
        assert_eq!(handler.tries_of("1"), 3, "{mode}");
        outbox.close().await.unwrap();
    });
}

/// Rules: O-539, O-540.
#[tokio::test]
async fn the_capacities_bound_what_waits_in_memory() {
    in_each_tunable_mode!(Shop::open().await, |shop, mode, builder| {
        let (gate, store) = (Slow::gated(), Watched::around(shop.store.clone()));
        store.hold_up();
        let builder = builder.worker_count(1).hot_queue_capacity(2).cold_queue_capacity(3).interval(NEVER);
        let outbox =
            builder.store(store.clone()).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        append(&outbox, "at work").await;
        gate.until_began(1).await;
        for id in ["1", "2", "too many"] {
            append(&outbox, id).await;
        }
        let metrics = outbox.metrics();
        assert_eq!((metrics.queue_hot_depth.value(), metrics.enqueue_hot_dropped.total()), (2, 1), "{mode}");
        shop.insert(&(0..10).map(|n| order(&format!("cold-{n}"))).collect::<Vec<_>>()).await;
        store.let_go(1_000);
        eventually("the cold queue to fill", async || metrics.queue_cold_depth.value() == 3).await;
        gate.open();
        let all_done = async || {
            outbox.nudge();
            shop.count(DONE).await == 14
        };
        eventually("everything to be delivered", all_done).await;
        outbox.close().await.unwrap();
    });
}

/// Rules: O-534, O-535, O-536.
#[tokio::test]
async fn interval_batch_size_and_skip_recent_reach_the_poller_of_every_mode() {
    in_each_delivering_mode!(Shop::open().await, |shop, mode, builder| {
        let store = Watched::around(shop.store.clone());
        let outbox = builder.store(store.clone()).interval(NEVER).start().await.unwrap();
        let due = store.first_asked().await.due();
        assert_eq!((due.limit, due.skip_recent), (50, Duration::ZERO), "{mode}");
        outbox.close().await.unwrap();
        assert_eq!(store.asked().len(), 1, "{mode}: it looks once, and then at the interval");
    });
    in_each_delivering_mode!(Shop::open().await, |shop, mode, builder| {
        let store = Watched::around(shop.store.clone());
        let builder = builder.interval(Duration::from_millis(1)).batch_size(7).skip_recent(MINUTE);
        let outbox = builder.store(store.clone()).start().await.unwrap();
        eventually("several looks", async || store.asked().len() > 2).await;
        outbox.close().await.unwrap();
        let due = store.asked()[0].due();
        assert_eq!((due.limit, due.skip_recent), (7, MINUTE), "{mode}");
    });
}

struct Counting(Arc<AtomicUsize>);

impl Interceptor for Counting {
    fn after_dispatch(&self, _: &Event, _: Option<&Failure>) -> Result<(), Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Rules: O-532, O-533.
#[tokio::test]
async fn interceptors_and_a_metrics_recorder_may_be_given_to_every_mode() {
    in_each_delivering_mode!(Shop::open().await, |shop, mode, builder| {
        let (one, many) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counted = many.clone();
        let before = interceptor::before(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let recorder = metrics_util::debugging::DebuggingRecorder::new();
        shop.insert(&[order("1")]).await;
        let outbox = builder
            .interval(NEVER)
            .interceptor(Counting(one.clone()))
            .interceptors([Arc::new(Counting(many.clone())) as Arc<dyn Interceptor>, Arc::new(before)])
            .metrics_recorder(Arc::new(recorder))
            .on("Order", "OrderPlaced", |_: Event| async {})
            .start()
            .await
            .unwrap();
        eventually("the delivery", async || shop.row("1").await.status == DONE).await;
        assert_eq!((one.load(Ordering::SeqCst), many.load(Ordering::SeqCst)), (1, 2), "{mode}");
        outbox.close().await.unwrap();
    });
    let shop = Shop::open().await;
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    Outbox::writer_only(shop.pool.clone()).metrics_recorder(Arc::new(recorder)).start().await.unwrap();
}

/// Rules: O-537.
#[tokio::test]
async fn closing_waits_for_handlers_as_long_as_drain_timeout_says() {
    in_each_delivering_mode!(Shop::open().await, |shop, mode, builder| {
        let gate = Slow::gated();
        let patience = Duration::from_millis(30);
        let builder = builder.drain_timeout(patience).interval(NEVER);
        shop.insert(&[order("1")]).await;
        let outbox = builder.on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        gate.until_began(1).await;
        let began = tokio::time::Instant::now();
        let closed = outbox.close().await;
        assert!(matches!(closed, Err(Error::Drain(waited)) if waited == patience), "{mode}: {closed:?}");
        assert!(began.elapsed() >= patience, "{mode}");
        assert_eq!(shop.row("1").await.status, NEW, "{mode}");
    });
}
