//! Dead events: seen, counted and replayed, some or all, slowly or at once, and never for ever.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::operate::{Operation, Refused};
use backstop_core::{Event, Failure, Timestamp};
use backstop_sql::Error;
use backstop_sql::outbox::{DeadEvents, Redriven};
use backstop_sql::store::DeadFilter;
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording};
use tokio::sync::watch;
use tracing::Level;

use crate::flaky::Flaky;
use crate::harness::{DEAD, DONE, Database, NEW, Shop, order, shop};
use crate::logs::Logs;
use crate::watched::Watched;

/// An event of a kind, created so many seconds after the first.
fn event(id: &str, aggregate: &str, kind: &str, second: u64) -> Event {
    let event =
        Event::of(kind).id(id).aggregate(aggregate, id).occurred_at(start() + Duration::from_secs(second));
    event.json(&()).unwrap()
}

fn start() -> Timestamp {
    Timestamp::from_timestamp(1_700_000_000, 0).unwrap()
}

/// Five dead events of three kinds, in this order of creation.
async fn five_dead(shop: &Shop<impl Database>) {
    let events = [
        event("a", "Order", "OrderPlaced", 0),
        event("b", "Order", "OrderShipped", 1),
        event("c", "Refund", "OrderPlaced", 2),
        event("d", "Order", "OrderPlaced", 3),
        event("e", "Refund", "RefundIssued", 4),
    ];
    shop.insert(&events).await;
    bury_all(shop).await;
}

async fn bury_all(shop: &Shop<impl Database>) {
    let bury = "update outbox_event set status = 3, attempts = 9, last_error = 'gone', done_at = created_at";
    shop.run(bury).await;
}

fn of_type(kind: &str) -> DeadFilter {
    DeadFilter { event_type: Some(kind.into()), ..DeadFilter::default() }
}

fn of_aggregate(kind: &str) -> DeadFilter {
    DeadFilter { aggregate_type: Some(kind.into()), ..DeadFilter::default() }
}

