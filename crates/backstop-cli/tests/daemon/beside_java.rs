//! A daemon on the table of the Java framework, whose moments are two hours ahead of UTC.

use std::time::Duration;

use backstop_testkit::servers::{mysql, postgres};
use sqlx::AssertSqlSafe;

use crate::support::Place;

const SETTINGS: &str = "\
outbox:
  name: orders
  mode: multi-node
  database: {url: env:ORDERS_URL, time-zone: '+02:00', beside-java: true}
  claim-locking: {enabled: true}
  poller: {interval-ms: 50, skip-recent: 10m}
  handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

/// A row that is due, one that is young, one that is scheduled and one that is locked.
const ROWS: &str = "\
set @there = utc_timestamp(6) + interval 2 hour;
insert into outbox_event (event_id, event_type, aggregate_type, payload, headers, status, attempts, available_at,
  created_at, locked_by, locked_at) values
  ('due', 'OrderPlaced', 'Order', '{}', null, 0, 0, @there - interval 1 hour, @there - interval 1 hour, null, null),
  ('young', 'OrderPlaced', 'Order', '{}', '{}', 0, 0, @there, @there, null, null),
  ('later', 'OrderPlaced', 'Order', '{}', '{}', 0, 0, @there + interval 30 minute, @there - interval 1 hour, null, null),
  ('locked', 'OrderPlaced', 'Order', '{}', '{}', 2, 1, @there - interval 1 hour, @there - interval 1 hour,
   'java-1', @there)";

#[tokio::test]
async fn the_daemon_delivers_from_the_java_frameworks_table_in_its_time_zone() {
    let Some(database) = mysql().await else { return };
    let pool = database.pool().await;
    let table = backstop_testkit::java::table("JSON", "TINYINT", "DATETIME(6)");
    sqlx::raw_sql(AssertSqlSafe(format!("{table}; {ROWS}"))).execute(&pool).await.unwrap();
    let place = Place::with(SETTINGS).variable("ORDERS_URL", database.url());
    place.run(&["migrate"]).with(0);
    let daemon = place.serve();
    assert_eq!(daemon.until_handled(1), ["due"]);
    tokio::time::sleep(Duration::from_millis(300)).await; // several looks at the table
    assert_eq!(daemon.end("-TERM").with(0).complained.matches("event_id").count(), 1);
    let written = "select count(*) from outbox_event where event_id = 'due' and status = 1 and locked_by is null \
                   and abs(timestampdiff(second, done_at, utc_timestamp(6) + interval 2 hour)) < 60";
    assert_eq!(sqlx::query_scalar::<_, i64>(written).fetch_one(&pool).await.unwrap(), 1);
    let left = "select group_concat(event_id order by event_id) from outbox_event where status in (0, 2)";
    assert_eq!(sqlx::query_scalar::<_, String>(left).fetch_one(&pool).await.unwrap(), "later,locked,young");
    pool.close().await;
}

#[tokio::test]
async fn a_zone_for_columns_that_carry_theirs_is_refused_by_name() {
    let Some(database) = postgres().await else { return };
    let place = Place::with(SETTINGS).variable("ORDERS_URL", database.url());
    let complained = place.run(&["migrate"]).with(1).complained;
    assert!(
        complained.contains("`database.time-zone`) is for columns that carry no time zone"),
        "{complained}"
    );
}
