//! Databases that fail under a worker: tables that vanish, results that are refused, connections that are cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::Event;
use backstop_core::inspect::Health;
use backstop_sql::Queue;
use backstop_sql::queue::Worker;
use backstop_testkit::{eventually, eventually_within};

use crate::harness::*;

const PATIENCE: Duration = Duration::from_secs(60);

database_suite! {
    over empty

    /// Rules: Q-086.
    async fn a_poll_that_fails_does_not_end_the_worker(it) {
        let seen = Seen::default();
        let queue = it.queue().worker(seen.worker().idle_wait(Duration::from_millis(100))).start().await.unwrap();
        it.run("alter table events rename to events_away").await;
        eventually("a worker that says so", async || {
            matches!(queue.report().await.health, Health::Down(_))
        }).await;
        assert!(queue.poll().await.is_err(), "who polls by hand is told");
        it.run("alter table events_away rename to events").await;
        queue.publish(event(1)).await.unwrap();
        eventually_within(PATIENCE, "the event handled", async || it.rows().await.1 == 1).await;
        eventually_within(PATIENCE, "health", async || queue.report().await.health == Health::Up).await;
        queue.close().await.unwrap();
    }

    /// Rules: Q-085.
    async fn a_success_that_cannot_be_recorded_is_recorded_later_and_never_as_a_failure(it) {
        let seen = Seen::default();
        let queue = it.queue().worker(seen.worker()).start().await.unwrap();
        it.run("alter table event_log rename to event_log_away").await;
        let id = queue.publish(event(1)).await.unwrap();
        eventually("the event handled", async || seen.all().len() == 1).await;
        eventually("a worker that says so", async || match queue.report().await.health {
            Health::Up => false,
            Health::Degraded(_) | Health::Down(_) => true,
        }).await;
        it.run("alter table event_log_away rename to event_log").await;
        eventually_within(PATIENCE, "the event in the log", async || it.rows().await.1 == 1).await;
        assert_eq!(it.logged(id).await.unwrap().status, "COMPLETED");
        assert_eq!(seen.all().len(), 1, "and it is not handled again");
        queue.close().await.unwrap();
    }

    async fn one_result_that_is_refused_holds_back_no_other(it) {
        let seen = Seen::default();
        let producer = it.started().await;
        let ids = producer.publish_all((0..20).map(event).collect()).await.unwrap();
        // The log has that number already.
        let now = it.sql_moment(0);
        let taken = ids[7];
        it.run(&format!("insert into event_log (id, payload, status, attempts, created_at, updated_at) values ({taken}, '{{}}', 'FAILED', 9, {now}, {now})")).await;
        let queue = it.queue().abandoned_timeout(Duration::from_secs(1)).worker(seen.worker()).start().await.unwrap();
        it.until_logged(20).await;
        eventually("a worker that says so", async || {
            matches!(queue.report().await.health, Health::Degraded(why) if why.contains("cannot be recorded"))
        }).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(seen.all().len(), 20, "it stays in hand, and is not handled again");
        it.run(&format!("delete from event_log where id = {taken}")).await;
        eventually_within(PATIENCE, "the last result", async || it.rows().await == (0, 20)).await;
        assert_eq!(it.logged(taken).await.unwrap().status, "COMPLETED");
        queue.close().await.unwrap();
    }

    async fn a_worker_that_lost_its_claim_before_it_began_leaves_the_event_to_others(it) {
        let (begun, block) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (told, waits, seen) = (begun.clone(), block.clone(), Seen::default());
        let noted = seen.clone();
        let worker = Worker::new().concurrency(1).on("Numbered", move |delivery: backstop_core::Delivery| {
            noted.note(&delivery);
            told.notify_one();
            let waits = waits.clone();
            async move { waits.notified().await }
        });
        let queue = it.queue().abandoned_timeout(Duration::from_millis(600)).worker(worker).start().await.unwrap();
        let ids = queue.publish_all((0..2).map(event).collect()).await.unwrap();
        begun.notified().await;
        eventually("both in hand", async || queue.in_hand() == 2).await;
        // Another worker has taken the second over.
        it.set_row(ids[1], "claim_seq = claim_seq + 1, attempts = attempts + 1").await;
        eventually("a renewal that tells", async || queue.metrics().claims_lost.total() == 0 && {
            tokio::time::sleep(Duration::from_millis(500)).await;
            true
        }).await;
        block.notify_one();
        eventually("the event let go", async || queue.metrics().claims_lost.total() == 1).await;
        assert_eq!(seen.numbers(), [0]);
        assert_eq!(it.queued(ids[1]).await.unwrap().status, "PROCESSING");
        queue.close().await.unwrap();
    }

    async fn dropping_the_queue_ends_its_worker(it) {
        let running = Arc::new(AtomicBool::new(false));
        let told = running.clone();
        let worker = Worker::new().on("Numbered", move |_: Event| {
            told.store(true, Ordering::SeqCst);
            async {}
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        drop(queue);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let producer = it.started().await;
        producer.publish(event(1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!running.load(Ordering::SeqCst));
        assert!(producer.poll().await.unwrap().is_some());
    }
}

/// A server that ends every session, again and again, while a worker runs: nothing is lost, nothing ends twice.
async fn sessions_are_cut<DB: Database>(cut: &str) {
    let Some(it) = DB::make().await else { return };
    let seen = Seen::default();
    let queue: Queue<DB> =
        it.queue().abandoned_timeout(Duration::from_secs(2)).worker(seen.worker()).start().await.unwrap();
    let mut published = 0;
    for round in 0..10 {
        while published < (round + 1) * 100 {
            if queue.publish(event(published)).await.is_ok() {
                published += 1;
            }
        }
        let _ = it.try_run(cut).await;
    }
    eventually_within(PATIENCE, "all ended", async || {
        let left = it.try_run("select 1").await.is_ok();
        left && it.number("select count(*) from events").await == 0
    })
    .await;
    let numbers: std::collections::BTreeSet<_> = seen.numbers().into_iter().collect();
    assert_eq!(numbers.len(), 1_000, "each was handled");
    // A publication whose answer was lost was tried again, so there may be more rows than numbers.
    assert!(it.number("select count(*) from event_log where status = 'COMPLETED'").await >= 1_000);
    assert_eq!(it.number("select count(*) from event_log where status <> 'COMPLETED'").await, 0);
    queue.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_the_server_ends_lose_nothing_on_postgres() {
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid()";
    sessions_are_cut::<sqlx::Postgres>(cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_the_queue_works_as_without() {
    let Some(database) = backstop_testkit::servers::postgres().await else { return };
    let Some(url) = database.pooled_url().await else { return };
    let pool = backstop_sql::postgres::open_sized(&url, 4).await.unwrap();
    let seen = Seen::default();
    let worker = seen.worker().idle_wait(Duration::from_millis(200));
    let queue = Queue::new(pool).behind_pooler(true).worker(worker).start().await.unwrap();
    let id = queue.publish_all((0..50).map(event).collect()).await.unwrap()[0];
    eventually("all handled", async || seen.all().len() == 50).await;
    eventually("all ended", async || queue.operations().counts().await.unwrap().completed.events == 50).await;
    assert!(queue.operations().find(id).await.unwrap().is_some());
    queue.close().await.unwrap();
}
