//! Held routes: an outage of what a handler needs costs nothing, counts nothing and loses nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::inspect::Health;
use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::outbox::{Builder, MultiNode};
use backstop_sql::{Outbox, Supported};
use backstop_testkit::handlers::Recording;
use backstop_testkit::{eventually, eventually_within};

use crate::harness::{DEAD, DONE, Database, NEVER, NEW, Shop, order, shop};

/// A handler whose other side can be unplugged, as a whole or for single events.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<Inner>);

#[derive(Default)]
struct Inner {
    down: AtomicBool,
    calls: AtomicU64,
    refuses: Mutex<Option<String>>,
    taken: Mutex<Vec<String>>,
}

impl Line {
    pub(crate) fn unplugged() -> Self {
        let line = Self::default();
        line.plug(false);
        line
    }

    pub(crate) fn plug(&self, plugged: bool) {
        self.0.down.store(!plugged, Ordering::SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn taken(&self) -> Vec<String> {
        self.0.taken.lock().unwrap().clone()
    }

    /// How often each event was taken.
    pub(crate) fn counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for id in self.taken() {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }
}

impl Handler for Line {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let refused = self.0.refuses.lock().unwrap().as_deref() == Some(event.id());
        if refused || self.0.down.load(Ordering::SeqCst) {
            return Err(Failure::unavailable("nobody answers"));
        }
        self.0.taken.lock().unwrap().push(event.id().to_owned());
        Ok(Outcome::Done)
    }
}

pub(crate) fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:04}")).collect()
}

pub(crate) fn orders(ids: &[String]) -> Vec<Event> {
    ids.iter().map(|id| order(id)).collect()
}

pub(crate) fn invoice(id: &str) -> Event {
    Event::of("InvoiceSent").id(id).aggregate("Invoice", id).json(&()).unwrap()
}

pub(crate) async fn append<DB: Supported>(outbox: &Outbox<DB>, events: Vec<Event>) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all(events).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn until_held<DB: Supported>(outbox: &Outbox<DB>) {
    eventually("the route to be held", async || {
        matches!(outbox.report().await.health, Health::Degraded(why) if why.contains("nobody answers"))
    })
    .await;
}

impl<DB: Database> Shop<DB> {
    /// How many rows are as they were inserted: waiting, with no attempt counted and never claimed by a poller.
    pub(crate) async fn untouched(&self) -> i64 {
        self.number(
            "select count(*) from outbox_event where status = 0 and attempts = 0 and claim_seq = 0 \
             and locked_by is null and available_at = created_at",
        )
        .await
    }

    /// A node that shares the shop's table.
    pub(crate) fn node(&self) -> Builder<DB, MultiNode> {
        Outbox::multi_node(self.pool.clone()).claim_locking(Duration::from_secs(60)).interval(NEVER)
    }
}

