//! The poller: looks for due rows, one cycle at a time, as far as whoever takes them has room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backstop_core::{Event, telemetry};
use backstop_sql::connection::Column;
use backstop_sql::outbox::poller::Settings;
use backstop_sql::outbox::{PollHandler, Poller};
use backstop_sql::statement::Value;
use backstop_sql::store::{At, Claim, Due, Order, Store};
use backstop_sql::{Error, SettingFault};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use futures_util::FutureExt;
use tokio::sync::{Notify, Semaphore};

use crate::flaky::Flaky;
use crate::harness::{DONE, NEVER, NEW, Shop, metrics, order, shop};
use crate::spied::Spied;
use crate::steps::{orders, until_count, until_status};

/// Takes what it is given while it has room, and remembers it.
#[derive(Clone, Default)]
struct Taking {
    taken: Arc<Mutex<Vec<(Event, u32)>>>,
    offered: Arc<AtomicUsize>,
    room: Option<usize>,
    refuses_from: Option<usize>,
}

impl Taking {
    fn ids(&self) -> Vec<String> {
        self.taken.lock().unwrap().iter().map(|(event, _)| event.id().to_owned()).collect()
    }
}

impl PollHandler for Taking {
    fn handle(&self, event: Event, attempts: u32, _: Option<Claim>) -> bool {
        let offered = self.offered.fetch_add(1, Ordering::SeqCst);
        if self.refuses_from.is_some_and(|from| offered >= from) {
            return false;
        }
        self.taken.lock().unwrap().push((event, attempts));
        true
    }

    fn available_capacity(&self) -> usize {
        self.room.unwrap_or(usize::MAX)
    }
}

fn poller(store: &Arc<dyn Store>, settings: Settings, handler: impl PollHandler) -> Poller {
    settings.build(store.clone(), handler, metrics()).unwrap()
}

/// Rules: O-340, O-341, O-342, O-345.
#[test]
fn the_defaults_are_fifty_rows_every_five_seconds_of_any_age_and_no_locks() {
    assert_eq!(
        format!("{:?}", Settings::default()),
        "Settings { config: Config { interval: 5s, batch_size: 50, skip_recent: 0ns }, claims: Config { enabled: false, \
         lock_timeout: 300s, owner_id: None, hot_grace: 30s }, order: Due }"
    );
}

/// Rules: O-341, O-342, O-344.
#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let shop = Shop::open().await;
    let settings =
        Settings::default().batch_size(0).interval(Duration::ZERO).claim_locking_as("", Duration::ZERO);
    let refused = settings.build(shop.store.clone(), Taking::default(), metrics()).unwrap_err();
    let Error::Settings { faults } = &refused else { panic!("{refused}") };
    let named: Vec<_> = faults.iter().map(SettingFault::path).collect();
    let all = ["interval-ms", "batch-size", "claim-locking.lock-timeout", "claim-locking.owner-id"];
    assert_eq!(named, all);
}

/// Rules: O-343.
#[tokio::test]
async fn without_a_recorder_a_poller_works_all_the_same() {
    let shop = Shop::open().await;
    let taking = Taking::default();
    let metrics = Arc::new(telemetry::Outbox::new("quiet"));
    let poller = Settings::default().build(shop.store.clone(), taking.clone(), metrics.clone()).unwrap();
    shop.insert(&orders(1)).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    poller.poll().await.unwrap();
    assert_eq!(taking.ids(), ["0000"]);
    assert!(metrics.lag_oldest_ms.value() > 0, "it counts for whoever asks");
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-007, O-347, O-351, O-352, O-361, O-363.
    async fn one_cycle_hands_on_each_due_event_once_with_its_tries(shop) {
        let events = orders(3);
        shop.insert(&events).await;
        shop.run("update outbox_event set attempts = 4, status = 2 where event_id = '0001'").await;
        let taking = Taking::default();
        let poller = poller(&shop.store, Settings::default(), taking.clone());
        assert!(taking.ids().is_empty(), "it does not run before it is told to");
        poller.poll().await.unwrap();
        let taken: Vec<_> = taking.taken.lock().unwrap().clone();
        let tries: Vec<_> = taken.iter().map(|(event, attempts)| (event.id(), *attempts)).collect();
        assert_eq!(tries, [("0000", 0), ("0001", 4), ("0002", 0)]);
        for ((taken, _), event) in taken.iter().zip(&events) {
            assert_eq!(taken.payload_json(), event.payload_json());
            assert_eq!((taken.event_type(), taken.aggregate_id()), (event.event_type(), event.aggregate_id()));
            assert_eq!(taken.occurred_at(), event.occurred_at());
        }
        // A closure of event and tries is a handler too, with room for everything.
        let closure = |_: Event, _: u32| true;
        assert_eq!(PollHandler::available_capacity(&closure), usize::MAX);
    }
}

