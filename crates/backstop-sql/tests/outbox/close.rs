//! Closing: the purge, then the poller, then the dispatcher, each whatever became of the one before.

use std::sync::Arc;
use std::time::Duration;

use backstop_sql::connection::Connection;
use backstop_sql::outbox::{Purger, purge};
use backstop_sql::store::At;
use backstop_sql::{BoxFuture, Error, Outbox, Supported};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use tokio::sync::{Notify, Semaphore};

use crate::harness::{DONE, NEW, order, shop};
use crate::watched::Watched;

/// A purger that waits at a gate, or panics.
#[derive(Clone)]
struct Stuck {
    began: Arc<Notify>,
    gate: Arc<Semaphore>,
    panics: bool,
}

impl Stuck {
    fn new(panics: bool) -> Self {
        Self { began: Arc::default(), gate: Arc::new(Semaphore::new(0)), panics }
    }
}

impl Purger for Stuck {
    fn purge<'a>(
        &'a self,
        _: &'a mut dyn Connection,
        _: At,
        _: Duration,
        _: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.began.notify_one();
            assert!(!self.panics, "on purpose");
            self.gate.acquire().await.unwrap().forget();
            Ok(0)
        })
    }
}

/// Begins to close, and lets it go as far as it gets.
async fn begin_to_close<DB: Supported>(outbox: &Outbox<DB>) -> tokio::task::JoinHandle<Result<(), Error>> {
    let closing = outbox.clone();
    let task = tokio::spawn(async move { closing.close().await });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished());
    task
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-563.
    async fn the_purge_ends_first_while_the_poller_still_works(shop) {
        let (purger, recorder) = (Stuck::new(false), Recording::new());
        let builder = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).purger(purger.clone());
        let outbox = builder.start().await.unwrap();
        purger.began.notified().await;
        let closing = begin_to_close(&outbox).await;
        // The batch under way holds the closing up, and nothing else has stopped yet.
        shop.insert(&[order("1")]).await;
        outbox.nudge();
        recorder.until(1).await;
        purger.gate.add_permits(1);
        closing.await.unwrap().unwrap();
        assert_eq!(shop.row("1").await.status, DONE);
    }

    /// Rules: O-564.
    async fn the_poller_ends_before_the_dispatcher_so_what_it_found_last_is_delivered(shop) {
        let (store, recorder) = (Watched::around(shop.store.clone()), Recording::new());
        store.hold_up();
        shop.insert(&[order("found last")]).await;
        let builder = shop.outbox().store(store.clone()).on("Order", "OrderPlaced", recorder.clone());
        let outbox = builder.start().await.unwrap();
        store.first_asked().await;
        let closing = begin_to_close(&outbox).await;
        // The look under way holds the closing up; the dispatcher still takes what comes.
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("hot")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(outbox.metrics().enqueue_hot.total(), 1);
        store.let_go(1);
        closing.await.unwrap().unwrap();
        assert_eq!((shop.row("found last").await.status, shop.row("hot").await.status), (DONE, DONE));
        // And no look came after it.
        outbox.nudge();
        tokio::task::yield_now().await;
        assert_eq!(store.asked().len(), 1);
    }

    /// Rules: O-565.
    async fn the_dispatcher_drains_what_is_queued_within_its_time(shop) {
        let gate = Slow::gated();
        let builder = shop.outbox().worker_count(1).on("Order", "OrderPlaced", gate.clone());
        let outbox = builder.drain_timeout(Duration::from_secs(60)).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all((0..5).map(|n| order(&n.to_string())).collect()).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        let closing = begin_to_close(&outbox).await;
        gate.open();
        closing.await.unwrap().unwrap();
        assert_eq!(shop.count(DONE).await, 5);

        // What is not done in time is told, and stays for the next start.
        let gate = Slow::gated();
        let builder = shop.outbox().worker_count(1).on("Order", "OrderPlaced", gate.clone());
        let outbox = builder.drain_timeout(Duration::from_millis(20)).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all(vec![order("at work"), order("queued")]).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        assert!(matches!(outbox.close().await, Err(Error::Drain(_))));
        assert_eq!((shop.count(NEW).await, gate.in_progress()), (2, 0));
        let recorder = Recording::new();
        let next = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(2).await;
        next.close().await.unwrap();
        assert_eq!(shop.count(NEW).await, 0);
    }

    /// Rules: O-563.
    async fn a_step_that_fails_does_not_keep_the_others_from_running(shop) {
        let (purger, gate) = (Stuck::new(true), Slow::gated());
        let settings = purge::Settings::default();
        let builder =
            shop.outbox().purge(settings).purger(purger.clone()).on("Order", "OrderPlaced", gate.clone());
        let outbox = builder.drain_timeout(Duration::from_millis(20)).start().await.unwrap();
        purger.began.notified().await;
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("1")).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        // The purge broke and the handlers do not finish: the poller is closed and the table free all the same.
        assert!(matches!(outbox.close().await, Err(Error::Drain(_))));
        let recorder = Recording::new();
        let next = shop.outbox().on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(1).await;
        next.close().await.unwrap();
        eventually("the old handler to be gone", async || gate.in_progress() == 0).await;
    }
}
