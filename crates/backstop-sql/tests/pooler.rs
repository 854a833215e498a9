//! Behind a pooler that shares connections between transactions: all of it works, without a prepared statement.

use std::collections::HashSet;
use std::time::Duration;

use backstop_core::inspect::Health;
use backstop_core::{Event, Failure};
use backstop_sql::outbox::purge;
use backstop_sql::store::{DeadFilter, SqlStore, Store as _};
use backstop_sql::{Error, Outbox, TableName};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};
use backstop_testkit::servers::{PostgresDatabase, postgres};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_millis(50);
const MINUTES: Duration = Duration::from_secs(300);

fn order(n: usize) -> Event {
    Event::of("OrderPlaced").aggregate("Order", n.to_string()).json(&n).unwrap()
}

/// A pool of many clients of a pooler that has five connections to the server.
async fn pooled() -> Option<(PostgresDatabase, PgPool)> {
    let database = postgres().await?;
    let url = database.pooled_url().await?;
    let pool = PgPoolOptions::new().max_connections(12).connect(&url).await.unwrap();
    Some((database, pool))
}

async fn commit(outbox: &Outbox<Postgres>, numbers: impl Iterator<Item = usize>) -> Result<(), Error> {
    let mut tx = outbox.begin().await?;
    tx.append_all(numbers.map(order).collect()).await?;
    tx.commit().await
}

#[tokio::test]
async fn two_nodes_and_many_writers_share_five_connections_and_each_event_is_delivered_once() {
    let Some((_database, pool)) = pooled().await else { return };
    let recorder = Recording::new();
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let node = Outbox::multi_node(pool.clone())
            .behind_pooler(true)
            .claim_locking(MINUTES)
            .interval(SOON)
            .on("Order", "OrderPlaced", recorder.clone())
            .start();
        nodes.push(node.await.unwrap());
    }
    let writer = Outbox::writer_only(pool.clone()).behind_pooler(true).start().await.unwrap();
    let mut writing = JoinSet::new();
    for task in 0..10 {
        let outbox = [&nodes[0], &nodes[1], &writer][task % 3].clone();
        writing.spawn(async move {
            for n in 0..10 {
                commit(&outbox, (0..3).map(|k| task * 100 + n * 3 + k)).await.unwrap();
            }
        });
    }
    writing.join_all().await;
    let events = recorder.until(300).await;
    assert_eq!(events.iter().map(Event::id).collect::<HashSet<_>>().len(), 300);
    for outbox in nodes.iter().chain([&writer]) {
        outbox.close().await.unwrap();
    }
    assert_eq!(
        (recorder.events().len(), writer.store().census(1_000).await.unwrap().done.events),
        (300, 300)
    );
}

#[tokio::test]
async fn what_was_handled_is_written_through_it_although_the_application_keeps_every_connection_of_its_pool()
{
    let Some((_database, pool)) = pooled().await else { return };
    let options = (*pool.connect_options()).clone();
    let small = PgPoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
    let gate = Slow::gated();
    let outbox = Outbox::multi_node(small.clone())
        .behind_pooler(true)
        .claim_locking(MINUTES)
        .interval(SOON)
        .on("Order", "OrderPlaced", gate.clone())
        .start();
    let outbox = outbox.await.unwrap();
    commit(&outbox, 0..5).await.unwrap();
    gate.until_began(1).await;
    let all = [small.acquire().await.unwrap(), small.acquire().await.unwrap()];
    gate.open();
    let table = SqlStore::on(pool, TableName::default()).behind_pooler();
    eventually("all to be done", async || table.census(10).await.unwrap().done.events == 5).await;
    drop(all);
    outbox.close().await.unwrap();
    assert_eq!(gate.began(), 5, "each once");
}

#[tokio::test]
async fn retries_deaths_replays_and_the_purge_work_through_it() {
    let Some((_database, pool)) = pooled().await else { return };
    let failing = Failing::times(2).with(|| Failure::transient("no", "not yet"));
    let outbox = Outbox::single_node(pool.clone())
        .behind_pooler(true)
        .guard(false)
        .max_attempts(2)
        .retry_policy(|_: u32, _: backstop_core::retry::Jitter| Duration::ZERO)
        .interval(SOON)
        .purge(purge::Settings::default().retention(Duration::from_millis(1)).interval(MINUTES))
        .on("Order", "OrderPlaced", failing)
        .start()
        .await
        .unwrap();
    commit(&outbox, 0..10).await.unwrap();
    eventually("ten deaths", async || outbox.dead().count(&DeadFilter::default()).await.unwrap() == 10).await;
    assert_eq!(outbox.dead().query(&DeadFilter::default(), 100).await.unwrap().len(), 10);
    assert_eq!(outbox.dead().replay_all(DeadFilter::default()).run().await.unwrap(), 10);
    let done = async || outbox.store().census(100).await.unwrap().done.events == 10;
    eventually("ten done", done).await;
    tokio::time::sleep(Duration::from_millis(5)).await; // older than the retention
    assert_eq!(outbox.purge().await.unwrap(), 10);
    assert_eq!(outbox.report().await.health, Health::Up);
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_rolls_back_leaves_nothing_and_one_that_commits_runs_your_statements_too() {
    let Some((_database, pool)) = pooled().await else { return };
    let outbox = Outbox::writer_only(pool.clone()).behind_pooler(true).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    sqlx::query("create table stock (item text)").persistent(false).execute(&mut *tx).await.unwrap();
    tx.append(order(1)).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    sqlx::query("create table stock (item text)").persistent(false).execute(&mut *tx).await.unwrap();
    tx.append(order(2)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(outbox.store().census(10).await.unwrap().waiting.events, 1);
    outbox.close().await.unwrap();
}

#[tokio::test]
async fn the_modes_for_a_single_node_cannot_keep_their_guard_behind_it_and_say_so() {
    let Some((_database, pool)) = pooled().await else { return };
    let single = Outbox::single_node(pool.clone()).behind_pooler(true).start().await.unwrap_err();
    let ordered = Outbox::ordered(pool.clone()).behind_pooler(true).start().await.unwrap_err();
    for refused in [single, ordered] {
        let Error::Settings { faults } = &refused else { panic!("{refused}") };
        assert_eq!(faults.iter().map(|fault| fault.setting).collect::<Vec<_>>(), ["guard"]);
        assert!(refused.to_string().contains("multi-node"), "{refused}");
    }
}

/// A connection that is prepared on one session and used on another gets such errors; which of them depends on who was
/// there before.
#[tokio::test]
async fn a_pooler_that_nobody_spoke_of_is_told_as_such() {
    let Some((_database, pool)) = pooled().await else { return };
    let mut errors = Vec::new();
    // Statements that are prepared on whichever session is free: with several at once one of them meets a stranger.
    for _ in 0..50 {
        let outboxes = (0..8).map(|_| Outbox::writer_only(pool.clone()).start());
        let started = futures_util::future::join_all(outboxes).await;
        errors.extend(started.into_iter().filter_map(Result::err));
        if !errors.is_empty() {
            break;
        }
    }
    let error = errors.first().expect("somebody meets a stranger's session");
    assert!(matches!(error, Error::Pooler), "{error}");
    assert!(error.to_string().contains("behind-pooler: true"), "{error}");
}
