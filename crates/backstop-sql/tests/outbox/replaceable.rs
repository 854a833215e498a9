//! Every part can be replaced or used alone, and two outboxes live side by side in one process.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::codec::{Codec, CodecError, Json};
use backstop_core::event::{AggregateType, EventType};
use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure};
use backstop_sql::connection::{Column, Connection, Connections};
use backstop_sql::outbox::{
    BoundHandler, Hold, Hook, HookError, InFlight, Queued, Registry, StorePurger, Tracker, Writer,
    dispatcher, poller, purge,
};
use backstop_sql::statement::{Statement, Value};
use backstop_sql::{BoxFuture, Error, SettingFault};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Recording;
use serde_json::json;
use sqlx::{SqliteConnection, SqlitePool};

use crate::flaky::Flaky;
use crate::harness::{DEAD, DONE, NEVER, NEW, Shop, metrics, order};
use crate::steps::commit;

/// A transaction of somebody else's: the outbox is shown nothing of it but that it runs statements.
struct Foreign {
    inside: sqlx::Transaction<'static, sqlx::Sqlite>,
    statements: usize,
}

impl Connection for Foreign {
    fn give_up(&mut self) {}

    fn in_transaction(&self) -> bool {
        true
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        self.statements += 1;
        self.inside.execute(statement)
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Connection::fetch(&mut self.inside, statement, columns)
    }
}

/// Its handlers may come twice, and their failures count all the same.
#[tokio::test]
async fn an_event_dies_of_its_failures_although_its_tracker_forgets_it_before_each() {
    let shop = Shop::open().await;
    let slow = |_: Event| async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        Err::<(), _>(Failure::transient("test", "no"))
    };
    let forgetful = InFlight::with_ttl(Duration::from_millis(40));
    let outbox = shop.outbox().interval(Duration::from_millis(20)).tracker(forgetful).max_attempts(3);
    let policy = |_: u32, _: Jitter| Duration::from_millis(1);
    let outbox = outbox.retry_policy(policy).on("Order", "OrderPlaced", slow).start().await.unwrap();
    commit(&outbox, vec![order("1")]).await;
    eventually("a death", async || shop.count(DEAD).await == 1).await;
    outbox.close().await.unwrap();
}

/// A connection on which every statement takes too long but inserts.
struct Slow<'a>(&'a mut SqliteConnection);

impl Connection for Slow<'_> {
    fn give_up(&mut self) {}

    fn in_transaction(&self) -> bool {
        true
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        if statement.text().starts_with("insert") {
            return self.0.execute(statement);
        }
        let source = sqlx::Error::Protocol("it took too long".to_owned());
        Box::pin(async { Err(Error::Database { doing: "asking", source }) })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Connection::fetch(&mut *self.0, statement, columns)
    }
}

#[tokio::test]
async fn nothing_is_appended_where_nobody_can_tell_whether_the_transaction_is_still_open() {
    let shop = Shop::open().await;
    let outbox = shop.outbox().on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
    let mut transaction = shop.pool.begin().await.unwrap();
    let error = outbox.writer().append(&mut Slow(&mut transaction), order("1")).await.unwrap_err();
    assert!(error.to_string().contains("it took too long"), "{error}");
    transaction.commit().await.unwrap();
    outbox.close().await.unwrap();
    assert_eq!(shop.rows().await, 0);
}

/// Rules: O-033.
#[tokio::test]
async fn events_are_appended_in_a_transaction_of_somebody_elses() {
    let shop = Shop::open().await;
    let recorder = Recording::new();
    let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
    let mut foreign = Foreign { inside: shop.pool.begin().await.unwrap(), statements: 0 };
    let appended = outbox.writer().append_all(&mut foreign, vec![order("1"), order("2")]).await.unwrap();
    assert_eq!(
        (foreign.statements, shop.rows().await),
        (2, 0),
        "one asks whether the transaction is still open"
    );
    foreign.inside.commit().await.unwrap();
    appended.committed();
    recorder.until(2).await;
    outbox.close().await.unwrap();
    assert_eq!(shop.count(DONE).await, 2);
}

