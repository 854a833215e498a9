//! Appending: within a transaction, with the hooks around it, and nothing delivered before the commit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::Event;
use backstop_core::event::EventType;
use backstop_sql::Error;
use backstop_sql::connection::Connection;
use backstop_sql::outbox::{Hook, HookError, Writer};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Recording;
use tracing::Level;

use crate::flaky::Flaky;
use crate::harness::{NEW, Shop, order, shop};
use crate::logs::Logs;

/// Notes each step it is called for, with the ids it was given.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, step: &str, events: &[Event]) {
        let ids: Vec<_> = events.iter().map(Event::id).collect();
        self.0.lock().unwrap().push(format!("{step} {}", ids.join(",")));
    }

    fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Hook for Diary {
    fn before_write(&self, events: Vec<Event>) -> Result<Vec<Event>, HookError> {
        self.note("before_write", &events);
        Ok(events)
    }

    fn after_write(&self, events: &[Event]) -> Result<(), HookError> {
        self.note("after_write", events);
        Ok(())
    }

    fn after_commit(&self, events: &[Event]) -> Result<(), HookError> {
        self.note("after_commit", events);
        Ok(())
    }

    fn after_rollback(&self, events: &[Event]) -> Result<(), HookError> {
        self.note("after_rollback", events);
        Ok(())
    }

    fn abandoned(&self, events: &[Event]) {
        self.note("abandoned", events);
    }
}

/// Does nothing, as every step of a hook does unless it is written.
struct Silent;

impl Hook for Silent {}

/// Replaces what is written by what the function gives.
struct Replacing(fn(Vec<Event>) -> Result<Vec<Event>, HookError>);

impl Hook for Replacing {
    fn before_write(&self, events: Vec<Event>) -> Result<Vec<Event>, HookError> {
        (self.0)(events)
    }
}

/// Fails or panics in every step after the insert.
struct Failing {
    panics: bool,
}

impl Failing {
    fn fail(&self) -> Result<(), HookError> {
        assert!(!self.panics, "on purpose");
        Err("on purpose".into())
    }
}

impl Hook for Failing {
    fn after_write(&self, _: &[Event]) -> Result<(), HookError> {
        self.fail()
    }

    fn after_commit(&self, _: &[Event]) -> Result<(), HookError> {
        self.fail()
    }

    fn after_rollback(&self, _: &[Event]) -> Result<(), HookError> {
        self.fail()
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-002, O-010, O-092, O-191, O-204.
    async fn an_event_is_stored_with_the_business_change_on_the_same_connection(shop) {
        let outbox = shop.outbox().on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        sqlx::query("insert into shop_order values ('42')").execute(&mut *tx).await.unwrap();
        assert_eq!(tx.append(order("42")).await.unwrap().as_deref(), Some("42"));
        // The transaction sees its own row; nobody else does yet.
        let inside: i64 =
            sqlx::query_scalar("select count(*) from outbox_event").fetch_one(&mut *tx).await.unwrap();
        assert_eq!((inside, shop.rows().await), (1, 0));
        tx.commit().await.unwrap();
        assert_eq!(shop.rows().await, 1);
        outbox.close().await.unwrap();
    }

    /// Rules: O-011, O-094, O-096.
    async fn a_rolled_back_event_never_was_and_is_never_delivered(shop) {
        let recorder = Recording::new();
        let diary = Diary::default();
        let outbox =
            shop.outbox().on("Order", "OrderPlaced", recorder.clone()).hook(diary.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("1")).await.unwrap();
        tx.rollback().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("2")).await.unwrap();
        drop(tx);
        let failed: Result<(), Error> = outbox
            .transaction(async |tx| {
                tx.append(order("3")).await?;
                Err(Error::NoTransaction)
            })
            .await;
        assert!(failed.is_err());
        outbox.close().await.unwrap();
        assert_eq!((shop.rows().await, recorder.events().len()), (0, 0));
        let rollbacks: Vec<_> = diary.entries().into_iter().filter(|entry| entry.starts_with("after_")).collect();
        assert_eq!(
            rollbacks,
            [
                "after_write 1",
                "after_rollback 1",
                "after_write 2",
                "after_rollback 2",
                "after_write 3",
                "after_rollback 3"
            ]
        );
    }
}

