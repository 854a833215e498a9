//! Ordered delivery: one after the other as they were created, and what that gives up.

use std::collections::HashSet;
use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure, Outcome, Timestamp};
use backstop_sql::outbox::{Builder, Ordered};
use backstop_sql::store::{DeadFilter, Order};
use backstop_sql::{Outbox, Supported};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};
use tracing::Level;

use crate::harness::{DEAD, DONE, Database, NEVER, NEW, RETRY, Shop, order, shop};
use crate::logs::Logs;
use crate::watched::{Asked, Watched};

/// An ordered outbox whose poller sleeps unless it is nudged.
fn ordered<DB: Database>(shop: &Shop<DB>) -> Builder<DB, Ordered> {
    Outbox::ordered(shop.pool.clone()).interval(NEVER)
}

fn moment(second: i64) -> Timestamp {
    Timestamp::from_timestamp(1_700_000_000 + second, 0).unwrap()
}

fn at(second: i64, id: &str) -> Event {
    Event::of("OrderPlaced").id(id).aggregate("Order", "one").occurred_at(moment(second)).json(&()).unwrap()
}

/// The ids in the order they came first: delivery is at least once, so one may come again.
fn first_arrivals(recorder: &Recording) -> Vec<String> {
    let mut seen = HashSet::new();
    recorder.ids().into_iter().filter(|id| seen.insert(id.clone())).collect()
}

