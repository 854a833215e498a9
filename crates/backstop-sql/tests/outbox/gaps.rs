//! What falls between two questions: rows that become due, answers that are lost, rows that nobody can name.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Failure, Outcome, Timestamp};
use backstop_sql::Outbox;
use backstop_sql::connection::{Connection, Connections};
use backstop_sql::statement::{Marks, Statement};
use backstop_sql::store::{At, Claim, DatabaseKind, Due, NextDue, Row, Settle, Store, Unreadable};
use backstop_sql::{BoxFuture, Error};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use tracing::Level;

use crate::harness::{DEAD, DONE, Database, NEVER, NEW, Shop, order, shop};
use crate::logs::Logs;
use crate::steps::{commit, make_unreadable, orders, until_count, until_status};

/// A store that answers late, loses answers to claims, or notes what it settles, in that order.
struct Gappy {
    inner: Arc<dyn Store>,
    connections: Arc<dyn Connections>,
    /// How long it takes until what was read reaches the poller.
    late: Duration,
    /// Whether the next claim is taken and its answer lost.
    loses_a_claim: AtomicBool,
    /// Whether events are not looked for, and claims not taken back.
    is_away: AtomicBool,
    /// Whether the next settlement is written and its answer lost.
    loses_a_settlement: AtomicBool,
    /// What happens to rows before and after they are read as this node's own.
    around_owned: [Option<&'static str>; 2],
    settled: Mutex<Vec<(String, bool)>>,
}

impl Gappy {
    fn around(shop: &Shop<impl Database>) -> Self {
        Self {
            inner: shop.store.clone(),
            connections: shop.connections.clone(),
            late: Duration::ZERO,
            loses_a_claim: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            loses_a_settlement: AtomicBool::new(false),
            around_owned: [None; 2],
            settled: Mutex::default(),
        }
    }
}

fn lost<T>() -> Result<T, Error> {
    Err(Error::Database { doing: "losing an answer", source: sqlx::Error::PoolTimedOut })
}

impl Gappy {
    /// What somebody else does to the table.
    async fn meanwhile(&self, sql: Option<&'static str>) {
        if let Some(sql) = sql {
            let mut statement = Statement::new(Marks::Question); // of which it has none
            statement.push(sql);
            self.connections.connection().await.unwrap().execute(&statement).await.unwrap();
        }
    }
}

impl Store for Gappy {
    forward!(migrate, check, insert, census, troubled, query_dead, count_dead, replay_dead, purge);

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let rows = self.inner.poll(due).await;
            tokio::time::sleep(self.late).await;
            rows
        })
    }

    fn next_due(&self, at: At, since: Option<Timestamp>) -> BoxFuture<'_, Result<Option<NextDue>, Error>> {
        self.inner.next_due(at, since)
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due<'a>,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let rows = self.inner.claim(owner, timeout, due).await?;
            if !rows.is_empty() && self.loses_a_claim.swap(false, Ordering::SeqCst) {
                return lost();
            }
            Ok(rows)
        })
    }

    fn present<'a>(
        &'a self,
        connection: Option<&'a mut dyn Connection>,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        if self.is_away.load(Ordering::SeqCst) {
            Box::pin(async { lost() })
        } else {
            self.inner.present(connection, ids)
        }
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        if self.is_away.load(Ordering::SeqCst) {
            Box::pin(async { lost() })
        } else {
            self.inner.release(rows)
        }
    }

    fn owned<'a>(
        &'a self,
        owner: &'a Arc<str>,
        at: At,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let [before, after] = self.around_owned;
            self.meanwhile(before).await;
            let rows = self.inner.owned(owner, at, limit).await;
            self.meanwhile(after).await;
            rows
        })
    }

    fn renew<'a>(&'a self, at: At, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        self.inner.renew(at, rows)
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        let note = |settle: &Settle| (settle.id.clone(), settle.settlement == Settlement::Done);
        self.settled.lock().unwrap().extend(settles.iter().map(note));
        Box::pin(async move {
            let settled = self.inner.settle(at, settles).await;
            if self.loses_a_settlement.swap(false, Ordering::SeqCst) { lost() } else { settled }
        })
    }

    fn bury_unreadable<'a>(&'a self, at: At, rows: &'a [Unreadable]) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.bury_unreadable(at, rows)
    }
}