/// Rules: O-003, O-091, O-093, O-217.
#[tokio::test]
async fn callbacks_of_a_transaction_run_once_and_only_for_how_it_ended() {
    let shop = Shop::open().await;
    let outbox = shop.outbox().start().await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let told = told.clone();
        move || told.lock().unwrap().push(what)
    };
    let mut tx = outbox.begin().await.unwrap();
    assert!(tx.in_transaction());
    tx.after_commit(note("committed"));
    tx.after_rollback(note("not rolled back"));
    assert!(told.lock().unwrap().is_empty());
    tx.commit().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.after_commit(note("not committed"));
    tx.after_rollback(note("rolled back"));
    drop(tx);
    assert_eq!(*told.lock().unwrap(), ["committed", "rolled back"]);
}

// MySQL checks no constraint as late as at the commit.
backstop_testkit::suite! {
    over { sqlite: shop::<sqlx::Sqlite>, postgres: shop::<sqlx::Postgres> } on 1 thread

    /// Rules: O-095.
    async fn a_commit_that_fails_counts_as_a_rollback(shop) {
        shop.run("create table parent (id int primary key)").await;
        shop.run("create table child (id int references parent (id) deferrable initially deferred)").await;
        let diary = Diary::default();
        let recorder = Recording::new();
        let outbox =
            shop.outbox().on("Order", "OrderPlaced", recorder.clone()).hook(diary.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        sqlx::query("insert into child values (1)").execute(&mut *tx).await.unwrap();
        tx.append(order("1")).await.unwrap();
        assert!(tx.commit().await.is_err());
        assert_eq!(diary.entries(), ["before_write 1", "after_write 1", "after_rollback 1"]);
        outbox.close().await.unwrap();
        assert_eq!((shop.rows().await, recorder.events().len()), (0, 0));
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-097, O-098.
    async fn appending_without_a_transaction_fails_at_once(shop) {
        let diary = Diary::default();
        let writer = Writer::new(shop.store.clone()).hook(diary.clone());
        let mut connection = shop.pool.acquire().await.unwrap();
        let refused = writer.append(&mut connection, order("1")).await;
        assert!(matches!(refused, Err(Error::NoTransaction)));
        assert!(writer.append_all(&mut connection, vec![]).await.is_err());
        assert_eq!((shop.rows().await, diary.entries().len()), (0, 0));
    }
}

enum Orders {
    Placed,
}

impl EventType for Orders {
    fn name(&self) -> &str {
        match self {
            Orders::Placed => "OrderPlaced",
        }
    }
}

/// Rules: O-192, O-193.
#[tokio::test]
async fn the_short_form_takes_a_type_and_the_payloads_text() {
    let shop = Shop::open().await;
    let outbox = shop.outbox().start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let by_name = tx.append_json("OrderPlaced", r#"{"a":1}"#).await.unwrap().unwrap();
    let by_type = tx.append_json(Orders::Placed, "[]").await.unwrap().unwrap();
    assert!(matches!(tx.append_json("OrderPlaced", "{").await, Err(Error::Event(_))));
    tx.commit().await.unwrap();
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("select event_id, event_type, payload from outbox_event order by event_id")
            .fetch_all(&shop.pool)
            .await
            .unwrap();
    let kind = || "OrderPlaced".to_owned();
    assert_eq!(rows, [(by_name, kind(), r#"{"a":1}"#.to_owned()), (by_type, kind(), "[]".to_owned())]);
}

/// Rules: O-194, O-199, O-205, O-206, O-211, O-212, O-213, O-215, O-216, O-218.
#[tokio::test]
async fn hooks_run_once_per_batch_in_their_order_with_what_was_inserted() {
    let shop = Shop::open().await;
    let diary = Diary::default();
    let outbox = shop.outbox().hook(Silent).hook(diary.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    assert_eq!(tx.append_all(vec![order("b"), order("a")]).await.unwrap(), ["b", "a"]);
    tx.append(order("c")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        diary.entries(),
        [
            "before_write b,a",
            "after_write b,a",
            "before_write c",
            "after_write c",
            "after_commit b,a",
            "after_commit c"
        ]
    );
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all(vec![order("d"), order("e")]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(diary.entries()[6..], ["before_write d,e", "after_write d,e", "after_rollback d,e"]);
}

/// Rules: O-200, O-201.
#[tokio::test]
async fn what_a_hook_makes_of_the_events_is_what_gets_written() {
    let shop = Shop::open().await;
    let diary = Diary::default();
    let replacing = Replacing(|mut events| {
        events.push(order("added"));
        events.retain(|event| event.id() != "dropped");
        Ok(events)
    });
    let outbox = shop.outbox().hook(replacing).hook(diary.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    assert_eq!(tx.append_all(vec![order("kept"), order("dropped")]).await.unwrap(), ["kept", "added"]);
    assert_eq!(tx.append_all(vec![]).await.unwrap(), Vec::<String>::new());
    tx.commit().await.unwrap();
    assert_eq!(
        diary.entries(),
        ["before_write kept,added", "after_write kept,added", "after_commit kept,added"]
    );
    assert_eq!(shop.rows().await, 2);
}

/// Rules: O-195, O-196, O-202, O-203.
#[tokio::test]
async fn a_hook_that_gives_nothing_back_suppresses_the_write() {
    let shop = Shop::open().await;
    let diary = Diary::default();
    let outbox = shop.outbox().hook(Replacing(|_| Ok(vec![]))).hook(diary.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    assert_eq!(tx.append(order("1")).await.unwrap(), None);
    assert_eq!(tx.append_all(vec![order("2"), order("3")]).await.unwrap(), Vec::<String>::new());
    tx.commit().await.unwrap();
    assert_eq!(shop.rows().await, 0);
    assert!(diary.entries().iter().all(|entry| entry == "before_write "), "{:?}", diary.entries());
}

#[tokio::test]
async fn a_hook_that_refuses_or_panics_before_the_write_reaches_the_caller_and_nothing_is_written() {
    let shop = Shop::open().await;
    for hook in [Replacing(|_| Err("not today".into())), Replacing(|_| panic!("on purpose"))] {
        let outbox = shop.outbox().hook(hook).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        let error = tx.append(order("1")).await.unwrap_err();
        assert!(matches!(error, Error::Hook(_)), "{error}");
        tx.commit().await.unwrap();
        outbox.close().await.unwrap();
    }
    assert_eq!(shop.rows().await, 0);
}

/// Rules: O-207, O-208, O-209.
#[tokio::test]
async fn a_hook_that_fails_or_panics_later_is_logged_and_harms_nobody() {
    for panics in [false, true] {
        let logs = Logs::catch();
        let shop = Shop::open().await;
        let recorder = Recording::new();
        let outbox = shop
            .outbox()
            .hook(Failing { panics })
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("1")).await.unwrap();
        tx.commit().await.unwrap();
        recorder.until(1).await;
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("2")).await.unwrap();
        tx.rollback().await.unwrap();
        outbox.close().await.unwrap();
        for step in ["after_write", "after_commit", "after_rollback"] {
            assert!(!logs.having(Level::WARN, step).is_empty(), "{step}: {}", logs.all());
        }
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-197, O-198, O-210, O-214.
    async fn a_writer_alone_writes_and_does_nothing_after_the_commit(shop) {
        let writer = Writer::new(shop.store.clone());
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = writer.append_json(&mut tx, "OrderPlaced", "{}").await.unwrap();
        let ids = appended.ids();
        tx.commit().await.unwrap();
        appended.committed();
        assert_eq!(shop.row(&ids[0]).await.status, NEW);

        let diary = Diary::default();
        let with_hook = Writer::new(shop.store.clone()).hook(diary.clone());
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = with_hook.append_all(&mut tx, vec![order("1"), order("2")]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(diary.entries().len(), 2);
        appended.committed();
        assert_eq!(diary.entries()[2..], ["after_commit 1,2"]);
    }

    /// Rules: O-016, O-219.
    async fn delivery_begins_with_the_commit_and_never_before(shop) {
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all(vec![order("1"), order("2"), order("3")]).await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(outbox.metrics().enqueue_hot.total(), 0);
        tx.commit().await.unwrap();
        assert_eq!(outbox.metrics().enqueue_hot.total(), 3);
        recorder.until(3).await;
        assert_eq!(outbox.metrics().enqueue_cold.total(), 0);
        outbox.close().await.unwrap();
    }

    async fn a_caller_with_a_transaction_of_its_own_hands_over_the_token_after_the_commit(shop) {
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = outbox.writer().append(&mut tx, order("1")).await.unwrap();
        tx.commit().await.unwrap();
        appended.committed();
        recorder.until(1).await;
        outbox.close().await.unwrap();
    }

    async fn the_poller_leaves_an_event_to_the_hot_path_until_the_token_is_handed_over(shop) {
        let recorder = Recording::new();
        let (store, switches) = Flaky::around(shop.store.clone());
        let outbox =
            shop.outbox().store(store).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = outbox.writer().append(&mut tx, order("1")).await.unwrap();
        tx.commit().await.unwrap();
        let polls = || switches.polls.load(std::sync::atomic::Ordering::SeqCst);
        let before = polls();
        outbox.nudge();
        eventually("the poller looked", async || polls() > before).await;
        tokio::task::yield_now().await;
        assert_eq!(recorder.events().len(), 0);
        appended.committed();
        recorder.until(1).await;
        outbox.nudge();
        outbox.close().await.unwrap();
        assert_eq!(recorder.count_of("1"), 1);
    }

    async fn a_dropped_token_only_means_that_the_poller_delivers(shop) {
        let recorder = Recording::new();
        let outbox = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = shop.pool.begin().await.unwrap();
        drop(outbox.writer().append(&mut tx, order("1")).await.unwrap());
        tx.commit().await.unwrap();
        assert_eq!(outbox.metrics().enqueue_hot.total(), 0);
        outbox.nudge();
        recorder.until(1).await;
        outbox.close().await.unwrap();
    }

    /// Rules: O-220, O-221, O-408.
    async fn a_delayed_event_skips_the_hot_path_and_the_poller_delivers_it_in_time(shop) {
        let recorder = Recording::new();
        let outbox = shop
            .outbox()
            .interval(Duration::from_millis(20))
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let delay = Duration::from_millis(300);
        let delayed = Event::of("OrderPlaced").aggregate("Order", "1").deliver_after(delay).json(&()).unwrap();
        let due = delayed.available_at().unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(delayed).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(outbox.metrics().enqueue_hot_skipped_delayed.total(), 1);
        assert_eq!(outbox.metrics().enqueue_hot.total(), 0);
        recorder.until(1).await;
        assert!(backstop_core::Clock::now(&backstop_core::SystemClock) >= due);
        outbox.close().await.unwrap();
    }

    async fn a_batch_is_written_in_one_statement(shop) {
        let (store, switches) = Flaky::around(shop.store.clone());
        let writer = Writer::new(store);
        let mut tx = shop.pool.begin().await.unwrap();
        let events = (0..200).map(|n| order(&format!("{n:03}"))).collect();
        writer.append_all(&mut tx, events).await.unwrap().committed();
        tx.commit().await.unwrap();
        assert_eq!(switches.inserts.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert_eq!(shop.rows().await, 200);
    }

    /// Rules: O-056.
    async fn a_helper_runs_business_code_in_a_transaction(shop) {
        let outbox = shop.outbox().start().await.unwrap();
        let id = outbox
            .transaction(async |tx| -> Result<_, Error> {
                sqlx::query("insert into shop_order values ('1')").execute(&mut **tx).await.unwrap();
                tx.append(order("1")).await
            })
            .await
            .unwrap();
        assert_eq!((id.as_deref(), shop.rows().await), (Some("1"), 1));
    }
}