async fn ids(shop: &Shop<impl Database>, status: i64) -> Vec<String> {
    shop.texts(&format!("select event_id from outbox_event where status = {status} order by event_id")).await
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-042, O-491, O-492, O-496.
    async fn the_dead_are_found_and_counted_with_nothing_but_a_store(shop) {
        five_dead(&shop).await;
        let dead = DeadEvents::of(shop.store.clone());
        let found = async |filter: DeadFilter, limit| -> Vec<String> {
            let events = dead.query(&filter, limit).await.unwrap();
            events.into_iter().map(|event| event.id).collect()
        };
        assert_eq!(found(DeadFilter::default(), 100).await, ["a", "b", "c", "d", "e"]);
        assert_eq!(found(DeadFilter::default(), 2).await, ["a", "b"]);
        assert_eq!(found(of_type("OrderPlaced"), 100).await, ["a", "c", "d"]);
        assert_eq!(found(of_aggregate("Refund"), 100).await, ["c", "e"]);
        let both = DeadFilter { aggregate_type: Some("Order".into()), ..of_type("OrderPlaced") };
        assert_eq!(found(both, 100).await, ["a", "d"]);
        assert_eq!(dead.count(&DeadFilter::default()).await.unwrap(), 5);
        assert_eq!(dead.count(&of_type("OrderPlaced")).await.unwrap(), 3);

        let first = &dead.query(&DeadFilter::default(), 1).await.unwrap()[0];
        assert_eq!((first.attempts, first.error.as_deref()), (10, Some("gone")));
        assert_eq!(first.event.as_ref().unwrap().event_type(), "OrderPlaced");
        // Every connection was given back: more questions than the pool has connections were answered.
        assert!(shop.pool.size() <= 4);
    }

    /// Rules: O-480.
    async fn an_event_dies_after_its_last_try_or_at_once_without_a_handler(shop) {
        let outbox = shop
            .outbox()
            .max_attempts(2)
            .retry_policy(|_: u32, _: backstop_core::retry::Jitter| Duration::ZERO)
            .on("Order", "OrderPlaced", Failing::always())
            .start()
            .await
            .unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("fails")).await.unwrap();
        tx.append(Event::of("Unknown").id("unroutable").json(&()).unwrap()).await.unwrap();
        tx.commit().await.unwrap();
        eventually("both to die", async || {
            outbox.nudge();
            shop.count(DEAD).await == 2
        })
        .await;
        outbox.close().await.unwrap();
        assert_eq!((shop.row("fails").await.attempts, shop.row("unroutable").await.attempts), (1, 0));
        assert!(shop.row("unroutable").await.last_error.unwrap().contains("no handler is registered"));
    }

    /// Rules: O-493.
    async fn one_dead_event_is_replayed_and_delivered_without_waiting_for_the_poller(shop) {
        five_dead(&shop).await;
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        assert!(outbox.dead().replay("a").await.unwrap());
        recorder.until(1).await;
        outbox.close().await.unwrap();
        assert_eq!((shop.row("a").await.status, shop.row("a").await.attempts), (DONE, 0));
        // Neither what is done nor what never was can be replayed.
        assert!(!outbox.dead().replay("a").await.unwrap());
        assert!(!outbox.dead().replay("nobody").await.unwrap());
        assert_eq!((outbox.metrics().replay.total(), shop.count(DEAD).await), (1, 4));
    }

    /// Rules: O-494, O-495.
    async fn all_that_match_are_replayed_in_batches_and_counted(shop) {
        five_dead(&shop).await;
        let dead = DeadEvents::of(shop.store.clone());
        let steps = Arc::new(Mutex::new(Vec::new()));
        let noted = steps.clone();
        let replay = dead.replay_all(of_type("OrderPlaced")).batch_size(2);
        let replayed = replay.on_progress(move |so_far| noted.lock().unwrap().push(so_far)).run().await.unwrap();
        assert_eq!(replayed, 3);
        assert_eq!(*steps.lock().unwrap(), [2, 3]);
        assert_eq!(ids(&shop, NEW).await, ["a", "c", "d"]);
        assert_eq!(ids(&shop, DEAD).await, ["b", "e"]);
        assert_eq!(dead.replay_all(DeadFilter::default()).run().await.unwrap(), 2);
        assert_eq!(dead.replay_all(DeadFilter::default()).run().await.unwrap(), 0);
    }

    async fn each_part_of_the_filter_narrows_what_is_replayed(shop) {
        let second = |n: u64| Some(start() + Duration::from_secs(n));
        let cases = [
            (of_aggregate("Refund"), vec!["c", "e"]),
            (DeadFilter { aggregate_id: Some("d".into()), ..DeadFilter::default() }, vec!["d"]),
            (
                DeadFilter { ids: Some(vec!["a".into(), "e".into(), "x".into()]), ..DeadFilter::default() },
                vec!["a", "e"],
            ),
            (DeadFilter { ids: Some(vec![]), ..DeadFilter::default() }, vec![]),
            (DeadFilter { created_from: second(3), ..DeadFilter::default() }, vec!["d", "e"]),
            (DeadFilter { created_before: second(3), ..DeadFilter::default() }, vec!["a", "b", "c"]),
            (
                DeadFilter { created_from: second(1), created_before: second(3), ..of_aggregate("Order") },
                vec!["b"],
            ),
        ];
        for (filter, wanted) in cases {
            let shop = shop.another().await;
            five_dead(&shop).await;
            let dead = DeadEvents::of(shop.store.clone());
            let would_be = dead.replay_all(filter.clone()).dry_run().run().await.unwrap();
            assert_eq!((would_be, shop.count(DEAD).await), (wanted.len() as u64, 5), "{filter:?}");
            assert_eq!(dead.replay_all(filter.clone()).run().await.unwrap(), would_be, "{filter:?}");
            assert_eq!(ids(&shop, NEW).await, wanted, "{filter:?}");
        }
    }

    async fn a_dry_run_only_counts(shop) {
        five_dead(&shop).await;
        let outbox = shop.outbox().start().await.unwrap();
        let counted =
            outbox.dead().replay_all(DeadFilter::default()).batch_size(2).dry_run().run().await.unwrap();
        assert_eq!((counted, shop.count(DEAD).await, outbox.metrics().replay.total()), (5, 5, 0));
        outbox.close().await.unwrap();
    }

    /// Rules: O-494.
    async fn a_replay_ends_although_the_events_die_again_and_new_ones_die_meanwhile(shop) {
        five_dead(&shop).await;
        let handler = Failing::always().with(|| Failure::permanent("still", "broken"));
        let recorder = Recording::of(handler);
        let watched = Watched::around(shop.store.clone());
        watched.hold_up();
        let outbox = shop
            .outbox()
            .store(watched.clone())
            .on("Order", "OrderPlaced", recorder.clone())
            .on("Order", "OrderShipped", recorder.clone())
            .on("Refund", "OrderPlaced", recorder.clone())
            .on("Refund", "RefundIssued", recorder.clone())
            .start()
            .await
            .unwrap();
        let (store, died) = crate::dying::Dying::around(&shop, false);
        let replayed = DeadEvents::of(store).replay_all(DeadFilter::default()).batch_size(1).run().await.unwrap();
        assert_eq!((replayed, died.load(Ordering::SeqCst)), (5, 5));
        watched.let_go(1);
        recorder.until(5).await;
        watched.let_go(1_000); // another look may have begun, and closing waits for it
        outbox.close().await.unwrap();
        // All are dead again, and so are those that died meanwhile: each was replayed once or not at all.
        assert_eq!((shop.count(DEAD).await, recorder.events().len()), (10, 5));
    }

    /// Those that die meanwhile were created later, and this must not go on for as long as others die.
    async fn a_replay_of_too_many_to_count_ends_with_the_last_that_was_dead_when_it_began(shop) {
        five_dead(&shop).await;
        let (store, died) = crate::dying::Dying::around(&shop, true);
        let dead = DeadEvents::of(store);
        let replay = async |filter| dead.replay_all(filter).batch_size(1).run().await.unwrap();
        assert_eq!((replay(of_type("OrderPlaced")).await, died.load(Ordering::SeqCst)), (3, 3));
        assert_eq!(ids(&shop, NEW).await, ["a", "c", "d"]);
        let old = DeadFilter { created_before: Some(start() + Duration::from_secs(2)), ..DeadFilter::default() };
        assert_eq!((replay(old).await, died.load(Ordering::SeqCst)), (1, 4), "a filter of its own still narrows it");
        // What died by then is meant, too.
        assert_eq!((replay(DeadFilter::default()).await, died.load(Ordering::SeqCst)), (5, 9));
        assert_eq!(shop.count(DEAD).await, 5);
    }

    async fn the_dead_are_discarded_one_or_all_that_match_and_counted(shop) {
        five_dead(&shop).await;
        let outbox = shop.outbox().start().await.unwrap();
        let dead = outbox.dead();
        assert!(dead.discard("a").await.unwrap());
        assert!(!dead.discard("a").await.unwrap() && !dead.discard("nobody").await.unwrap());
        let placed = || dead.discard_all(of_type("OrderPlaced"));
        assert_eq!(placed().dry_run().run().await.unwrap(), 2);
        assert_eq!(shop.count(DEAD).await, 4, "a dry run only counts");
        assert_eq!(placed().limit(1).run().await.unwrap(), 1);
        assert_eq!(ids(&shop, DEAD).await, ["b", "d", "e"], "the oldest goes first");
        assert_eq!(dead.discard_all(DeadFilter::default()).batch_size(2).run().await.unwrap(), 3);
        assert_eq!((shop.count(DEAD).await, outbox.metrics().discard.total()), (0, 5));
        outbox.close().await.unwrap();
    }

    async fn a_limit_replays_the_oldest_and_the_next_run_the_rest(shop) {
        five_dead(&shop).await;
        let dead = DeadEvents::of(shop.store.clone());
        let replay = || dead.replay_all(DeadFilter::default()).batch_size(2);
        assert_eq!(replay().limit(3).run().await.unwrap(), 3);
        assert_eq!(ids(&shop, NEW).await, ["a", "b", "c"]);
        assert_eq!(replay().limit(0).run().await.unwrap(), 0);
        assert_eq!(replay().limit(100).run().await.unwrap(), 2);
    }

    /// Between the look and the change somebody replays it, and it dies of something else.
    async fn what_no_longer_matches_is_not_discarded(shop) {
        five_dead(&shop).await;
        let of_gone = DeadFilter { error_contains: Some("gone".into()), ..DeadFilter::default() };
        let store = crate::dying::DyingAgain::around(&shop, "b");
        assert_eq!(DeadEvents::of(store).discard_all(of_gone).run().await.unwrap(), 4);
        assert_eq!(ids(&shop, DEAD).await, ["b"]);
    }

    async fn a_letter_that_arrived_is_counted_once(shop) {
        five_dead(&shop).await;
        let outbox = shop.outbox().start().await.unwrap();
        let dead = outbox.dead();
        assert_eq!(dead.redriven("a").await.unwrap(), Redriven::Settled);
        assert_eq!(dead.redriven("a").await.unwrap(), Redriven::NotDead);
        assert_eq!((outbox.metrics().redrive.total(), ids(&shop, DONE).await), (1, vec!["a".to_owned()]));
        outbox.close().await.unwrap();
    }

    async fn an_operator_moves_events_of_a_running_outbox_by_their_ids(shop) {
        five_dead(&shop).await;
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let inspect = outbox.inspect();
        let operable = inspect.operable().unwrap();
        let ids_of = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let replayed = operable.operate(&Operation::Replay { ids: ids_of(&["a", "nobody"]) }).await.unwrap();
        assert_eq!((replayed.changed, replayed.told.as_str()), (1, "1 of 2 events were dead, and are replayed"));
        recorder.until(1).await;
        let discarded = operable.operate(&Operation::Discard { ids: ids_of(&["b", "c", "b"]) }).await.unwrap();
        assert_eq!(discarded.changed, 2);
        assert_eq!(operable.operate(&Operation::Discard { ids: vec![] }).await.unwrap().changed, 0);
        assert_eq!(operable.operate(&Operation::Enable).await, Err(Refused::NotOffered));
        outbox.close().await.unwrap();
        assert_eq!(ids(&shop, DEAD).await, ["d", "e"]);
    }
}

