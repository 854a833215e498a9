//! The purge: batches until one is not full, at an interval, one cycle at a time, whatever goes wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_sql::connection::Connection;
use backstop_sql::outbox::{Purge, Purger, StorePurger, purge};
use backstop_sql::store::At;
use backstop_sql::{BoxFuture, Error};
use backstop_testkit::eventually;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tracing::Level;

use crate::harness::{DEAD, DONE, NEW, RETRY, metrics, order, shop};
use crate::logs::Logs;
use crate::nowhere::Nowhere;
use crate::steps::settle_done;

const HOUR: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// What a purger answers: so many deleted, an error, or a panic.
#[derive(Debug, Clone, Copy)]
enum Says {
    Deleted(u64),
    Error,
    Panic,
}

/// How a purger was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    at: At,
    age: Duration,
    limit: u32,
    when: Instant,
}

/// Answers as told, then that nothing was left; notes how it was asked.
#[derive(Clone)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Says>>>,
    asked: watch::Sender<Vec<Asked>>,
    gate: Arc<Semaphore>,
}

impl Scripted {
    fn new(answers: &[Says]) -> Self {
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect()));
        Self {
            answers,
            asked: watch::Sender::default(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// Holds every batch up until a permit is added to the gate.
    fn gated() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ..Self::new(&[]) }
    }

    async fn until_asked(&self, times: usize) -> Vec<Asked> {
        self.asked.subscribe().wait_for(|asked| asked.len() >= times).await.unwrap().clone()
    }

    fn asked(&self) -> usize {
        self.asked.borrow().len()
    }
}

impl Purger for Scripted {
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            assert!(!connection.in_transaction(), "a batch commits by itself");
            self.asked.send_modify(|asked| asked.push(Asked { at, age, limit, when: Instant::now() }));
            self.gate.acquire().await.unwrap().forget();
            let says = self.answers.lock().unwrap().pop_front();
            match says.unwrap_or(Says::Deleted(0)) {
                Says::Deleted(rows) => Ok(rows),
                Says::Error => Err(Error::State("failing on purpose")),
                Says::Panic => panic!("on purpose"),
            }
        })
    }
}

fn built(settings: purge::Settings, purger: &Scripted) -> Purge {
    settings.build(Arc::new(Nowhere::default()), purger.clone(), metrics()).unwrap()
}

/// Rules: O-467, O-468, O-475.
#[tokio::test(start_paused = true)]
async fn rows_older_than_a_week_go_five_hundred_at_a_time_unless_told_otherwise() {
    let purger = Scripted::new(&[]);
    built(purge::Settings::default(), &purger).run_once().await.unwrap();
    let asked = purger.until_asked(1).await.remove(0);
    // The age, not a moment: the database's clock says at each batch what is older than it.
    assert_eq!((asked.at, asked.age, asked.limit), (At::Database, WEEK, 500));

    let purger = Scripted::new(&[]);
    built(purge::Settings::default().retention(HOUR).batch_size(7), &purger).run_once().await.unwrap();
    let asked = purger.until_asked(1).await.remove(0);
    assert_eq!((asked.age, asked.limit), (HOUR, 7));
}

/// Rules: O-469, O-470.
#[tokio::test(start_paused = true)]
async fn it_purges_at_the_start_and_then_every_hour_unless_told_otherwise() {
    for (settings, interval) in [
        (purge::Settings::default(), HOUR),
        (purge::Settings::default().interval(Duration::from_secs(1_800)), HOUR / 2),
    ] {
        let purger = Scripted::new(&[]);
        let purge = built(settings, &purger);
        let begun = Instant::now();
        purge.start().unwrap();
        purge.start().unwrap(); // no second loop
        let asked = purger.until_asked(3).await;
        let times: Vec<_> = asked.iter().map(|asked| asked.when - begun).collect();
        // A millisecond is the timer's own grain.
        for (found, wanted) in times.iter().zip([Duration::ZERO, interval, interval * 2]) {
            assert!(found.abs_diff(wanted) < Duration::from_millis(10), "{times:?}");
        }
        purge.close().await;
    }
}

