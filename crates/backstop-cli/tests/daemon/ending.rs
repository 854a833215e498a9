//! Ends of every kind: what was committed is delivered by the next start.

use backstop_testkit::servers::postgres;
use sqlx::{Executor, PgPool};

use crate::support::{Place, ids_in};

const SETTINGS: &str = "\
outbox:
  name: orders
  mode: multi-node
  database: {url: env:ORDERS_URL}
  claim-locking: {enabled: true, lock-timeout: 1s}
  poller: {interval-ms: 100}
  handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

/// Rows as another program inserts them, with plain SQL, in one transaction.
async fn insert(pool: &PgPool, prefix: &str, count: u32) {
    let sql = format!(
        "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, \
         created_at) select '{prefix}-' || n, 'OrderPlaced', 'Order', n::text, '{{}}', 0, now(), now() \
         from generate_series(1, {count}) n"
    );
    pool.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
}

async fn unfinished(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from outbox_event where status <> 1").fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn killed_in_the_middle_it_delivers_the_rest_and_what_came_meanwhile_after_its_restart() {
    let Some(database) = postgres().await else { return };
    let place = Place::with(SETTINGS).variable("ORDERS_URL", database.url());
    let daemon = place.serve();
    let pool = database.pool().await;
    insert(&pool, "before", 2_000).await;
    daemon.until_handled(10);
    let killed = daemon.end("-KILL");
    assert!(!killed.status.success());
    insert(&pool, "meanwhile", 100).await;

    let again = place.serve();
    let mut looks = 0;
    while unfinished(&pool).await > 0 {
        looks += 1;
        assert!(looks < 600, "{} rows are left\n{}", unfinished(&pool).await, again.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    pool.close().await;
    let ended = again.end("-TERM").with(0);
    let mut handled = ids_in(&killed.complained);
    handled.extend(ids_in(&ended.complained));
    handled.sort();
    handled.dedup();
    assert_eq!(handled.len(), 2_100, "every row was handled, some perhaps twice");
}

#[tokio::test]
async fn sigterm_under_load_loses_nothing_and_repeats_nothing() {
    let Some(database) = postgres().await else { return };
    let place = Place::with(SETTINGS).variable("ORDERS_URL", database.url());
    let daemon = place.serve();
    let pool = database.pool().await;
    insert(&pool, "row", 3_000).await;
    daemon.until_handled(50);
    let first = ids_in(&daemon.end("-TERM").with(0).complained);

    let again = place.serve();
    let rest = again.until_handled(3_000 - first.len());
    let mut handled = [first, rest].concat();
    again.end("-TERM").with(0);
    assert_eq!(unfinished(&pool).await, 0);
    pool.close().await;
    let all = handled.len();
    handled.sort();
    handled.dedup();
    assert_eq!((all, handled.len()), (3_000, 3_000));
}
