//! A row that is inserted with plain SQL becomes a record in Kafka.

use std::time::Duration;

use backstop_testkit::{eventually_within, servers};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::support::{PATIENCE, Place};

#[tokio::test]
async fn a_row_that_any_program_inserts_becomes_a_record() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let settings = format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      kafka:
        bootstrap-servers: {}
        topic: {topic}
        compression: lz4
server: {{address: '127.0.0.1:0'}}
",
        kafka.bootstrap()
    );
    let place = Place::with(&settings);
    place.run(&["check"]).with(0);
    let daemon = place.serve();
    let options = SqliteConnectOptions::new().filename(place.file("orders.db"));
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    connection
        .execute(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, \
             available_at, created_at) values ('o-1', 'OrderPlaced', 'Order', '42', '{\"total\":1.10}', 0, \
             strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now'))",
        )
        .await
        .unwrap();
    let status = "select status from outbox_event where event_id = 'o-1'";
    let done = async || sqlx::query_scalar::<_, i64>(status).fetch_one(&mut connection).await.unwrap() == 1;
    eventually_within(PATIENCE, "the row is done", done).await;

    let found = kafka.records(&topic).await;
    assert_eq!(found.len(), 1, "{}", daemon.log());
    assert_eq!((found[0].key.as_deref(), found[0].value.as_str()), (Some("42"), r#"{"total":1.10}"#));
    assert_eq!(found[0].headers["ce_id"], "o-1");
    assert_eq!(found[0].headers["ce_source"], "/outbox/orders");
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn brokers_that_are_away_hold_up_neither_the_start_nor_the_end() {
    let settings = "outbox:
  database: {url: 'sqlite:orders.db'}
  handlers:
    - {event-type: OrderPlaced, kafka: {bootstrap-servers: '127.0.0.1:9', topic: orders, timeout: 300ms}}
server: {address: '127.0.0.1:0'}
";
    let place = Place::with(settings);
    let daemon = place.serve();
    tokio::time::sleep(Duration::from_millis(200)).await;
    daemon.end("-TERM").with(0);
}