database_suite! {
    over shop on 1 thread

    async fn what_becomes_due_between_a_look_and_the_question_for_the_next_does_not_wait_for_the_interval(shop) {
        let soon = Duration::from_millis(200);
        let delayed =
            Event::of("OrderPlaced").id("1").aggregate("Order", "1").deliver_after(soon).json(&()).unwrap();
        shop.insert(&[delayed]).await;
        // It is not due when the table is read, and is when the poller asks what comes next.
        let store = Arc::new(Gappy { late: soon * 2, ..Gappy::around(&shop) });
        let recorder = Recording::new();
        let outbox =
            shop.outbox().store(store).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(1).await;
        outbox.close().await.unwrap();
    }

    async fn rows_whose_claim_got_lost_on_its_way_back_are_taken_up_by_the_node_that_has_them(shop) {
        shop.insert(&orders(5)).await;
        let store = Arc::new(Gappy::around(&shop));
        store.loses_a_claim.store(true, Ordering::SeqCst);
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .interval(NEVER)
            .store(store.clone())
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        until_count(&shop, DONE, 5).await;
        assert!(!store.loses_a_claim.load(Ordering::SeqCst), "the answer was lost");
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids().len(), 5, "each once");
    }

    async fn a_claim_that_is_taken_up_is_renewed_before_its_event_is_handled(shop) {
        shop.insert(&[order("1")]).await;
        let aged = "update outbox_event set locked_at = '2020-01-01 00:00:00' where event_id = '1'";
        let store = Gappy { around_owned: [Some(aged), None], ..Gappy::around(&shop) };
        store.loses_a_claim.store(true, Ordering::SeqCst);
        let gate = Slow::gated();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .interval(NEVER)
            .store(Arc::new(store))
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        gate.until_began(1).await;
        let locked_at = shop.row("1").await.locked_at.unwrap();
        assert!(
            locked_at > "2021-01-01T00:00:00Z".parse::<Timestamp>().unwrap(),
            "nobody knows how old it is: {locked_at}"
        );
        gate.open();
        outbox.close().await.unwrap();
    }

    async fn a_row_that_another_node_took_before_it_was_taken_up_is_left_to_that_node(shop) {
        shop.insert(&[order("1")]).await;
        let taken = "update outbox_event set locked_by = 'b', claim_seq = claim_seq + 1 where event_id = '1'";
        let store = Gappy { around_owned: [None, Some(taken)], ..Gappy::around(&shop) };
        store.loses_a_claim.store(true, Ordering::SeqCst);
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .interval(NEVER)
            .worker_count(1)
            .store(Arc::new(store))
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        eventually("another node to have it", async || shop.row("1").await.locked_by.as_deref() == Some("b"))
            .await;
        commit(&outbox, vec![order("2")]).await;
        until_status(&shop, "2", DONE).await;
        outbox.close().await.unwrap();
        assert_eq!((recorder.ids(), shop.row("1").await.status), (vec!["2".to_owned()], NEW));
    }

    async fn a_row_that_cannot_be_decoded_is_buried_when_it_is_taken_up(shop) {
        let logs = Logs::catch();
        shop.insert(&orders(3)).await;
        make_unreadable(&shop, "0001").await;
        let store = Arc::new(Gappy::around(&shop));
        store.loses_a_claim.store(true, Ordering::SeqCst);
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .interval(NEVER)
            .store(store)
            .on("Order", "OrderPlaced", Recording::new())
            .start()
            .await
            .unwrap();
        until_count(&shop, DONE, 2).await;
        until_count(&shop, DEAD, 1).await;
        outbox.close().await.unwrap();
        assert!(shop.row("0001").await.last_error.unwrap().starts_with("the row cannot be decoded: headers"));
        assert_eq!(outbox.metrics().dispatch_dead.total(), 1);
        assert_eq!(logs.having(Level::ERROR, "event_id=\"0001\"").len(), 1, "{}", logs.all());
    }

    /// What is in memory counts, however its row looks by now.
    async fn a_row_that_cannot_be_decoded_any_more_is_not_buried_while_its_event_is_in_flight(shop) {
        let store = Arc::new(Gappy::around(&shop));
        let gate = Slow::gated();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .hot_grace(NEVER)
            .interval(NEVER)
            .worker_count(3)
            .store(store.clone())
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        commit(&outbox, vec![order("1")]).await;
        gate.until_began(1).await;
        make_unreadable(&shop, "1").await;
        store.loses_a_claim.store(true, Ordering::SeqCst);
        shop.insert(&[order("2")]).await;
        outbox.nudge();
        gate.until_began(2).await; // the second was taken up
        shop.insert(&[order("3")]).await;
        outbox.nudge();
        gate.until_began(3).await; // and that is over
        gate.open();
        until_count(&shop, DONE, 3).await;
        outbox.close().await.unwrap();
    }

    async fn rows_whose_claim_was_lost_are_taken_up_behind_many_that_are_in_flight(shop) {
        let store = Arc::new(Gappy::around(&shop));
        store.loses_a_claim.store(true, Ordering::SeqCst);
        let gate = Slow::gated();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .hot_grace(NEVER)
            .interval(Duration::from_millis(20))
            .worker_count(1)
            .store(store.clone())
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        commit(&outbox, orders(700)).await; // all of them wait in memory
        gate.until_began(1).await;
        shop.insert(&[order("lost")]).await;
        outbox.nudge();
        eventually("a loss", async || !store.loses_a_claim.load(Ordering::SeqCst)).await;
        tokio::time::sleep(Duration::from_millis(500)).await; // several looks
        gate.open();
        until_count(&shop, DONE, 701).await;
        outbox.close().await.unwrap();
    }

    async fn rows_that_find_no_room_when_they_are_taken_up_are_taken_up_when_there_is_some(shop) {
        let large = |n: usize| {
            let event = Event::of("OrderPlaced").id(format!("{n}")).aggregate("Order", "1");
            event.json(&"x".repeat(3_000)).unwrap()
        };
        shop.insert(&(0..5).map(large).collect::<Vec<_>>()).await;
        let store = Arc::new(Gappy::around(&shop));
        store.loses_a_claim.store(true, Ordering::SeqCst);
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .interval(NEVER)
            .queue_bytes(4_000)
            .store(store.clone())
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        until_count(&shop, DONE, 5).await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids().len(), 5, "each once");
    }

    async fn a_row_that_was_taken_up_again_is_not_given_back_by_an_earlier_wish(shop) {
        let store = Arc::new(Gappy::around(&shop));
        let gate = Slow::gated();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking_as("here", NEVER)
            .interval(Duration::from_millis(50))
            .store(store.clone())
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        // A committed event that cannot be looked for is to be given back, and the database does not take it back.
        store.is_away.store(true, Ordering::SeqCst);
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = outbox.writer().append(&mut tx, order("1")).await.unwrap();
        tx.commit().await.unwrap();
        appended.committed();
        // Then a claim's answer is lost, and the node takes up what carries its name.
        store.loses_a_claim.store(true, Ordering::SeqCst);
        shop.insert(&[order("2")]).await;
        gate.until_began(2).await;
        store.is_away.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await; // many looks
        gate.open();
        until_count(&shop, DONE, 2).await;
        outbox.close().await.unwrap();
        assert_eq!(shop.row("1").await.claim_seq, 0, "nobody claimed it while its handler ran");
    }

    async fn a_settlement_whose_answer_was_lost_is_counted_once_and_not_as_late(shop) {
        let store = Arc::new(Gappy::around(&shop));
        store.loses_a_settlement.store(true, Ordering::SeqCst);
        let builder = shop.outbox().store(store.clone()).on("Order", "OrderPlaced", Recording::new());
        let outbox = builder.start().await.unwrap();
        commit(&outbox, vec![order("1")]).await;
        let metrics = outbox.metrics();
        eventually("it to be counted", async || {
            metrics.dispatch_success.total() + metrics.settle_late.total() > 0
        })
        .await;
        outbox.close().await.unwrap();
        assert_eq!((metrics.dispatch_success.total(), metrics.settle_late.total()), (1, 0));
        assert_eq!(store.settled.lock().unwrap().len(), 2, "it was written again");
    }
}

