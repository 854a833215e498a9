//! Faults of a queue's workers, on real servers with real processes: whoever is killed or frozen loses nothing, every event is
//! finalized once, and one that kills its worker harms no other.
//!
//! The nodes write down what they handled in files that survive them. The judge compares these with the tables as plain SQL sees
//! them, and shares no code with the queue.

mod judge;
mod nodes;

use std::time::Duration;

use backstop_core::Event;
use backstop_sql::store::DatabaseKind;
use backstop_sql::{Queue, Supported};
use backstop_testkit::{eventually_within, servers};
use tokio::time::Instant;

use judge::{Judge, Tables};
use nodes::Nodes;

/// How many events the crowd of workers handles; `BACKSTOP_QUEUE_EVENTS` names another number.
const EVENTS: u32 = 8_000;

const PATIENCE: Duration = Duration::from_secs(180);

fn event(number: u32) -> Event {
    Event::of("Numbered").json(&number).unwrap()
}

fn events() -> u32 {
    std::env::var("BACKSTOP_QUEUE_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(EVENTS)
}

/// Four processes with workers, of which one after the other is killed or frozen for longer than its claims last, while events
/// are published, some in transactions that stay open for a while, some in transactions that are rolled back.
async fn a_crowd<DB: Supported>(
    kind: DatabaseKind,
    pool: sqlx::Pool<DB>,
    url: &str,
    count: usize,
    total: u32,
) {
    let queue = Queue::new(pool.clone()).start().await.unwrap();
    let tables = Tables::new(kind, DB::connections(pool.clone()));
    let folder = servers::directory();
    let mut nodes =
        Nodes::start(url, folder.path(), count, &["--timeout-ms", "2000", "--handler-us", "300"]).await;
    let publishing = tokio::spawn(publish(queue, pool, total, 200));
    // They come to an end, so that the events can.
    let faults = Duration::from_millis(2 * u64::from(total));
    let began = Instant::now();
    let mut turn = 0;
    while !publishing.is_finished() || tables.waiting().await > 0 {
        assert!(began.elapsed() < faults + PATIENCE, "not all events ended: {}", tables.told().await);
        tokio::time::sleep(Duration::from_millis(400)).await;
        match turn % 4 {
            0 => nodes.kill_and_restart().await,
            1 => nodes.freeze(Duration::from_millis(2_600)),
            _ => {}
        }
        turn = if began.elapsed() < faults { turn + 1 } else { 2 };
    }
    let rolled_back = publishing.await.unwrap();
    let struck = nodes.faults();
    nodes.close().await;
    let judge = Judge::of(&tables, folder.path()).await;
    judge.assert_each_ended_once(&(0..total).collect(), &[]);
    judge.assert_never_handled(rolled_back.clone());
    // What a worker had handled and not yet recorded when it was struck: its handlers, and the results that it gathered.
    judge.assert_repeats_within(struck * (8 + 2_000));
}

/// Publishes numbered events, and returns the numbers of those that were rolled back.
async fn publish<DB: Supported>(
    queue: Queue<DB>,
    pool: sqlx::Pool<DB>,
    total: u32,
    batch: u32,
) -> std::ops::Range<u32> {
    let mut published = 0;
    let mut rolled_back = total..total;
    while published < total {
        let numbers = published..(published + batch).min(total);
        let many: Vec<_> = numbers.clone().map(event).collect();
        match (published / batch) % 5 {
            // Committed late, while others publish and take.
            1 => {
                let mut tx = DB::begin(&pool).await.unwrap();
                let held = queue.publish_all_in(&mut *tx, many).await.unwrap();
                tokio::time::sleep(Duration::from_millis(150)).await;
                tx.commit().await.unwrap();
                held.committed();
            }
            2 => {
                let mut tx = DB::begin(&pool).await.unwrap();
                let undone: Vec<_> = (rolled_back.end..rolled_back.end + 20).map(event).collect();
                let held = queue.publish_all_in(&mut *tx, undone).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                tx.rollback().await.unwrap();
                drop(held);
                rolled_back.end += 20;
                queue.publish_all(many).await.unwrap();
            }
            _ => _ = queue.publish_all(many).await.unwrap(),
        }
        published = numbers.end;
    }
    queue.close().await.unwrap();
    rolled_back
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_workers_that_are_killed_and_frozen_ends_every_event_once_on_postgres() {
    let Some(database) = servers::postgres().await else { return };
    let pool = backstop_sql::postgres::open_sized(&database.url(), 4).await.unwrap();
    a_crowd(DatabaseKind::Postgres, pool, &database.url(), 4, events()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_workers_that_are_killed_and_frozen_ends_every_event_once_on_mysql() {
    let Some(database) = servers::mysql().await else { return };
    let pool = backstop_sql::mysql::open_sized(&database.url(), 4).await.unwrap();
    a_crowd(DatabaseKind::Mysql, pool, &database.url(), 4, events()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_workers_that_are_killed_and_frozen_ends_every_event_once_on_sqlite() {
    let database = servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    // Its writers wait for each other, so they are fewer.
    a_crowd(DatabaseKind::Sqlite, pool, &database.url(), 2, events() / 4).await;
}

/// One event that kills its worker, among 500: only its own attempts are used up.
#[tokio::test(flavor = "multi_thread")]
async fn one_event_that_kills_its_worker_fails_and_the_499_others_complete() {
    let Some(database) = servers::postgres().await else { return };
    let pool = backstop_sql::postgres::open_sized(&database.url(), 4).await.unwrap();
    let queue = Queue::new(pool.clone()).start().await.unwrap();
    queue.publish_all((0..500).map(event).collect()).await.unwrap();
    let tables = Tables::new(DatabaseKind::Postgres, <sqlx::Postgres as Supported>::connections(pool));
    let folder = servers::directory();
    let flags = ["--timeout-ms", "700", "--max-attempts", "3", "--crash-on", "250"];
    let mut nodes = Nodes::start(&database.url(), folder.path(), 1, &flags).await;
    eventually_within(PATIENCE, "every event ended", async || {
        nodes.restart_the_dead().await;
        tables.waiting().await == 0
    })
    .await;
    nodes.close().await;
    let judge = Judge::of(&tables, folder.path()).await;
    judge.assert_each_ended_once(&(0..500).collect(), &[250]);
    assert_eq!(judge.attempts_of(250), 3);
    assert!(
        judge.most_attempts_but(250) <= 2,
        "neighbours are taken over once: {}",
        judge.most_attempts_but(250)
    );
    queue.close().await.unwrap();
}

/// After `kill -9` everything is handled again within the time-out and one poll.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_held_is_handled_within_the_timeout_and_one_poll() {
    let Some(database) = servers::postgres().await else { return };
    let pool = backstop_sql::postgres::open_sized(&database.url(), 4).await.unwrap();
    let queue = Queue::new(pool.clone()).start().await.unwrap();
    let tables = Tables::new(DatabaseKind::Postgres, <sqlx::Postgres as Supported>::connections(pool));
    let folder = servers::directory();
    let stuck = Nodes::start(
        &database.url(),
        folder.path(),
        1,
        &["--timeout-ms", "2000", "--handler-us", "60000000"],
    )
    .await;
    queue.publish_all((0..8).map(event).collect()).await.unwrap();
    eventually_within(PATIENCE, "events in its hands", async || tables.processing().await == 8).await;
    let next = Nodes::start(&database.url(), folder.path(), 1, &["--timeout-ms", "2000"]).await;
    let killed_at = Instant::now();
    stuck.kill_all();
    eventually_within(PATIENCE, "every event ended", async || tables.waiting().await == 0).await;
    let took = killed_at.elapsed();
    // The time-out, a renewal that came just before the end, one poll of a second, and time for a busy machine.
    assert!(took < Duration::from_secs(2 + 1 + 5), "{took:?}");
    next.close().await;
    Judge::of(&tables, folder.path()).await.assert_each_ended_once(&(0..8).collect(), &[]);
    queue.close().await.unwrap();
}
