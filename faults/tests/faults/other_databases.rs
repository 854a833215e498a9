//! Killed nodes on the other databases: several on MariaDB, and one after another on a SQLite file.

use std::time::Duration;

use backstop_testkit::{eventually_within, servers};

use crate::support::ledger::{Ledger, Row};
use crate::support::node::{Settings, now};
use crate::support::turn::Turn;
use crate::support::{EVENTS, PATIENCE, SLACK};

const WAITING: &str = "select count(*) from outbox_event where status in (0, 2)";
const DONE: &str = "select count(*) from outbox_event where status = 1";
const ROWS: &str = "select event_id, status, payload, claim_seq from outbox_event";
const LEFT: &str = "select event_id from outbox_event where status in (0, 2) and locked_by = 'dying'";

/// The promises of the claims on MariaDB: what a killed node had written or claimed is taken over within the
/// claims' time-out, whether the claims were born or taken.
#[tokio::test]
async fn a_node_killed_on_mariadb_leaves_nothing_behind() {
    let Some(database) = servers::mysql().await else { return };
    let _turn = Turn::beside().await;
    let (pool, folder) = (database.pool().await, servers::directory());
    let count = async |sql: &'static str| -> usize {
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
        usize::try_from(count).unwrap()
    };
    let node = |name| Settings::new(name, &database.url(), folder.path().to_owned()).start();
    let mut dying = node("dying").await;
    let mut other = node("other").await;
    dying.append(EVENTS).await;
    eventually_within(PATIENCE, "a fifth that is done", async || count(DONE).await >= EVENTS / 5).await;

    let settings = dying.settings.clone();
    let killed_at = dying.kill().await;
    let left: Vec<String> = sqlx::query_scalar(LEFT).fetch_all(&pool).await.unwrap();
    let waits = "a table in which nothing waits";
    eventually_within(PATIENCE, waits, async || count(WAITING).await == 0).await;
    let missing = EVENTS.saturating_sub(count("select count(*) from outbox_event").await);
    other.append(missing).await;
    assert_eq!(other.appended().await, missing);
    eventually_within(PATIENCE, waits, async || count(WAITING).await == 0).await;
    other.close().await.unwrap();
    let rows: Vec<Row> = sqlx::query_as(ROWS).fetch_all(&pool).await.unwrap();
    let ledger = Ledger::read(rows, Vec::new(), folder.path());
    ledger.assert_conserved(EVENTS);
    ledger.assert_duplicates_within(settings.handled_in_flight());
    ledger.assert_taken_over(&left, killed_at, settings.claim_timeout + settings.interval + SLACK);
}

/// "What was not finished stays in the table for the next start": a process that has its SQLite file to itself is
/// killed three times, and started again on the same file; the system has let go of its lock.
#[tokio::test]
async fn a_node_killed_on_sqlite_goes_on_where_it_was_when_it_is_started_again() {
    const LIVES: usize = 4;
    let _turn = Turn::beside().await;
    let (database, folder) = (servers::sqlite(), servers::directory());
    let node = |name: &str| {
        Settings::new(name, &database.url(), folder.path().to_owned()).flag("--mode", "single").start()
    };
    let mut killed = Vec::new();
    let mut handled_in_flight = 0;
    for life in 1..LIVES {
        let mut node = node(&format!("life-{life}")).await;
        node.append(EVENTS).await;
        let pool = database.pool().await;
        let enough = i64::try_from(EVENTS / LIVES * life).unwrap();
        eventually_within(PATIENCE, "a part that is done", async || {
            // Asked with patience: the node has the file most of the time.
            sqlx::query_scalar::<_, i64>(DONE).fetch_one(&pool).await.is_ok_and(|done| done >= enough)
        })
        .await;
        handled_in_flight += node.settings.handled_in_flight();
        node.kill().await;
        let left = "select event_id from outbox_event where status in (0, 2)";
        let left: Vec<String> = sqlx::query_scalar(left).fetch_all(&pool).await.unwrap();
        pool.close().await;
        killed.push((left, now()));
    }

    let mut last = node("last-life").await;
    let pool = database.pool().await;
    let rows: i64 = sqlx::query_scalar("select count(*) from outbox_event").fetch_one(&pool).await.unwrap();
    last.append(EVENTS.saturating_sub(usize::try_from(rows).unwrap())).await;
    last.appended().await;
    eventually_within(PATIENCE, "a table in which nothing waits", async || {
        sqlx::query_scalar::<_, i64>(WAITING).fetch_one(&pool).await.is_ok_and(|waiting| waiting == 0)
    })
    .await;
    last.close().await.unwrap();
    let rows: Vec<Row> = sqlx::query_as(ROWS).fetch_all(&pool).await.unwrap();
    let ledger = Ledger::read(rows, Vec::new(), folder.path());
    ledger.assert_conserved(EVENTS);
    ledger.assert_duplicates_within(handled_in_flight);
    for (_, at) in killed {
        // There is no claim to wait for: the first look of the next process finds what is left.
        ledger.assert_resumed(at, Duration::from_secs(5) + SLACK);
    }
}