/// A store whose clock is set back between two questions, while a row comes that nobody tells of.
struct SetBack {
    inner: Arc<dyn Store>,
    pool: sqlx::SqlitePool,
    asked: AtomicUsize,
}

impl Store for SetBack {
    forward!(
        migrate,
        check,
        insert,
        poll,
        claim,
        release,
        settle,
        census,
        troubled,
        query_dead,
        count_dead,
        replay_dead,
        purge
    );

    fn next_due(&self, _: At, _: Option<Timestamp>) -> BoxFuture<'_, Result<Option<NextDue>, Error>> {
        Box::pin(async {
            let hours = i64::try_from(self.asked.fetch_add(1, Ordering::SeqCst)).unwrap();
            if hours == 1 {
                let mut tx = self.pool.begin().await.unwrap();
                self.inner.insert(&mut tx, &[order("1")], None).await.unwrap();
                tx.commit().await.unwrap();
            }
            let asked_at = Timestamp::from_timestamp(4_000_000_000 - hours * 3_600, 0).unwrap();
            Ok(Some(NextDue { asked_at, after: None }))
        })
    }
}

#[tokio::test]
async fn when_the_databases_clock_was_set_back_the_table_is_looked_at_again() {
    let shop = Shop::open().await;
    let store = SetBack { inner: shop.store.clone(), pool: shop.pool.clone(), asked: AtomicUsize::new(0) };
    let recorder = Recording::new();
    let builder = shop.outbox().store(Arc::new(store)).on("Order", "OrderPlaced", recorder.clone());
    let outbox = builder.start().await.unwrap();
    until_count(&shop, DONE, 1).await;
    outbox.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    async fn in_strict_order_what_was_handled_first_is_settled_first_whatever_became_of_it(shop) {
        shop.insert(&orders(12)).await;
        // Some were replayed before.
        shop.run("update outbox_event set claim_seq = 2 where event_id in ('0001', '0007', '0008')").await;
        shop.note_updates("event_id").await;
        let gate = Slow::gated().then(|event: Event| async move {
            if event.id() < "0003" || event.id() > "0005" {
                return Ok(Outcome::Done);
            }
            Err(Failure::permanent("no", "never"))
        });
        let outbox = Outbox::ordered(shop.pool.clone())
            .interval(NEVER)
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        gate.open();
        until_count(&shop, DONE, 9).await;
        until_count(&shop, DEAD, 3).await;
        outbox.close().await.unwrap();
        let ids: Vec<_> = orders(12).iter().map(|event| event.id().to_owned()).collect();
        assert_eq!(shop.noted().await, ids);
    }
}

