//! What may go wrong while polling, and that the poller goes on: neither stuck nor in a frenzy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::connection::{Column, Connection, Connections};
use backstop_sql::outbox::poller::Settings;
use backstop_sql::statement::{Statement, Value};
use backstop_sql::{BoxFuture, Error};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use tracing::Level;

use crate::flaky::Flaky;
use crate::harness::{DEAD, DONE, NEVER, Shop, metrics, order, shop};
use crate::logs::Logs;
use crate::spied::Spied;
use crate::steps::{commit, make_unreadable, orders, until_count, until_status};

database_suite! {
    over shop on 1 thread

    /// Rules: O-353, O-442.
    async fn a_row_that_cannot_be_decoded_is_dead_and_the_rest_of_the_batch_flows(shop) {
        let logs = Logs::catch();
        shop.insert(&orders(5)).await;
        make_unreadable(&shop, "0001").await;
        shop.set("0001", r#"payload = '"secret"'"#).await;
        shop.run("update outbox_event set headers = '{\"a\": 1}' where event_id = '0003'").await;
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        until_count(&shop, DONE, 3).await;
        until_count(&shop, DEAD, 2).await;
        eventually("the count", async || outbox.metrics().dispatch_dead.total() == 2).await;
        outbox.close().await.unwrap();
        let row = shop.row("0001").await;
        assert!(row.last_error.unwrap().starts_with("the row cannot be decoded: headers"));
        assert_eq!((row.attempts, recorder.ids()), (0, vec!["0000".into(), "0002".into(), "0004".into()]));
        assert_eq!(logs.having(Level::ERROR, "event_id=\"0001\"").len(), 1, "{}", logs.all());
        assert!(!logs.all().contains("secret"), "{}", logs.all());
    }
}

/// Rules: O-441.
#[tokio::test]
async fn a_look_that_fails_is_told_and_the_next_one_finds_the_rows() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    switches.poll_fails.store(true, Ordering::SeqCst);
    shop.insert(&orders(1)).await;
    let outbox = shop
        .outbox()
        .interval(Duration::from_millis(5))
        .store(store)
        .on("Order", "OrderPlaced", Recording::new())
        .start()
        .await
        .unwrap();
    eventually("two failed looks", async || logs.having(Level::ERROR, "failing on purpose").len() > 1).await;
    switches.poll_fails.store(false, Ordering::SeqCst);
    until_status(&shop, "0000", DONE).await;
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn after_a_look_that_failed_the_next_ones_come_soon_and_then_ever_later() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    switches.poll_fails.store(true, Ordering::SeqCst);
    shop.insert(&orders(1)).await;
    let builder = shop.outbox().store(store).on("Order", "OrderPlaced", Recording::new());
    let outbox = builder.start().await.unwrap(); // with an interval of an hour
    tokio::time::sleep(Duration::from_millis(500)).await;
    let polls = switches.polls.load(Ordering::SeqCst);
    assert!(polls <= 4, "after 0, 100, 300 and 700 ms: {polls}");
    switches.poll_fails.store(false, Ordering::SeqCst);
    until_status(&shop, "0000", DONE).await;
    outbox.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    async fn a_row_that_is_gone_when_it_is_to_be_buried_is_no_trouble(shop) {
        let logs = Logs::catch();
        shop.insert(&orders(2)).await;
        make_unreadable(&shop, "0000").await;
        let pool = shop.pool.clone();
        let store = Spied::of(&shop.store).after_read(move || {
            let pool = pool.clone();
            async move {
                sqlx::query("delete from outbox_event where event_id = '0000'").execute(&pool).await.unwrap();
            }
        });
        let builder = shop.outbox().store(store.shared()).on("Order", "OrderPlaced", Recording::new());
        let outbox = builder.start().await.unwrap();
        until_status(&shop, "0001", DONE).await;
        outbox.close().await.unwrap();
        assert_eq!(logs.having(Level::ERROR, "cannot be buried either").len(), 0, "{}", logs.all());
        assert_eq!(outbox.metrics().dispatch_dead.total(), 0);
    }
}

/// Rules: O-441.
#[tokio::test]
async fn a_handler_of_the_poller_that_panics_is_told_and_the_next_look_comes() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    shop.insert(&orders(1)).await;
    let panics = Arc::new(AtomicBool::new(true));
    let taken = Arc::new(AtomicUsize::new(0));
    let (now, taking) = (panics.clone(), taken.clone());
    let handler = move |_: Event, _: u32| {
        assert!(!now.load(Ordering::SeqCst), "on purpose");
        taking.fetch_add(1, Ordering::SeqCst);
        true
    };
    let settings = Settings::default().interval(Duration::from_millis(5));
    let poller = settings.build(shop.store.clone(), handler, metrics()).unwrap();
    poller.start().unwrap();
    eventually("an error in the log", async || !logs.having(Level::ERROR, "on purpose").is_empty()).await;
    panics.store(false, Ordering::SeqCst);
    eventually("the next look", async || taken.load(Ordering::SeqCst) > 0).await;
    poller.close().await;
}