/// A pool of somebody else's, which counts what it gives out.
struct Counted {
    pool: SqlitePool,
    given: AtomicUsize,
}

impl Connections for Counted {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        self.given.fetch_add(1, Ordering::SeqCst);
        self.pool.connection()
    }
}

/// Rules: O-034.
#[tokio::test]
async fn the_outboxs_own_connections_may_come_from_elsewhere() {
    let shop = Shop::open().await;
    let connections = Arc::new(Counted { pool: shop.pool.clone(), given: AtomicUsize::new(0) });
    let recorder = Recording::new();
    let builder = shop.outbox().connections(connections.clone()).on("Order", "OrderPlaced", recorder.clone());
    let outbox = builder.start().await.unwrap();
    let before = connections.given.load(Ordering::SeqCst);
    assert!(before > 0, "the table was checked with one of them");
    shop.insert(&[order("1")]).await;
    outbox.nudge();
    recorder.until(1).await;
    outbox.close().await.unwrap();
    // One for the look, one for the settlement; none of them is the caller's.
    assert!(connections.given.load(Ordering::SeqCst) >= before + 2);
    assert_eq!(shop.count(DONE).await, 1);
}

/// Rules: O-035.
#[tokio::test]
async fn a_store_of_ones_own_is_asked_for_everything() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let recorder = Recording::new();
    let outbox =
        shop.outbox().store(store).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("1")).await.unwrap();
    tx.commit().await.unwrap();
    recorder.until(1).await;
    outbox.close().await.unwrap();
    assert_eq!(switches.inserts.load(Ordering::SeqCst), 1);
    assert!(switches.polls.load(Ordering::SeqCst) >= 1);
}

/// Shouts what it reads and marks what it writes.
struct Loud;

impl Codec for Loud {
    fn write<T: serde::Serialize + ?Sized>(&self, value: &T) -> Result<String, CodecError> {
        Json.write(&Json.write(value)?.to_uppercase())
    }

    fn read<T: serde::de::DeserializeOwned>(&self, text: &str) -> Result<T, CodecError> {
        Json.read(&text.to_uppercase())
    }
}