/// A row whose id is bytes, and one whose moment never comes: only SQLite takes them.
const HOSTILE: [&str; 2] = [
    "insert into outbox_event (event_id, event_type, payload, status, available_at, created_at)
     values (x'0102', 'OrderPlaced', '{}', 0, '2020-01-01 00:00:00', '2020-01-01 00:00:00'),
            ('', 'OrderPlaced', '{}', 0, '2020-01-01 00:00:01', '2020-01-01 00:00:01')",
    "insert into outbox_event (event_id, event_type, payload, status, available_at, created_at)
     values ('never', 'OrderPlaced', '{}', 0, 'tomorrow', '2020-01-01 00:00:00')",
];

#[tokio::test]
async fn a_row_that_has_no_name_is_buried_once_and_the_one_with_an_empty_name_is_delivered() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    for hostile in HOSTILE {
        shop.run(hostile).await;
    }
    shop.insert(&orders(3)).await;
    let recorder = Recording::new();
    let outbox = shop
        .outbox()
        .interval(Duration::from_millis(5))
        .on("Order", "OrderPlaced", recorder.clone())
        .on_global("OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    until_count(&shop, DONE, 4).await;
    until_count(&shop, DEAD, 2).await;
    outbox.close().await.unwrap();
    assert_eq!(recorder.count_of(""), 1);
    assert_eq!(logs.having(Level::ERROR, "cannot be decoded").len(), 2, "{}", logs.all());
}

