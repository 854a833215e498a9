//! `backstop migrate`: tables that are created, and rows that any language can insert.

use std::time::{Duration, Instant};

use backstop_testkit::eventually;
use backstop_testkit::servers::{mysql, postgres};
use sqlx::{Executor, Row};

use crate::support::Place;

/// An outbox that looks at its table once a minute, unless it is woken.
const DROWSY: &str = "\
outbox:
  name: orders
  database: {url: env:ORDERS_URL}
  poller: {interval-ms: 1m}
  handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

#[tokio::test]
async fn a_row_inserted_by_plain_sql_wakes_the_daemon_when_it_is_committed() {
    let Some(database) = postgres().await else { return };
    let place = Place::with(DROWSY).variable("ORDERS_URL", database.url());
    let said = place.run(&["migrate", "--triggers"]).with(0).said;
    let expected = "orders: table outbox_event is up to date\n\
                    orders: rows inserted by plain SQL wake the daemon when they are committed\n";
    assert_eq!(said, expected);
    assert_eq!(place.run(&["migrate", "--triggers"]).with(0).said, expected, "it may be run again");

    let daemon = place.serve();
    let pool = database.pool().await;
    let listens =
        "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'";
    let listening = async || sqlx::query_scalar::<_, i64>(listens).fetch_one(&pool).await.unwrap() == 1;
    eventually("listening", listening).await;
    // Only what a row must have: the rest has defaults.
    let mut transaction = pool.begin().await.unwrap();
    let insert = "insert into outbox_event (event_id, event_type, aggregate_type, payload) \
                  values ('a', 'OrderPlaced', 'Order', '{}'), ('b', 'OrderPlaced', 'Order', '{}')";
    transaction.execute(insert).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(daemon.handled().is_empty(), "nothing is delivered before the commit");
    transaction.commit().await.unwrap();
    let committed = Instant::now();
    daemon.until_handled(2);
    assert!(committed.elapsed() < Duration::from_secs(20), "no interval passed: {:?}", committed.elapsed());
    daemon.end("-TERM").with(0);
    pool.close().await;
}

#[tokio::test]
async fn defaults_that_are_there_already_are_left_alone() {
    let Some(database) = postgres().await else { return };
    let place = Place::with(DROWSY).variable("ORDERS_URL", database.url());
    place.run(&["migrate"]).with(0);
    let pool = database.pool().await;
    let own = "alter table outbox_event alter column available_at set default '2030-01-01T00:00:00Z'";
    pool.execute(own).await.unwrap();
    place.run(&["migrate", "--triggers"]).with(0);
    pool.execute("insert into outbox_event (event_id, event_type, payload) values ('a', 'T', '{}')")
        .await
        .unwrap();
    let row =
        "select status, attempts, available_at::text, created_at <= clock_timestamp() from outbox_event";
    let row = pool.fetch_one(row).await.unwrap();
    assert_eq!((row.get::<i16, _>(0), row.get::<i32, _>(1)), (0, 0));
    assert!(row.get::<String, _>(2).starts_with("2030-01-01"));
    assert!(row.get::<bool, _>(3));
    pool.close().await;
}

#[tokio::test]
async fn where_there_are_no_wake_ups_it_is_said_and_polling_finds_the_rows() {
    let Some(database) = mysql().await else { return };
    let place = Place::with(&DROWSY.replace("1m", "50")).variable("ORDERS_URL", database.url());
    let said = place.run(&["migrate", "--triggers"]).with(0).said;
    assert!(
        said.ends_with("orders: MySQL has no wake-ups; polling finds rows inserted by plain SQL\n"),
        "{said}"
    );
    place.run(&["migrate", "--triggers"]).with(0);
    let daemon = place.serve();
    let pool = database.pool().await;
    let insert = "insert into outbox_event (event_id, event_type, aggregate_type, payload) \
                  values ('a', 'OrderPlaced', 'Order', '{}')";
    pool.execute(insert).await.unwrap();
    assert_eq!(daemon.until_handled(1), ["a"]);
    daemon.end("-TERM").with(0);
    pool.close().await;
}

#[test]
fn one_database_that_is_away_keeps_no_other_table_back() {
    let settings = "\
outbox:
  - {name: gone, mode: writer-only, database: {url: 'sqlite:nowhere/gone.db'}}
  - {name: here, mode: writer-only, database: {url: 'sqlite:here.db'}}
";
    let place = Place::with(settings);
    let ended = place.run(&["migrate", "--triggers"]).with(1);
    let here = "here: table outbox_event is up to date\n\
                here: SQLite has no wake-ups; polling finds rows inserted by plain SQL\n";
    assert_eq!(ended.said, here);
    assert!(ended.complained.starts_with("error: outbox.gone (backstop.yaml:2:5) cannot be migrated: "));
    assert!(ended.complained.ends_with("error: 1 of 2 outboxes were not migrated\n"), "{}", ended.complained);
}
