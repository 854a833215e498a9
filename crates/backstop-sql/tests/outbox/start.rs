//! Starting: faults are told all at once, before anything runs, and a start that fails leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::connection::Connection;
use backstop_sql::outbox::{Purger, Registry, purge};
use backstop_sql::store::At;
use backstop_sql::{BoxFuture, Error, Outbox, SettingFault};
use backstop_testkit::handlers::{Recording, Slow};
use backstop_testkit::{eventually, servers};

use crate::harness::{DEAD, DONE, NEVER, NEW, Shop, order, shop};
use crate::tracked::Tracked;
use crate::watched::Watched;

const MINUTE: Duration = Duration::from_secs(60);

/// The settings that an error complains about.
fn faulty(error: &Error) -> Vec<String> {
    match error {
        Error::Settings { faults } => faults.iter().map(SettingFault::path).collect(),
        other => panic!("not about settings: {other}"),
    }
}

/// Whether there is a table of that name.
async fn has_table(pool: &sqlx::SqlitePool, name: &str) -> bool {
    let found = sqlx::query_scalar("select count(*) from sqlite_master where name = ?").bind(name);
    let found: i64 = found.fetch_one(pool).await.unwrap();
    found > 0
}

/// Rules: O-553.
#[tokio::test]
async fn every_faulty_setting_is_told_at_once_before_anything_is_touched() {
    let database = servers::sqlite();
    let pool = database.pool().await;
    let error = Outbox::multi_node(pool.clone())
        .claim_locking_as("", Duration::ZERO)
        .worker_count(0)
        .hot_queue_capacity(0)
        .cold_queue_capacity(0)
        .max_attempts(0)
        .interval(Duration::ZERO)
        .batch_size(0)
        .purge(purge::Settings::default().batch_size(0).interval(Duration::ZERO))
        .start()
        .await
        .unwrap_err();
    assert_eq!(
        faulty(&error),
        [
            "dispatcher.worker-count",
            "dispatcher.hot-queue-capacity",
            "dispatcher.cold-queue-capacity",
            "dispatcher.max-attempts",
            "poller.interval-ms",
            "poller.batch-size",
            "claim-locking.lock-timeout",
            "claim-locking.owner-id",
            "purge.batch-size",
            "purge.interval-seconds",
        ]
    );
    // Each is worded so that a reader knows what to do.
    let told = error.to_string();
    assert!(
        told.contains(
            "setting dispatcher.worker-count must be between 1 and 1000000; setting dispatcher.hot-queue"
        ),
        "{told}"
    );
    assert!(!has_table(&pool, "outbox_event").await);
}

/// Rules: O-528, O-530.
#[tokio::test]
async fn a_database_without_the_table_is_an_error_that_says_what_to_do() {
    let database = servers::sqlite();
    let error = Outbox::single_node(database.pool().await).migrate(false).start().await.unwrap_err();
    assert!(matches!(&error, Error::NoTable { table } if table == "outbox_event"), "{error}");
    assert!(error.to_string().contains("let `migrate` create it"), "{error}");

    let odd = Outbox::single_node(database.pool().await).table("outbox; drop table users").start().await;
    assert_eq!(faulty(&odd.unwrap_err()), ["database.table"]);

    let closed = database.pool().await;
    closed.close().await;
    let error = Outbox::single_node(closed).start().await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
}

/// Rules: O-554.
#[tokio::test]
async fn multi_node_needs_claim_locking() {
    let database = servers::sqlite();
    let error = Outbox::multi_node(database.pool().await).start().await.unwrap_err();
    assert_eq!(faulty(&error), ["claim-locking.lock-timeout"]);
    assert!(error.to_string().contains("is required by multi_node"), "{error}");
}

/// Rules: O-132.
#[tokio::test]
async fn an_owners_name_has_at_most_128_characters() {
    let database = servers::sqlite();
    let named = async |name: String| {
        Outbox::multi_node(database.pool().await).claim_locking_as(name, MINUTE).interval(NEVER).start().await
    };
    assert_eq!(faulty(&named("é".repeat(129)).await.unwrap_err()), ["claim-locking.owner-id"]);
    named("é".repeat(128)).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn two_handlers_for_the_same_events_keep_the_outbox_from_starting() {
    let shop = Shop::open().await;
    let error = shop
        .outbox()
        .on("Order", "OrderPlaced", |_: Event| async {})
        .on("Order", "OrderPlaced", |_: Event| async {})
        .start()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Duplicate { .. }), "{error}");
}