/// Rules: O-362.
#[test]
fn a_handler_that_does_not_tell_its_room_has_room_for_everything() {
    struct Plain;
    impl PollHandler for Plain {
        fn handle(&self, _: Event, _: u32, _: Option<Claim>) -> bool {
            true
        }
    }
    assert_eq!(Plain.available_capacity(), usize::MAX);
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-350.
    async fn without_room_the_table_is_not_looked_at_and_the_batch_is_no_larger_than_the_room(shop) {
        shop.insert(&orders(5)).await;
        let (store, switches) = Flaky::around(shop.store.clone());
        let full = Taking { room: Some(0), ..Taking::default() };
        poller(&store, Settings::default(), full.clone()).poll().await.unwrap();
        assert_eq!((switches.polls.load(Ordering::SeqCst), full.ids().len()), (0, 0));
        let roomy = Taking { room: Some(3), ..Taking::default() };
        poller(&store, Settings::default(), roomy.clone()).poll().await.unwrap();
        assert_eq!(roomy.ids(), ["0000", "0001", "0002"]);
        assert_eq!(roomy.offered.load(Ordering::SeqCst), 3);
        let small = Taking { room: Some(3), ..Taking::default() };
        poller(&store, Settings::default().batch_size(2), small.clone()).poll().await.unwrap();
        assert_eq!(small.ids().len(), 2);
    }

    /// Rules: O-365, O-410.
    async fn a_refusal_ends_the_cycle_and_the_rest_comes_again(shop) {
        shop.insert(&orders(5)).await;
        let taking = Taking { refuses_from: Some(2), ..Taking::default() };
        poller(&shop.store, Settings::default(), taking.clone()).poll().await.unwrap();
        assert_eq!((taking.ids().len(), taking.offered.load(Ordering::SeqCst)), (2, 3));
        let next = Taking::default();
        poller(&shop.store, Settings::default(), next.clone()).poll().await.unwrap();
        assert_eq!(next.ids().len(), 5);
    }
}