#[tokio::test]
async fn no_more_than_so_many_are_replayed_in_a_second() {
    let shop = Shop::open().await;
    five_dead(&shop).await;
    let (progress, mut told) = watch::channel(0);
    let replay = DeadEvents::of(shop.store.clone()).replay_all(DeadFilter::default()).per_second(3);
    let running = tokio::spawn(replay.on_progress(move |so_far| _ = progress.send(so_far)).run());
    told.wait_for(|so_far| *so_far > 0).await.unwrap();
    assert_eq!((*told.borrow(), shop.count(DEAD).await), (3, 2));
    running.abort();

    let shop = Shop::open().await;
    five_dead(&shop).await;
    let began = tokio::time::Instant::now();
    let replay = DeadEvents::of(shop.store.clone()).replay_all(DeadFilter::default()).batch_size(2);
    assert_eq!(replay.per_second(20).run().await.unwrap(), 5);
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}

/// Rules: O-497, O-498, O-499, O-500, O-501.
#[tokio::test]
async fn a_database_that_is_away_is_an_error_and_never_looks_like_nothing_is_dead() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    five_dead(&shop).await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let dead = DeadEvents::of(store);

    // It goes away after the first batch: the count so far is told with the error.
    let away = switches.clone();
    let replay = dead.replay_all(DeadFilter::default()).batch_size(2);
    let gone = replay.on_progress(move |_| away.dead_fails.store(true, Ordering::SeqCst)).run().await;
    let stopped = gone.unwrap_err();
    assert_eq!(stopped.changed, 2);
    assert!(stopped.to_string().starts_with("stopped after replaying 2 events: "), "{stopped}");
    assert_eq!(logs.having(Level::ERROR, "cannot reach the dead events").len(), 1, "{}", logs.all());

    assert!(matches!(dead.query(&DeadFilter::default(), 10).await, Err(Error::Database { .. })));
    assert!(matches!(dead.count(&DeadFilter::default()).await, Err(Error::Database { .. })));
    assert!(matches!(dead.replay("c").await, Err(Error::Database { .. })));
    assert_eq!(logs.having(Level::ERROR, "failing on purpose").len(), 4, "{}", logs.all());

    switches.dead_fails.store(false, Ordering::SeqCst);
    assert_eq!(dead.count(&DeadFilter::default()).await.unwrap(), 3);
}