/// Rules: O-038.
#[tokio::test]
async fn a_handler_may_read_its_payload_with_a_codec_of_its_own() {
    let shop = Shop::open().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hearing = heard.clone();
    let outbox = shop
        .outbox()
        .on("Order", "OrderPlaced", move |event: Event| {
            let heard = hearing.clone();
            async move {
                let items: Vec<String> = event.payload_with(&Loud)?;
                heard.lock().unwrap().extend(items);
                Ok::<_, backstop_core::Failure>(())
            }
        })
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let text = Loud.write("quiet").unwrap();
    assert_eq!(text, r#""\"QUIET\"""#);
    tx.append(Event::of("OrderPlaced").aggregate("Order", "1").json(&["tea"]).unwrap()).await.unwrap();
    tx.commit().await.unwrap();
    outbox.close().await.unwrap();
    assert_eq!(heard.lock().unwrap().first().map(String::as_str), Some("TEA"));
}

/// Lets every id in, and notes them.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<String>>>);

impl Tracker for Noting {
    fn try_acquire(&self, id: &str) -> Option<Hold> {
        self.0.lock().unwrap().push(id.to_owned());
        Some(Hold { id: id.to_owned(), token: 0 })
    }

    fn release(&self, _: &Hold) {}

    fn held(&self) -> usize {
        0
    }
}

struct Stamping;

impl Hook for Stamping {
    fn before_write(&self, events: Vec<Event>) -> Result<Vec<Event>, HookError> {
        let stamped = |event: Event| {
            let made = Event::of(event.event_type()).aggregate("Order", "1").header("stamp", "yes").json(&());
            made.map_err(HookError::from)
        };
        events.into_iter().map(stamped).collect()
    }
}

/// Rules: O-036, O-078.
#[tokio::test]
async fn every_part_is_replaced_by_the_one_that_is_given() {
    let shop = Shop::open().await;
    let (store, switches) = Flaky::around(shop.store.clone());
    let connections = Arc::new(Counted { pool: shop.pool.clone(), given: AtomicUsize::new(0) });
    let (tracker, recorder, registry) = (Noting::default(), Recording::new(), Registry::new());
    registry.register("Order", "OrderPlaced", recorder.clone()).unwrap();
    let exported = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = exported.snapshotter();
    let outbox = shop
        .outbox()
        .store(store)
        .connections(connections.clone())
        .hook(Stamping)
        .tracker(tracker.clone())
        .registry(registry)
        .purger(StorePurger::by_age(shop.store.clone()))
        .purge(purge::Settings::default().retention(Duration::ZERO).interval(NEVER))
        .metrics_recorder(Arc::new(exported))
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let id = tx.append(order("1")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    let event = recorder.until(1).await.remove(0);
    assert_eq!((event.id(), event.header("stamp")), (id.as_str(), Some("yes")));
    assert!(tracker.0.lock().unwrap().contains(&id));
    assert_eq!(switches.inserts.load(Ordering::SeqCst), 1);
    // The purger that was given deletes by age, which the mode's own would not.
    shop.insert(&[Event::of("Later").deliver_after(Duration::from_secs(3_600)).json(&()).unwrap()]).await;
    eventually("the row to go", async || outbox.purge().await.unwrap() > 0 || shop.count(NEW).await == 0)
        .await;
    assert!(connections.given.load(Ordering::SeqCst) > 0, "the purge takes its connections there");
    outbox.close().await.unwrap();
    assert!(snapshotter.snapshot().into_vec().iter().any(|(key, ..)| key.key().name() == "outbox.append"));
}

/// Rules: O-412.
#[tokio::test]
async fn writer_poller_dispatcher_and_purge_work_alone() {
    let shop = Shop::open().await;
    let metrics = metrics();
    // Written without an outbox …
    let writer = Writer::new(shop.store.clone());
    let mut tx = shop.pool.begin().await.unwrap();
    writer.append(&mut tx, order("1")).await.unwrap().committed();
    tx.commit().await.unwrap();

    // … looked for once, by hand …
    let found: Arc<Mutex<Vec<(Event, u32)>>> = Arc::default();
    let finding = found.clone();
    let handler = move |event: Event, attempts: u32| {
        finding.lock().unwrap().push((event, attempts));
        true
    };
    let poller = poller::Settings::default().build(shop.store.clone(), handler, metrics.clone()).unwrap();
    poller.poll().await.unwrap();
    let (event, attempts) = found.lock().unwrap().remove(0);
    assert_eq!((event.id(), attempts, found.lock().unwrap().len()), ("1", 0, 0));

    // … handed to a dispatcher that nobody else feeds …
    let (registry, recorder) = (Registry::new(), Recording::new());
    registry.register("Order", "OrderPlaced", recorder.clone()).unwrap();
    let settings = dispatcher::Settings::default().worker_count(8).hot_queue_capacity(2_000);
    let dispatcher = settings.start(shop.store.clone(), registry, metrics.clone()).unwrap();
    assert!(dispatcher.enqueue(Queued::cold(event, attempts)));
    recorder.until(1).await;
    dispatcher.close().await.unwrap();
    assert_eq!(shop.row("1").await.status, DONE);

    // … and purged once.
    let settings = purge::Settings::default().retention(Duration::ZERO);
    let purger = StorePurger::of_ended(shop.store.clone());
    let purge = settings.build(Arc::new(shop.pool.clone()), purger, metrics.clone()).unwrap();
    eventually("the row to go", async || purge.run_once().await.unwrap() == 1).await;
    assert_eq!((shop.rows().await, metrics.purge.total(), metrics.dispatch_success.total()), (0, 1, 1));
}

/// The settings of parts that are used alone are checked like those of an outbox.
#[tokio::test]
async fn parts_alone_refuse_settings_that_make_no_sense() {
    let shop = Shop::open().await;
    let faults = |error: Error| match error {
        Error::Settings { faults } => faults.iter().map(SettingFault::path).collect::<Vec<_>>(),
        other => panic!("{other}"),
    };
    let settings = dispatcher::Settings::default().worker_count(0).max_attempts(0);
    let refused = settings.start(shop.store.clone(), Registry::new(), metrics()).unwrap_err();
    assert_eq!(faults(refused), ["worker-count", "max-attempts"]);
    let settings = poller::Settings::default().interval(Duration::ZERO).batch_size(0);
    let refused = settings.build(shop.store.clone(), |_: Event, _: u32| true, metrics()).unwrap_err();
    assert_eq!(faults(refused), ["interval-ms", "batch-size"]);
    let settings = purge::Settings::default().batch_size(0);
    let purger = StorePurger::of_ended(shop.store.clone());
    let refused = settings.build(Arc::new(shop.pool.clone()), purger, metrics()).unwrap_err();
    assert_eq!(faults(refused), ["batch-size"]);
}

enum Of {
    Orders,
    Placed,
}

impl AggregateType for Of {
    fn name(&self) -> &'static str {
        "Order"
    }
}

impl EventType for Of {
    fn name(&self) -> &'static str {
        match self {
            Of::Orders => unreachable!("an aggregate"),
            Of::Placed => "OrderPlaced",
        }
    }
}