database_suite! {
    over shop

    async fn an_outage_writes_nothing_and_then_everything_arrives_once(shop) {
        let (line, all) = (Line::unplugged(), ids("o", 300));
        shop.insert(&orders(&all[..200])).await;
        let outbox = shop.outbox().on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        until_held(&outbox).await;
        // Those that are committed now go the hot way, or would.
        append(&outbox, orders(&all[200..])).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        let calls = line.calls();
        assert!((1..40).contains(&calls), "a few workers found out, then came probes: {calls}");
        assert_eq!(shop.untouched().await, 300);
        assert_eq!(outbox.metrics().dispatch_deferred.total(), 0);

        line.plug(true);
        eventually("everything to arrive", async || shop.count(DONE).await == 300).await;
        assert!(line.counts().values().all(|times| *times == 1), "{:?}", line.counts());
        assert_eq!(line.taken().len(), 300);
        assert_eq!(outbox.report().await.health, Health::Up);
        outbox.close().await.unwrap();
    }

    async fn other_routes_flow_while_one_is_held(shop) {
        let (line, invoices) = (Line::unplugged(), Recording::new());
        shop.insert(&orders(&ids("o", 500))).await;
        let builder = shop.outbox().on("Order", "OrderPlaced", line.clone());
        let outbox = builder.on("Invoice", "InvoiceSent", invoices.clone()).start().await.unwrap();
        until_held(&outbox).await;
        append(&outbox, ids("hot", 50).iter().map(|id| invoice(id)).collect()).await;
        invoices.until_answered(50).await;
        // And those that another program wrote, which only the poller can find.
        shop.insert(&ids("cold", 120).iter().map(|id| invoice(id)).collect::<Vec<_>>()).await;
        outbox.nudge();
        invoices.until_answered(170).await;
        eventually("all of them to be recorded", async || shop.count(DONE).await == 170).await;
        assert_eq!(shop.untouched().await, 500);
        // What has no handler at all is dead at once, held routes or not.
        shop.insert(&[Event::of("Unknown").id("unknown").aggregate("Order", "1").json(&()).unwrap()]).await;
        outbox.nudge();
        eventually("it to be dead", async || shop.count(DEAD).await == 1).await;
        line.plug(true);
        eventually("everything to arrive", async || shop.count(DONE).await == 670).await;
        outbox.close().await.unwrap();
    }

    async fn nodes_hold_each_for_itself_and_one_that_can_delivers_all(shop) {
        let (cut_off, well) = (Line::unplugged(), Line::default());
        shop.insert(&orders(&ids("o", 100))).await;
        let first = shop.node().on("Order", "OrderPlaced", cut_off.clone()).start().await.unwrap();
        until_held(&first).await;
        // Rows that the first one commits now are for everybody.
        append(&first, orders(&ids("p", 100))).await;
        let claimed = "select count(*) from outbox_event where locked_by is not null";
        eventually("all claims to be given back", async || shop.number(claimed).await == 0).await;
        let second = shop.node().on("Order", "OrderPlaced", well.clone()).start().await.unwrap();
        second.nudge();
        eventually("everything to arrive", async || {
            second.nudge();
            shop.count(DONE).await == 200
        })
        .await;
        assert!(cut_off.taken().is_empty());
        assert!(well.counts().values().all(|times| *times == 1));
        // Nothing waits any more, so nothing is held.
        eventually("the first to find that out", async || first.report().await.health == Health::Up).await;
        first.close().await.unwrap();
        second.close().await.unwrap();
    }

    async fn of_events_appended_together_only_those_of_a_held_route_are_left_in_the_table(shop) {
        let (line, invoices) = (Line::unplugged(), Recording::new());
        let builder = shop.node().on("Order", "OrderPlaced", line.clone());
        let outbox = builder.on("Invoice", "InvoiceSent", invoices.clone()).start().await.unwrap();
        append(&outbox, orders(&ids("o", 1))).await;
        until_held(&outbox).await;
        let hot_before = outbox.metrics().enqueue_hot.total();
        append(&outbox, vec![invoice("i0"), order("p0"), invoice("i1"), order("p1"), invoice("i2")]).await;
        invoices.until_answered(3).await;
        assert_eq!(outbox.metrics().enqueue_hot.total() - hot_before, 3, "straight from the commit");
        eventually("them to be recorded", async || shop.count(DONE).await == 3).await;
        assert_eq!(shop.number("select count(*) from outbox_event where status = 0").await, 3);
        line.plug(true);
        eventually("the others to arrive", async || shop.count(DONE).await == 6).await;
        assert!(line.counts().values().all(|times| *times == 1), "{:?}", line.counts());
        outbox.close().await.unwrap();
    }

    async fn hundreds_of_routes_flow_while_as_many_are_held(shop) {
        let (line, others) = (Line::unplugged(), Recording::new());
        let kinds: Vec<_> = (0..300).map(|number| format!("Kind{number:03}")).collect();
        let mut builder = shop.outbox();
        for (number, kind) in kinds.iter().enumerate() {
            builder = match number % 2 {
                0 => builder.on("Order", kind.clone(), line.clone()),
                _ => builder.on("Order", kind.clone(), others.clone()),
            };
        }
        let event = |round: usize, kind: &String| {
            let id = format!("{kind}-{round}");
            Event::of(kind.as_str()).id(id).aggregate("Order", "1").json(&()).unwrap()
        };
        for round in 0..4 {
            shop.insert(&kinds.iter().map(|kind| event(round, kind)).collect::<Vec<_>>()).await;
        }
        let outbox = builder.start().await.unwrap();
        others.until_answered(600).await;
        // Also what comes while half of the routes are held, hot and cold.
        until_held(&outbox).await;
        append(&outbox, kinds.iter().map(|kind| event(4, kind)).collect()).await;
        shop.insert(&kinds.iter().map(|kind| event(5, kind)).collect::<Vec<_>>()).await;
        outbox.nudge();
        others.until_answered(900).await;
        eventually("all of them to be recorded", async || shop.count(DONE).await == 900).await;
        assert_eq!(shop.untouched().await, 900);
        let report = outbox.report().await;
        assert_eq!(report.routes.iter().filter(|route| route.paused.is_some()).count(), 150);
        let Health::Degraded(why) = report.health else { panic!("{:?}", report.health) };
        assert!(why.ends_with(", and 140 others"), "{why}");

        line.plug(true);
        eventually_within(Duration::from_secs(30), "everything to arrive", async || {
            shop.count(DONE).await == 1_800
        })
        .await;
        assert!(line.counts().values().all(|times| *times == 1));
        outbox.close().await.unwrap();
    }

    async fn in_strict_order_a_held_event_holds_all_behind_it(shop) {
        let (line, all) = (Line::default(), ids("o", 200));
        let builder = Outbox::ordered(shop.pool.clone()).interval(Duration::from_millis(20));
        let invoices = Recording::new();
        let builder = builder.on("Invoice", "InvoiceSent", invoices.clone());
        let outbox = builder.on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        let flapping = {
            let line = line.clone();
            tokio::spawn(async move {
                for plugged in [false, true, false, true, false, true] {
                    line.plug(plugged);
                    tokio::time::sleep(Duration::from_millis(150)).await;
                }
            })
        };
        for id in &all {
            append(&outbox, vec![order(id)]).await;
        }
        flapping.await.unwrap();
        eventually("everything to arrive", async || shop.count(DONE).await == 200).await;
        assert_eq!(line.taken(), all, "none overtook another");

        line.plug(false);
        append(&outbox, vec![order("p1")]).await;
        until_held(&outbox).await;
        append(&outbox, vec![invoice("i1")]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(invoices.ids().len(), 0, "it waits behind the order");
        line.plug(true);
        invoices.until_answered(1).await;
        outbox.close().await.unwrap();
        assert_eq!((shop.count(DONE).await, shop.count(NEW).await), (202, 0));
    }

    async fn one_event_that_its_handler_never_takes_holds_nobody_and_dies(shop) {
        let line = Line::default();
        *line.0.refuses.lock().unwrap() = Some("o0000".to_owned());
        let soon = |_: u32, _: Jitter| Duration::from_millis(1);
        shop.insert(&orders(&ids("o", 60))).await;
        let builder = shop.outbox().interval(Duration::from_millis(10)).retry_policy(soon).max_attempts(3);
        let outbox = builder.on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        eventually("the others to arrive", async || shop.count(DONE).await == 59).await;
        // It needs others that succeed to be found out.
        for id in ids("p", 20) {
            append(&outbox, vec![order(&id)]).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        eventually("it to die", async || shop.count(DEAD).await == 1).await;
        eventually("the others to arrive", async || shop.count(DONE).await == 79).await;
        outbox.close().await.unwrap();
    }
}