/// Rules: O-346, O-349.
#[tokio::test]
async fn the_first_look_comes_at_the_start_and_starting_twice_changes_nothing() {
    let shop = Shop::open().await;
    shop.insert(&orders(1)).await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let poller = poller(&store, Settings::default().interval(NEVER), Taking::default());
    poller.start().unwrap();
    poller.start().unwrap();
    eventually("the first look", async || switches.polls.load(Ordering::SeqCst) > 0).await;
    poller.nudge();
    eventually("the second look", async || switches.polls.load(Ordering::SeqCst) > 1).await;
    poller.close().await;
    assert_eq!(switches.polls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn closing_that_was_given_up_and_is_asked_for_again_waits_for_the_look_under_way() {
    let shop = Shop::open().await;
    let (looking, answer) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let slow = Spied::of(&shop.store).after_read({
        let (looking, answer) = (looking.clone(), answer.clone());
        move || {
            let (looking, answer) = (looking.clone(), answer.clone());
            async move {
                looking.notify_one();
                answer.acquire().await.unwrap().forget();
            }
        }
    });
    let settings = Settings::default().interval(NEVER);
    let poller = settings.build(slow.shared(), |_: Event, _: u32| true, metrics()).unwrap();
    poller.start().unwrap();
    looking.notified().await;
    for _ in 0..3 {
        assert_eq!(poller.close().now_or_never(), None, "the look is still under way");
    }
    answer.add_permits(1);
    poller.close().await;
    assert_eq!(Arc::strong_count(&answer), 2, "the test's and the poller's: the look has ended");
    poller.close().await;
}

/// Rules: O-346, O-348.
#[tokio::test]
async fn a_closed_poller_looks_no_more_and_cannot_be_started_again() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let poller = poller(&store, Settings::default().interval(Duration::from_millis(1)), Taking::default());
    poller.start().unwrap();
    eventually("some looks", async || switches.polls.load(Ordering::SeqCst) > 2).await;
    poller.close().await;
    let looks = switches.polls.load(Ordering::SeqCst);
    poller.close().await;
    poller.nudge();
    poller.poll().await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(switches.polls.load(Ordering::SeqCst), looks);
    assert!(matches!(poller.start(), Err(Error::State(_))));
}

/// Rules: O-349.
#[tokio::test]
async fn the_interval_counts_from_the_end_of_a_cycle() {
    const CYCLE: Duration = Duration::from_millis(40);
    const INTERVAL: Duration = Duration::from_millis(60);
    let shop = Shop::open().await;
    let ends = Arc::new(Mutex::new(Vec::new()));
    let ended = ends.clone();
    let store = Spied::of(&shop.store).after_read(move || {
        let ended = ended.clone();
        async move {
            tokio::time::sleep(CYCLE).await;
            ended.lock().unwrap().push(Instant::now());
        }
    });
    let poller = poller(&store.shared(), Settings::default().interval(INTERVAL), Taking::default());
    poller.start().unwrap();
    eventually("four cycles", async || ends.lock().unwrap().len() == 4).await;
    poller.close().await;
    let ends = ends.lock().unwrap().clone();
    for pair in ends.windows(2) {
        assert!(pair[1] - pair[0] >= CYCLE + INTERVAL, "{:?}", pair[1] - pair[0]);
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-344, O-345, O-012.
    async fn rows_are_locked_only_where_claims_are_asked_for(shop) {
        shop.insert(&orders(1)).await;
        poller(&shop.store, Settings::default(), Taking::default()).poll().await.unwrap();
        assert_eq!(shop.row("0000").await.locked_by, None);
        let claiming = Settings::default().claim_locking_as("node-1", Duration::from_secs(60));
        let taking = Taking::default();
        poller(&shop.store, claiming, taking.clone()).poll().await.unwrap();
        assert_eq!(shop.row("0000").await.locked_by.as_deref(), Some("node-1"));
        assert_eq!(taking.ids(), ["0000"]);
        // Another one finds nothing, while one that asks for no claims does.
        let other = Settings::default().claim_locking(Duration::from_secs(60));
        let others = Taking::default();
        poller(&shop.store, other, others.clone()).poll().await.unwrap();
        assert!(others.ids().is_empty());
    }

    /// Rules: O-012, O-364.
    async fn in_an_outbox_due_rows_go_to_the_cold_queue_as_far_as_it_has_room(shop) {
        shop.insert(&orders(10)).await;
        let gate = Slow::gated();
        let outbox = shop
            .outbox()
            .worker_count(1)
            .cold_queue_capacity(2)
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        gate.until_began(1).await;
        outbox.nudge();
        eventually("a full queue", async || outbox.metrics().queue_cold_depth.value() == 2).await;
        outbox.nudge();
        assert_eq!((outbox.metrics().enqueue_cold.total(), outbox.metrics().enqueue_hot.total()), (3, 0));
        gate.open();
        eventually("the rest", async || {
            outbox.nudge();
            shop.count(DONE).await == 10
        })
        .await;
        outbox.close().await.unwrap();
        assert_eq!(gate.began(), 10);
    }
}

/// Rules: O-450.
#[tokio::test]
async fn two_cycles_of_one_poller_never_overlap() {
    let shop = Shop::open().await;
    shop.insert(&orders(1)).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, highest) = (now.clone(), most.clone());
    let store = Spied::of(&shop.store).after_read(move || {
        let (running, highest) = (running.clone(), highest.clone());
        async move {
            highest.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            running.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let poller =
        poller(&store.shared(), Settings::default().interval(Duration::from_millis(1)), Taking::default());
    poller.start().unwrap();
    let polls = std::iter::repeat_with(|| poller.poll()).take(6);
    for polled in futures_util::future::join_all(polls).await {
        polled.unwrap();
    }
    poller.close().await;
    assert_eq!((most.load(Ordering::SeqCst), now.load(Ordering::SeqCst)), (1, 0));
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-040.
    async fn a_row_as_it_is_read_has_its_event_its_tries_and_the_claim_it_was_read_under(shop) {
        let event =
            Event::of("OrderPlaced").id("1").aggregate("Order", "42").header("a", "b").json(&[1]).unwrap();
        shop.insert(std::slice::from_ref(&event)).await;
        shop.run("update outbox_event set attempts = 3").await;
        let due = Due { at: At::Database, skip_recent: Duration::ZERO, limit: 9, order: Order::Due, after: None, pair: None };
        let polled = shop.store.poll(due).await.unwrap().remove(0);
        assert_eq!((polled.id.as_str(), polled.attempts, polled.claim), ("1", 3, None));
        let read = polled.event.unwrap();
        assert_eq!((read.header("a"), read.payload_json()), (Some("b"), "[1]"));
        let claimed = shop.store.claim(&"me".into(), NEVER, due).await.unwrap().remove(0);
        assert_eq!(claimed.claim, Some(Claim { owner: "me".into(), seq: 1 }));
    }

    /// Rules: O-175, O-176, O-177.
    async fn the_tenant_goes_into_the_row_and_reaches_the_handler_by_both_ways(shop) {
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let of_tenant = |id: &str, tenant: &str| {
            Event::of("OrderPlaced").id(id).aggregate("Order", id).tenant_id(tenant).json(&()).unwrap()
        };
        crate::steps::commit(&outbox, vec![of_tenant("hot", "acme")]).await;
        until_status(&shop, "hot", DONE).await;
        shop.insert(&[of_tenant("cold", "umbrella"), order("none")]).await;
        outbox.nudge();
        until_count(&shop, DONE, 3).await;
        outbox.close().await.unwrap();
        let stored = shop.statement("select event_id, tenant_id from outbox_event order by event_id");
        let stored = shop.read(&stored, &[Column::Text, Column::Text]).await;
        let expected = [("cold", Some("umbrella")), ("hot", Some("acme")), ("none", None)];
        let text = |text: Option<&str>| Value::Text(text.map(str::to_owned));
        assert_eq!(stored, expected.map(|(id, tenant)| vec![text(Some(id)), text(tenant)]));
        let mut seen = recorder.events();
        seen.sort_by(|a, b| a.id().cmp(b.id()));
        assert_eq!(seen.iter().map(|event| (event.id(), event.tenant_id())).collect::<Vec<_>>(), expected);
        assert_eq!(shop.count(NEW).await, 0);
    }
}
