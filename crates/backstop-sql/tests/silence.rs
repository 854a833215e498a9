//! A network that swallows everything: no error ever comes, and delivery goes on when it is over.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::store::SqlStore;
use backstop_sql::{Outbox, TableName};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use backstop_testkit::proxy::Proxy;
use backstop_testkit::servers::postgres;
use sqlx::postgres::PgPoolOptions;

const PATIENCE: Duration = Duration::from_millis(300);

fn order(n: usize) -> Event {
    Event::of("OrderPlaced").aggregate("Order", n.to_string()).json(&n).unwrap()
}

#[tokio::test]
async fn what_was_handled_while_nothing_came_through_is_written_afterwards_and_not_delivered_again() {
    let Some(database) = postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    let pool =
        PgPoolOptions::new().max_connections(3).connect(&proxy.through(&database.url())).await.unwrap();
    let store = SqlStore::on(pool.clone(), TableName::default()).patience(PATIENCE);
    let gate = Slow::gated();
    let recorder = Recording::of(gate.clone());
    let outbox = Outbox::single_node(pool)
        .guard(false) // its lock is a session, which would be swallowed too
        .store(Arc::new(store))
        .interval(Duration::from_millis(50))
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all((0..4).map(order).collect()).await.unwrap();
    tx.commit().await.unwrap();
    gate.until_began(4).await;

    proxy.black_hole();
    gate.open();
    recorder.until_answered(4).await;
    // Several tries are swallowed, each of which would wait for ever.
    tokio::time::sleep(4 * PATIENCE).await;
    proxy.restore();

    let direct = database.pool().await;
    let done = "select count(*) from outbox_event where status = 1";
    eventually("all done", async || {
        sqlx::query_scalar::<_, i64>(done).fetch_one(&direct).await.unwrap() == 4
    })
    .await;
    outbox.close().await.unwrap();
    assert_eq!(recorder.events().len(), 4);
}