/// Rules: O-471, O-472, O-476, O-477.
#[tokio::test(start_paused = true)]
async fn a_cycle_deletes_batch_after_batch_until_one_is_not_full() {
    let logs = Logs::catch();
    let (purger, connections, metrics) = (
        Scripted::new(&[Says::Deleted(3), Says::Deleted(3), Says::Deleted(1)]),
        Nowhere::default(),
        metrics(),
    );
    let settings = purge::Settings::default().batch_size(3);
    let purge = settings.build(Arc::new(connections.clone()), purger.clone(), metrics.clone()).unwrap();
    assert_eq!(purge.run_once().await.unwrap(), 7);
    assert_eq!((purger.asked(), connections.opened(), metrics.purge.total()), (3, 3, 7));
    assert_eq!(logs.having(Level::INFO, "purged=7").len(), 1, "{}", logs.all());
    // One cycle and no more, at whatever interval.
    tokio::time::sleep(HOUR * 2).await;
    assert_eq!(purger.asked(), 3);
}

/// Rules: O-478.
#[tokio::test(start_paused = true)]
async fn an_error_or_a_panic_is_logged_and_the_next_cycle_comes() {
    let logs = Logs::catch();
    let purger = Scripted::new(&[Says::Error, Says::Panic, Says::Deleted(1)]);
    let purge = built(purge::Settings::default(), &purger);
    purge.start().unwrap();
    purger.until_asked(4).await;
    assert_eq!(logs.having(Level::ERROR, "failing on purpose").len(), 1, "{}", logs.all());
    assert_eq!(logs.having(Level::ERROR, "panicked").len(), 1, "{}", logs.all());
    assert_eq!(logs.having(Level::INFO, "purged=1").len(), 1, "{}", logs.all());
    purge.close().await;
}

/// Whoever purges once is told the error.
#[tokio::test]
async fn purging_once_returns_the_error() {
    let purge = built(purge::Settings::default(), &Scripted::new(&[Says::Error]));
    assert!(purge.run_once().await.is_err());
    assert_eq!(purge.run_once().await.unwrap(), 0);
}

/// Rules: O-451.
#[tokio::test]
async fn two_cycles_never_overlap() {
    let purger = Scripted::gated();
    let purge = Arc::new(built(purge::Settings::default(), &purger));
    purge.start().unwrap();
    purger.until_asked(1).await;
    let again = tokio::spawn({
        let purge = purge.clone();
        async move { purge.run_once().await }
    });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(purger.asked(), 1, "the second waits for the first");
    purger.gate.add_permits(1);
    purger.until_asked(2).await;
    purger.gate.add_permits(1);
    assert_eq!(again.await.unwrap().unwrap(), 0);
    purge.close().await;
}