#[tokio::test]
async fn a_row_that_cannot_even_be_buried_is_told_of_rarely_and_hides_no_other() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    shop.run(HOSTILE[0]).await;
    shop.run("update outbox_event set status = 1 where event_id = ''").await;
    shop.run(
        "create trigger refuse before update on outbox_event when typeof(new.event_id) = 'blob'
         begin select raise(ignore); end",
    )
    .await;
    for strict in [false, true] {
        let (recorder, soon) = (Recording::new(), Duration::from_millis(5));
        let outbox = if strict {
            let builder = Outbox::ordered(shop.pool.clone()).batch_size(1).interval(soon);
            builder.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap()
        } else {
            let builder = shop.outbox().batch_size(1).interval(soon);
            builder.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap()
        };
        shop.run("delete from outbox_event where event_id in ('a', 'b')").await;
        commit(&outbox, vec![order("a")]).await;
        until_status(&shop, "a", DONE).await;
        shop.insert(&[order("b")]).await;
        until_status(&shop, "b", DONE).await;
        tokio::time::sleep(soon * 40).await; // many looks
        outbox.close().await.unwrap();
    }
    let told = logs.having(Level::ERROR, "cannot be buried either").len();
    assert!((1..=4).contains(&told), "{told}");
    assert_eq!(shop.count(NEW).await, 1);
}

#[tokio::test]
async fn queues_are_full_when_their_bytes_are() {
    let shop = Shop::open().await;
    let gate = Slow::gated();
    let outbox = shop
        .outbox()
        .worker_count(1)
        .queue_bytes(10_000)
        .on("Order", "OrderPlaced", gate.clone())
        .start()
        .await
        .unwrap();
    let large = |id: &str| {
        let event = Event::of("OrderPlaced").id(id).aggregate("Order", id);
        event.json(&"x".repeat(3_000)).unwrap()
    };
    commit(&outbox, vec![large("busy")]).await;
    gate.until_began(1).await;
    commit(&outbox, ["1", "2", "3", "4", "5"].map(large).to_vec()).await;
    assert_eq!(outbox.metrics().enqueue_hot.total(), 1 + 3, "one is handled, three find room");
    assert_eq!(outbox.metrics().enqueue_hot_dropped.total(), 2);
    gate.open();
    eventually("all of them", async || {
        outbox.nudge();
        shop.count(DONE).await == 6
    })
    .await;
    outbox.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    /// A transaction that only the outbox has worked on since the first append is as the outbox left it.
    async fn a_commit_asks_for_its_events_where_another_statement_ran_after_the_first_of_them(shop) {
        let store = Arc::new(Gappy::around(&shop));
        store.is_away.store(true, Ordering::SeqCst);
        let outbox = Outbox::writer_only(shop.pool.clone()).store(store).start().await.unwrap();
        // In turn: an event, two that the database refuses, or a statement of the application's.
        let cases =
            [("e", true), ("se", true), ("ee", true), ("", true), ("es", false), ("ese", false), ("s", false)];
        for (steps, is_sure) in cases.into_iter().chain([("d", false), ("de", true), ("ede", false)]) {
            if shop.kind == DatabaseKind::Postgres && steps.contains("de") {
                continue; // after a refusal it takes nothing more in the transaction
            }
            let mut tx = outbox.begin().await.unwrap();
            for step in steps.chars() {
                let alike = vec![Event::of("OrderPlaced").id("alike").json(&()).unwrap(); 2];
                match step {
                    'e' => drop(tx.append_json("OrderPlaced", "{}").await.unwrap()),
                    'd' => drop(tx.append_all(alike).await.unwrap_err()),
                    _ => drop(sqlx::query("select 1").execute(&mut *tx).await.unwrap()),
                }
            }
            assert_eq!(tx.commit().await.is_ok(), is_sure, "{steps:?}");
        }
        outbox.close().await.unwrap();
    }
}
