//! Outages from beginning to end, with every write counted by the database itself; and through kills and flapping.

use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_sql::Outbox;
use backstop_sql::outbox::{Builder, Mode};
use backstop_testkit::{eventually, eventually_within};
use sqlx::Pool;
use tokio::runtime::Runtime;

use crate::harness::{DEAD, DONE, Database, NEVER, Shop, order, shop};
use crate::held::{Line, append, ids, orders, until_held};

/// How long a thousand events may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

impl<DB: Database> Shop<DB> {
    /// Waits until this many are done, none of them after an attempt that failed.
    async fn until_done(&self, events: i64) {
        let done = "select count(*) from outbox_event where status = 1 and attempts = 0";
        eventually_within(PATIENCE, "everything to arrive", async || self.number(done).await == events).await;
    }
}

/// Waits until what a handler needs was asked for again, this many times.
async fn until_probed(line: &Line, times: u64) {
    let before = line.calls();
    eventually("probes", async || line.calls() >= before + times).await;
}

fn number(events: usize) -> i64 {
    i64::try_from(events).unwrap()
}

fn assert_once(line: &Line, events: usize) {
    let counts = line.counts();
    assert_eq!(counts.len(), events);
    assert!(counts.values().all(|times| *times == 1), "{counts:?}");
}

/// A process that delivers until it is killed: its tasks end wherever they are, and nothing is given back.
struct Process<DB: Database> {
    runtime: Runtime,
    outbox: Outbox<DB>,
}