/// Rules: O-473, O-479.
#[tokio::test(start_paused = true)]
async fn closing_ends_it_after_the_batch_under_way_and_for_good() {
    let purger = Scripted::gated();
    purger.answers.lock().unwrap().extend([Says::Deleted(500); 10]);
    let purge = Arc::new(built(purge::Settings::default(), &purger));
    purge.start().unwrap();
    purger.until_asked(1).await;
    let closing = tokio::spawn({
        let purge = purge.clone();
        async move { purge.close().await }
    });
    tokio::task::yield_now().await;
    assert!(!closing.is_finished());
    purger.gate.add_permits(100);
    closing.await.unwrap();
    tokio::time::sleep(HOUR * 3).await;
    assert_eq!(purger.asked(), 1, "not even the next batch");
    let error = purge.start().unwrap_err();
    assert!(matches!(error, Error::State(_)), "{error}");
    assert!(error.to_string().contains("closed"), "{error}");
    purge.close().await;
    tokio::time::sleep(HOUR * 3).await;
    assert_eq!(purger.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_that_was_given_up_and_is_asked_for_again_waits_for_the_batch_under_way() {
    let purger = Scripted::gated();
    let purge = built(purge::Settings::default(), &purger);
    purge.start().unwrap();
    purger.until_asked(1).await;
    for _ in 0..3 {
        let closed = timeout(HOUR, purge.close()).await;
        assert!(closed.is_err(), "the batch is still under way");
    }
    purger.gate.add_permits(1);
    purge.close().await;
    purge.close().await;
    assert_eq!(Arc::strong_count(&purger.gate), 2, "the test's and the purge's: the loop has ended");
}

/// Rules: O-474.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_and_closing_from_many_tasks_leaves_one_loop_or_none() {
    for _ in 0..50 {
        let purger = Scripted::new(&[]);
        let purge = Arc::new(built(purge::Settings::default(), &purger));
        let starts: Vec<_> = (0..4)
            .flat_map(|_| {
                let (starting, closing) = (purge.clone(), purge.clone());
                [
                    tokio::spawn(async move { drop(starting.start()) }),
                    tokio::spawn(async move { closing.close().await }),
                ]
            })
            .collect();
        for task in starts {
            task.await.unwrap();
        }
        assert!(purge.start().is_err(), "closed is closed");
        assert!(purger.asked() <= 1, "one loop, which looked once before its hour of rest");
        // Nothing runs any more: nobody but us holds the purger.
        drop(purge);
        assert_eq!(Arc::strong_count(&purger.gate), 1);
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-008, O-560.
    async fn in_every_delivering_mode_old_done_and_dead_rows_go_and_others_stay(shop) {
        shop.insert(&["done", "dead", "new", "retry", "young"].map(order)).await;
        let old = "'2020-01-01 00:00:00.000000'";
        for (id, status, done_at) in [("done", DONE, old), ("dead", DEAD, "null"), ("retry", RETRY, "null"), ("new", NEW, "null")] {
            // Due in the far future, so that nobody delivers them meanwhile.
            let far = "available_at = '2999-01-01 00:00:00.000000'";
            shop.set(id, &format!("status = {status}, created_at = {old}, done_at = {done_at}, {far}")).await;
        }
        settle_done(&shop, "young").await;
        let settings = purge::Settings::default().interval(Duration::from_millis(5)).batch_size(1);
        let outbox = shop.outbox().purge(settings).start().await.unwrap();
        eventually("the old rows to go", async || shop.rows().await == 3).await;
        outbox.close().await.unwrap();
        for id in ["new", "retry", "young"] {
            assert!(shop.find(id).await.is_some(), "{id}");
        }
        assert_eq!(outbox.metrics().purge.total(), 2);
    }

    /// Rules: O-475.
    async fn what_is_old_is_judged_anew_in_each_cycle(shop) {
        shop.insert(&[order("1")]).await;
        settle_done(&shop, "1").await;
        let settings = purge::Settings::default().retention(Duration::from_millis(500));
        let purger = StorePurger::of_ended(shop.store.clone());
        let purge = settings.build(shop.connections.clone(), purger, metrics()).unwrap();
        assert_eq!(purge.run_once().await.unwrap(), 0);
        eventually("the row to grow old", async || purge.run_once().await.unwrap() == 1).await;
    }

    async fn an_outbox_purges_when_it_is_asked_to(shop) {
        shop.insert(&[order("1")]).await;
        let long_ago = "'2020-01-01 00:00:00.000000'";
        let ended = format!("update outbox_event set status = 1, created_at = {long_ago}, done_at = {long_ago}");
        shop.run(&ended).await;
        let without = shop.outbox().start().await.unwrap();
        assert_eq!(without.purge().await.unwrap(), 0);
        without.close().await.unwrap();
        assert_eq!(shop.rows().await, 1);
        let purger = StorePurger::of_ended(shop.store.clone());
        let with = shop.outbox().purger(purger).start().await.unwrap();
        eventually("the row to go", async || {
            with.purge().await.unwrap();
            shop.rows().await == 0
        })
        .await;
        with.close().await.unwrap();
    }
}
