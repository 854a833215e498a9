//! Two daemons on one table.

use std::collections::BTreeSet;
use std::time::Duration;

use backstop_testkit::servers::postgres;
use sqlx::Executor;

use crate::support::{Place, ids_in};

const SETTINGS: &str = "\
outbox:
  name: orders
  mode: multi-node
  database: {url: env:ORDERS_URL}
  claim-locking: {enabled: true}
  dispatcher: {cold-queue-capacity: 20}
  poller: {interval-ms: 20, batch-size: 10}
  handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

/// Rules: O-062, O-068, O-069.
#[tokio::test]
async fn two_daemons_share_a_table_and_each_event_is_handled_once() {
    let Some(database) = postgres().await else { return };
    let place = Place::with(SETTINGS).variable("ORDERS_URL", database.url());
    place.run(&["migrate"]).with(0);
    let (one, two) = (place.serve(), place.serve());
    let pool = database.pool().await;
    let insert = "insert into outbox_event (event_id, event_type, aggregate_type, payload, status, available_at, \
                  created_at) select 'row-' || n, 'OrderPlaced', 'Order', '{}', 0, now(), now() \
                  from generate_series(1, 2000) n";
    pool.execute(insert).await.unwrap();
    let (mut looks, left) = (0, "select count(*) from outbox_event where status <> 1");
    while sqlx::query_scalar::<_, i64>(left).fetch_one(&pool).await.unwrap() > 0 {
        looks += 1;
        assert!(looks < 600, "{}\n{}", one.log(), two.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pool.close().await;
    let logs = [one, two].map(|daemon| ids_in(&daemon.end("-TERM").with(0).complained));
    let handled: Vec<_> = logs.iter().flatten().collect();
    let different: BTreeSet<_> = handled.iter().collect();
    assert_eq!((handled.len(), different.len()), (2_000, 2_000));
    assert!(logs.iter().all(|log| !log.is_empty()), "both took part: {:?}", logs.map(|log| log.len()));
}