/// Rules: O-531.
#[tokio::test]
async fn an_outbox_without_handlers_buries_what_it_finds_and_says_why() {
    let shop = Shop::open().await;
    let registry = Registry::new();
    let tracker = Tracked::default();
    let outbox = shop.outbox().registry(registry.clone()).tracker(tracker.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("1")).await.unwrap();
    tx.commit().await.unwrap();
    eventually("the event to die", async || shop.row("1").await.status == DEAD && tracker.is_idle()).await;
    assert!(shop.row("1").await.last_error.unwrap().contains("no handler is registered"));

    // The registry may grow while the outbox runs.
    let recorder = Recording::new();
    registry.register("Order", "OrderPlaced", recorder.clone()).unwrap();
    assert!(outbox.dead().replay("1").await.unwrap());
    recorder.until(1).await;
    outbox.close().await.unwrap();
    assert_eq!(shop.row("1").await.status, DONE);
}

/// Rules: O-555, O-556, O-558, O-559.
#[tokio::test]
async fn when_start_returns_everything_runs() {
    let shop = Shop::open().await;
    shop.insert(&[order("from before")]).await;
    let store = Watched::around(shop.store.clone());
    store.hold_up();
    let recorder = Recording::new();
    let builder = shop.outbox().store(store.clone()).on("Order", "OrderPlaced", recorder.clone());
    let outbox = builder.start().await.unwrap();
    // The workers run although the poller has found nothing yet, and the writer has the hook of its mode.
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("hot")).await.unwrap();
    tx.commit().await.unwrap();
    recorder.until(1).await;
    eventually("the hot one to be done", async || shop.row("hot").await.status == DONE).await;
    // The poller was started, after the dispatcher that takes what it finds.
    store.first_asked().await;
    store.let_go(1);
    recorder.until(2).await;
    assert_eq!(recorder.ids(), ["hot", "from before"]);
    store.let_go(1_000); // another look may have begun, and closing waits for it
    outbox.close().await.unwrap();
}

/// A handler that shows whether anybody still holds it.
struct Holding<H>(#[expect(dead_code, reason = "held, to see when it is let go")] Arc<()>, H);

impl<H: Handler> Handler for Holding<H> {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.1.handle(event).await
    }
}

/// A purger that shows the same.
struct Idle(#[expect(dead_code, reason = "held, to see when it is let go")] Arc<()>);

impl Purger for Idle {
    fn purge<'a>(
        &'a self,
        _: &'a mut dyn Connection,
        _: At,
        _: Duration,
        _: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async { Ok(0) })
    }
}

/// Rules: O-557, O-561.
#[tokio::test]
async fn a_start_that_fails_leaves_nothing_running() {
    let shop = Shop::open().await;
    shop.insert(&[order("1")]).await;
    let first = shop.outbox().start().await.unwrap();
    let held = Arc::new(());
    for cause in ["a second node", "no table", "a fault of the purge", "a fault of the poller"] {
        let recorder = Recording::new();
        let builder = Outbox::single_node(shop.pool.clone())
            .on("Order", "OrderPlaced", Holding(held.clone(), recorder.clone()))
            .purger(Idle(held.clone()));
        let builder = match cause {
            "no table" => builder.table("elsewhere").migrate(false),
            "a fault of the purge" => builder.guard(false).purge(purge::Settings::default().batch_size(0)),
            "a fault of the poller" => builder.guard(false).batch_size(0),
            _ => builder,
        };
        builder.start().await.expect_err(cause);
        // Neither a worker nor a loop holds on to what it was given.
        eventually("everything to be let go", async || Arc::strong_count(&held) == 1).await;
        assert_eq!(recorder.ids(), Vec::<String>::new(), "{cause}");
    }
    first.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-503.
    async fn a_second_outbox_for_one_node_on_the_same_table_is_told_so(shop) {
        let first = shop.outbox().start().await.unwrap();
        let second = shop.outbox().start().await;
        assert!(matches!(&second, Err(Error::NotAlone { table }) if table == "outbox_event"), "{second:?}");
        let told = second.unwrap_err().to_string();
        assert!(told.contains("at least one of the two runs in a single-process mode"), "{told}");
        assert!(told.contains("run both in mode multi-node"), "{told}");
        let ordered = Outbox::ordered(shop.pool.clone()).start().await;
        assert!(matches!(ordered, Err(Error::NotAlone { .. })), "{ordered:?}");

        let several = Outbox::multi_node(shop.pool.clone()).claim_locking(MINUTE).start().await;
        assert!(matches!(several, Err(Error::NotAlone { .. })), "{several:?}");

        // Those that do not mind each other may start: another table, a writer, an unguarded one.
        Outbox::single_node(shop.pool.clone()).table("other").start().await.unwrap().close().await.unwrap();
        Outbox::writer_only(shop.pool.clone()).start().await.unwrap().close().await.unwrap();
        shop.outbox().guard(false).start().await.unwrap().close().await.unwrap();

        first.close().await.unwrap();
        let after_close = shop.outbox().start().await.unwrap();
        drop(after_close);
        eventually("the right to come free", async || shop.outbox().start().await.is_ok()).await;
    }
}