/// Rules: O-072, O-073.
#[tokio::test]
async fn a_handler_is_declared_with_names_or_with_types() {
    let by_name =
        |builder: backstop_sql::outbox::Builder<_, _>, handler| builder.on("Order", "OrderPlaced", handler);
    let by_type =
        |builder: backstop_sql::outbox::Builder<_, _>, handler| builder.on(Of::Orders, Of::Placed, handler);
    for (declared, bound) in [(0, false), (1, false), (0, true), (1, true)] {
        let (shop, recorder) = (Shop::open().await, Recording::new());
        let builder = match (declared, bound) {
            (0, false) => by_name(shop.outbox(), recorder.clone()),
            (1, false) => by_type(shop.outbox(), recorder.clone()),
            (0, _) => shop.outbox().on_bound(BoundHandler::new("Order", "OrderPlaced", recorder.clone())),
            _ => shop.outbox().on_bound(BoundHandler::new(Of::Orders, Of::Placed, recorder.clone())),
        };
        let outbox = builder.on_global("Tick", recorder.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(Event::of(Of::Placed).aggregate(Of::Orders, "1").json(&()).unwrap()).await.unwrap();
        tx.append_json("Tick", "{}").await.unwrap();
        tx.commit().await.unwrap();
        recorder.until(2).await;
        outbox.close().await.unwrap();
    }
}

/// Rules: O-090.
#[tokio::test]
async fn two_outboxes_on_two_databases_keep_to_themselves() {
    let (orders, refunds) = (Shop::open().await, Shop::open().await);
    let (of_orders, of_refunds) = (Recording::new(), Recording::new());
    let start = async |shop: &Shop, name: &str, recorder: &Recording| {
        let builder = shop.outbox().name(name).metrics_prefix(format!("{name}.outbox"));
        builder.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap()
    };
    let first = start(&orders, "orders", &of_orders).await;
    let second = start(&refunds, "refunds", &of_refunds).await;
    for n in 0..20 {
        for (outbox, name) in [(&first, "order"), (&second, "refund")] {
            let mut tx = outbox.begin().await.unwrap();
            tx.append(order(&format!("{name}-{n}"))).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    of_orders.until(20).await;
    of_refunds.until(20).await;
    // One may go while the other stays.
    first.close().await.unwrap();
    let mut tx = second.begin().await.unwrap();
    tx.append(order("refund-last")).await.unwrap();
    tx.commit().await.unwrap();
    of_refunds.until(21).await;
    second.close().await.unwrap();
    for (shop, recorder, name, rows) in
        [(&orders, &of_orders, "order-", 20), (&refunds, &of_refunds, "refund-", 21)]
    {
        let ids: HashSet<_> = recorder.ids().into_iter().collect();
        assert!(ids.len() == rows && ids.iter().all(|id| id.starts_with(name)), "{ids:?}");
        assert_eq!(shop.count(DONE).await, i64::try_from(rows).unwrap());
    }
    let report = json!(second.report().await);
    assert_eq!(report["name"], "refunds");
}