database_suite! {
    over shop on 1 thread

    async fn events_in_flight_do_not_hide_other_due_rows(shop) {
        let slow = Slow::gated();
        let recorder = Recording::new();
        let outbox = shop
            .outbox()
            .batch_size(2)
            .worker_count(6)
            .on("Order", "OrderPlaced", slow.clone())
            .on("Invoice", "Sent", recorder.clone())
            .start()
            .await
            .unwrap();
        commit(&outbox, orders(5)).await; // older than what follows, and due all the time
        slow.until_began(5).await;
        let invoices: Vec<_> = ["a", "b", "c", "d", "e"]
            .map(|id| Event::of("Sent").id(id).aggregate("Invoice", id).json(&()).unwrap())
            .to_vec();
        shop.insert(&invoices).await;
        outbox.nudge();
        recorder.until(5).await;
        assert_eq!(
            (recorder.ids(), slow.in_progress()),
            (["a", "b", "c", "d", "e"].map(String::from).to_vec(), 5)
        );
        slow.open();
        outbox.close().await.unwrap();
        assert_eq!(shop.count(DONE).await, 10);
    }

    async fn a_backlog_is_worked_off_without_resting_between_its_batches(shop) {
        shop.insert(&orders(100)).await;
        let recorder = Recording::new();
        let outbox =
            shop.outbox().batch_size(7).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        until_count(&shop, DONE, 100).await; // with an interval of an hour
        outbox.close().await.unwrap();
        let mut ids = recorder.ids();
        ids.sort_unstable();
        assert_eq!(ids, orders(100).iter().map(Event::id).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_poller_rests_although_more_events_are_in_flight_than_a_batch_has() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let slow = Slow::gated();
    let outbox = shop
        .outbox()
        .store(store)
        .batch_size(2)
        .on("Order", "OrderPlaced", slow.clone())
        .start()
        .await
        .unwrap();
    commit(&outbox, orders(10)).await;
    slow.until_began(4).await;
    outbox.nudge();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let looks = switches.polls.load(Ordering::SeqCst);
    // A few while it slows down; without resting there would be hundreds.
    assert!(looks <= 10, "{looks} looks in 50 ms, with an interval of an hour");
    slow.open();
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn a_poller_alone_rests_although_its_handler_leaves_the_rows_as_they_are() {
    let shop = Shop::open().await;
    shop.insert(&orders(10)).await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let settings = Settings::default().interval(NEVER).batch_size(2);
    let poller = settings.build(store, |_: Event, _: u32| true, metrics()).unwrap();
    poller.start().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    poller.close().await;
    let looks = switches.polls.load(Ordering::SeqCst);
    assert!(looks <= 4, "{looks} looks in 50 ms, with an interval of an hour");
}

/// A source of connections that fails when told to, and knows how many are out.
struct Counting {
    inner: Arc<dyn Connections>,
    fails: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
    out: Arc<AtomicUsize>,
}

struct Counted {
    connection: Box<dyn Connection>,
    out: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.out.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connections for Counting {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async {
            if self.fails.load(Ordering::SeqCst) {
                return Err(Error::Database {
                    doing: "failing on purpose",
                    source: sqlx::Error::PoolTimedOut,
                });
            }
            let connection = self.inner.connection().await?;
            assert!(!connection.in_transaction());
            self.taken.fetch_add(1, Ordering::SeqCst);
            self.out.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Counted { connection, out: self.out.clone() }) as Box<dyn Connection>)
        })
    }
}

impl Connection for Counted {
    fn give_up(&mut self) {
        self.connection.give_up();
    }

    fn in_transaction(&self) -> bool {
        self.connection.in_transaction()
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        self.connection.execute(statement)
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        self.connection.fetch(statement, columns)
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-099, O-100.
    async fn connections_of_their_own_are_taken_for_a_short_time_and_may_fail(shop) {
        let logs = Logs::catch();
        let (fails, taken, out) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let counting = Counting {
            inner: shop.connections.clone(),
            fails: fails.clone(),
            taken: taken.clone(),
            out: Arc::clone(&out),
        };
        let gate = Slow::gated();
        let outbox = shop
            .outbox()
            .connections(Arc::new(counting))
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        commit(&outbox, vec![order("hot")]).await;
        gate.until_began(1).await;
        eventually("rest", async || taken.load(Ordering::SeqCst) > 1 && out.load(Ordering::SeqCst) == 0).await;
        let before = taken.load(Ordering::SeqCst); // and none is held while a handler works
        fails.store(true, Ordering::SeqCst);
        outbox.nudge();
        eventually("an error in the log", async || !logs.having(Level::ERROR, "failing on purpose").is_empty())
            .await;
        fails.store(false, Ordering::SeqCst);
        gate.open();
        until_status(&shop, "hot", DONE).await;
        outbox.close().await.unwrap();
        assert!(taken.load(Ordering::SeqCst) > before);
        assert_eq!(out.load(Ordering::SeqCst), 0);
    }
}