#[tokio::test]
async fn a_table_in_capitals_is_the_same_one_on_sqlite() {
    let shop = Shop::open().await;
    let first = Outbox::single_node(shop.pool.clone()).table("orders").start().await.unwrap();
    let second = Outbox::single_node(shop.pool.clone()).table("Orders").start().await;
    assert!(matches!(&second, Err(Error::NotAlone { table }) if table == "Orders"), "{second:?}");
    first.close().await.unwrap();
    Outbox::single_node(shop.pool.clone()).table("Orders").start().await.unwrap().close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-503.
    async fn two_ordered_outboxes_cannot_share_a_table(shop) {
        let first = Outbox::ordered(shop.pool.clone()).start().await.unwrap();
        let second = Outbox::ordered(shop.pool.clone()).start().await;
        assert!(matches!(second, Err(Error::NotAlone { .. })), "{second:?}");
        first.close().await.unwrap();
        Outbox::ordered(shop.pool.clone()).start().await.unwrap().close().await.unwrap();
    }
}

/// Rules: O-043.
#[test]
fn background_work_ends_with_the_runtime() {
    let held = Arc::new(());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let gate = Slow::gated();
    let (outbox, shop) = runtime.block_on(async {
        let shop = Shop::open().await;
        shop.insert(&[order("1")]).await;
        let outbox = shop
            .outbox()
            .on("Order", "OrderPlaced", Holding(held.clone(), gate.clone()))
            .purger(Idle(held.clone()))
            .start()
            .await
            .unwrap();
        gate.until_began(1).await;
        (outbox, shop)
    });
    // A handler is in the middle, the poller and the purge rest: none of them holds the runtime up.
    drop(runtime);
    drop((outbox, shop));
    assert_eq!((gate.in_progress(), Arc::strong_count(&held)), (0, 1));
}

#[tokio::test]
async fn an_outbox_that_is_dropped_without_close_ends_by_itself() {
    let shop = Shop::open().await;
    let (held, gate) = (Arc::new(()), Slow::gated());
    let outbox =
        shop.outbox().on("Order", "OrderPlaced", gate.clone()).purger(Idle(held.clone())).start().await;
    let outbox = outbox.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order("1")).await.unwrap();
    tx.commit().await.unwrap();
    gate.until_began(1).await;
    drop(outbox);
    eventually("everything to be let go", async || Arc::strong_count(&held) == 1 && gate.in_progress() == 0)
        .await;
    assert_eq!(shop.row("1").await.status, NEW);
}

#[tokio::test]
async fn a_config_that_does_not_fit_its_mode_or_database_is_refused_or_not_used() {
    let database = servers::sqlite();
    let mut config = backstop_sql::outbox::Config::default();
    config.database.behind_pooler = true;
    config.database.guard = false;
    config.database.beside_java = true;
    config.poller.skip_recent = MINUTE;
    let error = Outbox::single_node(database.pool().await).config(config).start().await.unwrap_err();
    assert_eq!(faulty(&error), ["database.behind-pooler", "database.beside-java"]);

    // Strict order decides these itself.
    let mut config = backstop_sql::outbox::Config::default();
    (config.dispatcher.worker_count, config.dispatcher.cold_queue_capacity) = (9, 1);
    config.claim_locking.enabled = true;
    let outbox = Outbox::ordered(database.pool().await).config(config).start().await.unwrap();
    outbox.close().await.unwrap();
}