async fn append<DB: Supported>(outbox: &Outbox<DB>, ids: &[&str]) {
    for id in ids {
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order(id)).await.unwrap();
        tx.commit().await.unwrap();
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-084, O-502, O-519, O-522.
    async fn every_event_goes_through_the_poller_which_takes_no_locks(shop) {
        let store = Watched::around(shop.store.clone());
        let gate = Slow::gated();
        let outbox =
            ordered(&shop).store(store.clone()).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        store.first_answered().await;
        append(&outbox, &["1", "2"]).await;
        assert_eq!((outbox.metrics().enqueue_hot.total(), outbox.metrics().enqueue_hot_dropped.total()), (0, 0));
        assert_eq!(gate.began(), 0);
        outbox.nudge();
        gate.until_began(1).await;
        assert_eq!(shop.row("1").await.locked_by, None);
        gate.open();
        outbox.close().await.unwrap();
        assert_eq!((outbox.metrics().enqueue_cold.total(), shop.count(DONE).await), (2, 2));
        for asked in store.asked() {
            assert!(matches!(asked, Asked::Poll(due) if due.order == Order::Created), "{asked:?}");
        }
    }

    /// Rules: O-504.
    async fn events_arrive_in_the_order_of_creation_and_those_of_one_moment_by_id(shop) {
        let created = [(3, "d"), (1, "b"), (9, "z"), (1, "a"), (2, "c"), (3, "e")];
        shop.insert(&created.map(|(second, id)| at(second, id))).await;
        // Created first and due last, though due by now: it is the first all the same.
        let late = Event::of("OrderPlaced").id("y").aggregate("Order", "one").occurred_at(moment(0));
        shop.insert(&[late.available_at(moment(100)).json(&()).unwrap()]).await;
        let recorder = Recording::new();
        // Also where a batch holds only some of them.
        let builder = ordered(&shop).batch_size(2).interval(Duration::from_millis(1));
        let outbox = builder.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        eventually("all to be done", async || shop.count(DONE).await == 7).await;
        outbox.close().await.unwrap();
        assert_eq!(first_arrivals(&recorder), ["y", "a", "b", "c", "d", "e", "z"]);
    }

    /// Rules: O-504.
    async fn one_write_after_the_other_arrives_in_that_order(shop) {
        let recorder = Recording::new();
        let builder = Outbox::ordered(shop.pool.clone()).interval(Duration::from_millis(1));
        let outbox = builder.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut written = Vec::new();
        for _ in 0..60 {
            let event = Event::of("OrderPlaced").aggregate("Order", "one").json(&()).unwrap();
            written.push(event.id().to_owned());
            let mut tx = outbox.begin().await.unwrap();
            tx.append(event).await.unwrap();
            tx.commit().await.unwrap();
        }
        eventually("all to be done", async || shop.count(DONE).await == 60).await;
        outbox.close().await.unwrap();
        assert_eq!(first_arrivals(&recorder), written);
    }

    /// Rules: O-520.
    async fn one_event_is_handled_at_a_time(shop) {
        shop.insert(&["1", "2", "3", "4"].map(order)).await;
        let gate = Slow::gated();
        let outbox = ordered(&shop).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        for done in 1..=4 {
            gate.until_began(done).await;
            tokio::task::yield_now().await;
            assert_eq!((gate.began(), gate.in_progress()), (done, 1));
            gate.let_through(1);
        }
        outbox.close().await.unwrap();
        assert_eq!((gate.most_at_once(), shop.count(DONE).await), (1, 4));
    }

    /// Rules: O-506, O-507, O-521.
    async fn a_failed_event_is_dead_at_once_and_replayed_by_hand_when_the_cause_is_gone(shop) {
        let handler = Failing::times(1);
        let recorder = Recording::of(handler.clone());
        let store = Watched::around(shop.store.clone());
        store.hold_up();
        let builder = ordered(&shop).store(store.clone());
        let builder = builder.on("Order", "OrderPlaced", recorder.clone());
        let outbox = builder.start().await.unwrap();
        append(&outbox, &["1"]).await;
        store.let_go(1);
        // A look that has begun meanwhile, and is held up, keeps the event's id until it ends: that is not waited for.
        eventually("the event to die", async || outbox.metrics().dispatch_dead.total() == 1).await;
        assert_eq!(shop.row("1").await.status, DEAD);
        assert_eq!((handler.tries_of("1"), shop.row("1").await.attempts), (1, 0));

        let dead = outbox.dead().query(&DeadFilter::default(), 10).await.unwrap();
        assert_eq!(
            (dead.len(), dead[0].attempts, dead[0].error.as_deref()),
            (1, 1, Some("test: failed on purpose"))
        );
        assert_eq!(outbox.dead().replay_all(DeadFilter::default()).run().await.unwrap(), 1);
        store.let_go(1_000);
        recorder.until(2).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("1").await.status, DONE);
    }

    /// Rules: O-505.
    async fn with_retries_a_later_event_overtakes_which_is_why_ordered_has_none(shop) {
        shop.insert(&[at(0, "a"), at(1, "b")]).await;
        let recorder = Recording::of(|event: Event| async move {
            if event.id() == "a" { Err(Failure::transient("busy", "later")) } else { Ok(Outcome::Done) }
        });
        // One worker and the order of creation, but with a second try.
        let outbox = shop
            .outbox()
            .worker_count(1)
            .max_attempts(2)
            .retry_policy(|_: u32, _: Jitter| Duration::from_secs(3_600))
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        eventually("b to be delivered", async || shop.row("b").await.status == DONE).await;
        eventually("a to be put back", async || shop.row("a").await.status == RETRY).await;
        assert_eq!(recorder.ids(), ["a", "b"]);
        outbox.close().await.unwrap();

        // Ordered: a is dead before b is handled, so nobody takes it for delivered or for waiting.
        let shop = shop.another().await;
        shop.insert(&[at(0, "a"), at(1, "b")]).await;
        let outbox = ordered(&shop).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        eventually("b to be delivered", async || shop.row("b").await.status == DONE).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("a").await.status, DEAD);
    }

    async fn an_event_that_is_put_off_lets_others_overtake_and_that_is_logged(shop) {
        let logs = Logs::catch();
        shop.insert(&[at(0, "a"), at(1, "b")]).await;
        let recorder = Recording::of(|event: Event| async move {
            if event.id() == "a" { Outcome::retry_after(Duration::from_secs(3_600)) } else { Outcome::Done }
        });
        let outbox = ordered(&shop).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(2).await;
        outbox.close().await.unwrap();
        assert_eq!((shop.row("a").await.status, shop.row("b").await.status), (NEW, DONE));
        assert_eq!(logs.having(Level::WARN, "overtake").len(), 1, "{}", logs.all());
    }

    /// Rules: O-508.
    async fn an_event_waits_for_the_next_look_and_no_longer(shop) {
        let store = Watched::around(shop.store.clone());
        let recorder = Recording::new();
        let interval = Duration::from_millis(100);
        let builder = Outbox::ordered(shop.pool.clone()).interval(interval).store(store.clone());
        let outbox = builder.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        store.first_asked().await;
        let looks = store.asked().len();
        append(&outbox, &["1"]).await;
        recorder.until(1).await;
        // Found by the look that was under way, by the next one, or by the one after that.
        let needed = store.asked().len() - looks;
        assert!(needed <= 2, "{needed} looks");
        outbox.close().await.unwrap();
    }

    /// Rules: O-509.
    async fn order_holds_on_each_node_by_itself(shop) {
        let (one, two) = (Recording::new(), Recording::new());
        let start = async |recorder: &Recording| {
            let builder = Outbox::ordered(shop.pool.clone()).guard(false).interval(Duration::from_millis(1));
            builder.batch_size(3).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap()
        };
        let (first, second) = (start(&one).await, start(&two).await);
        for n in 0..40 {
            shop.insert(&[at(n, &format!("{n:02}"))]).await;
        }
        eventually("all to be delivered", async || shop.count(DONE).await == 40).await;
        first.close().await.unwrap();
        second.close().await.unwrap();
        // Unguarded, both may deliver the same event: nothing is promised across nodes but that all arrive.
        for recorder in [&one, &two] {
            let ids = first_arrivals(recorder);
            assert!(ids.is_sorted(), "{ids:?}");
        }
        let mut all = [one.ids(), two.ids()].concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 40);
    }
}