impl<DB: Database> Process<DB> {
    async fn start<M: Mode>(
        shop: &Shop<DB>,
        build: impl FnOnce(Pool<DB>) -> Builder<DB, M> + Send + 'static,
    ) -> Self
    where
        Builder<DB, M>: Send,
    {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (options, server) = (shop.pool.options().clone(), (*shop.pool.connect_options()).clone());
        let outbox = runtime.spawn(async move {
            let pool = options.connect_with(server).await.unwrap();
            build(pool).start().await.unwrap()
        });
        let outbox = outbox.await.unwrap();
        Self { runtime, outbox }
    }

    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// The next process, as soon as the database has let go of the lock of the last one.
async fn start_again<DB: Database, M: Mode>(build: impl Fn() -> Builder<DB, M>) -> Outbox<DB> {
    for _ in 0..200 {
        match build().start().await {
            Ok(outbox) => return outbox,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    build().start().await.unwrap()
}

/// Appends one event after another while the line is unplugged and plugged in every second, and returns how many.
async fn flap<DB: Database>(outbox: &Outbox<DB>, line: &Line, prefix: &str) -> usize {
    let flapping = {
        let line = line.clone();
        tokio::spawn(async move {
            for plugged in [false, true, false, true] {
                line.plug(plugged);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
    };
    let mut appended = 0;
    while !flapping.is_finished() {
        append(outbox, vec![order(&format!("{prefix}{appended}"))]).await;
        appended += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    appended
}

database_suite! {
    over shop

    async fn a_thousand_events_wait_out_an_outage_without_a_write_and_arrive_once(shop) {
        let (line, all) = (Line::unplugged(), ids("o", 1_000));
        shop.note_updates("event_id").await;
        shop.insert(&orders(&all[..600])).await;
        let outbox = shop.outbox().on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        until_held(&outbox).await;
        append(&outbox, orders(&all[600..])).await;
        until_probed(&line, 3).await;
        assert_eq!(shop.noted().await, Vec::<String>::new(), "rows that were written");
        assert_eq!(shop.untouched().await, 1_000);

        line.plug(true);
        shop.until_done(1_000).await;
        assert_once(&line, 1_000);
        assert_eq!(shop.noted().await.len(), 1_000, "each was written once, when it was done");
        outbox.close().await.unwrap();
    }

    async fn where_rows_are_claimed_an_outage_writes_no_more_than_its_probes(shop) {
        let (line, all) = (Line::unplugged(), ids("o", 1_000));
        shop.note_updates("event_id").await;
        shop.insert(&orders(&all[..600])).await;
        let outbox = shop.node().on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        until_held(&outbox).await;
        append(&outbox, orders(&all[600..])).await;
        let claimed = "select count(*) from outbox_event where locked_by is not null";
        eventually("all claims to be given back", async || shop.number(claimed).await == 0).await;
        let (written, calls) = (shop.noted().await.len() as u64, line.calls());
        until_probed(&line, 3).await;
        let written = shop.noted().await.len() as u64 - written;
        let probes = line.calls() - calls;
        assert!(written <= 2 * (probes + 1), "{probes} probes, each claimed and given back, and {written} writes");

        line.plug(true);
        shop.until_done(1_000).await;
        assert_once(&line, 1_000);
        outbox.close().await.unwrap();
    }

    async fn in_strict_order_a_thousand_events_keep_their_order_through_an_outage(shop) {
        let (line, all) = (Line::default(), ids("o", 1_000));
        shop.note_updates("event_id").await;
        let builder = Outbox::ordered(shop.pool.clone()).interval(Duration::from_millis(20));
        let outbox = builder.on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        append(&outbox, orders(&all[..300])).await;
        eventually_within(PATIENCE, "some to arrive", async || line.taken().len() >= 100).await;
        line.plug(false);
        append(&outbox, orders(&all[300..])).await;
        until_held(&outbox).await;
        until_probed(&line, 3).await;
        let taken = line.taken().len();
        eventually("those to be recorded", async || shop.noted().await.len() == taken).await;
        assert_eq!(shop.untouched().await, 1_000 - number(taken));

        line.plug(true);
        shop.until_done(1_000).await;
        assert_eq!(line.taken(), all, "none overtook another");
        assert_eq!(shop.noted().await.len(), 1_000, "each was written once, when it was done");
        outbox.close().await.unwrap();
    }

    async fn a_process_that_is_killed_in_an_outage_leaves_everything_to_the_next(shop) {
        let (line, all) = (Line::unplugged(), ids("o", 400));
        shop.insert(&orders(&all[..200])).await;
        let process = {
            let line = line.clone();
            Process::start(&shop, |pool| Outbox::single_node(pool).interval(NEVER).on("Order", "OrderPlaced", line))
        };
        let process = process.await;
        until_held(&process.outbox).await;
        append(&process.outbox, orders(&all[200..])).await;
        until_probed(&line, 1).await;
        process.kill();
        assert_eq!(shop.untouched().await, 400);

        // What was held survives nothing: it is found out anew, and then is over.
        let outbox = start_again(|| shop.outbox().on("Order", "OrderPlaced", line.clone())).await;
        until_held(&outbox).await;
        line.plug(true);
        shop.until_done(400).await;
        assert_once(&line, 400);
        outbox.close().await.unwrap();
    }

    async fn a_node_that_is_killed_in_an_outage_leaves_everything_to_the_others(shop) {
        let (line, all) = (Line::unplugged(), ids("o", 400));
        let timeout = Duration::from_secs(2);
        shop.insert(&orders(&all[..200])).await;
        let process = {
            let line = line.clone();
            Process::start(&shop, move |pool| {
                Outbox::multi_node(pool).claim_locking(timeout).interval(NEVER).on("Order", "OrderPlaced", line)
            })
        };
        let process = process.await;
        until_held(&process.outbox).await;
        append(&process.outbox, orders(&all[200..])).await;
        until_probed(&line, 1).await;
        process.kill();

        line.plug(true);
        let node = Outbox::multi_node(shop.pool.clone()).claim_locking(timeout);
        let node = node.interval(Duration::from_millis(100)).on("Order", "OrderPlaced", line.clone());
        let outbox = node.start().await.unwrap();
        shop.until_done(400).await;
        assert_once(&line, 400);
        outbox.close().await.unwrap();
    }

    async fn a_target_that_flaps_every_second_gets_everything_once(shop) {
        let (line, soon) = (Line::default(), |_: u32, _: Jitter| Duration::from_millis(10));
        let interval = Duration::from_millis(20);
        let single = shop.outbox().interval(interval).retry_policy(soon);
        let outbox = single.on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        let mut appended = flap(&outbox, &line, "single").await;
        eventually_within(PATIENCE, "everything to arrive", async || shop.count(DONE).await == number(appended)).await;
        outbox.close().await.unwrap();

        let multi = shop.node().interval(interval).retry_policy(soon);
        let outbox = multi.on("Order", "OrderPlaced", line.clone()).start().await.unwrap();
        appended += flap(&outbox, &line, "multi").await;
        eventually_within(PATIENCE, "everything to arrive", async || shop.count(DONE).await == number(appended)).await;
        outbox.close().await.unwrap();
        assert_once(&line, appended);
        assert_eq!(shop.count(DEAD).await, 0);
    }
}
