//! A row that is inserted with plain SQL becomes a record in Kafka.

use backstop_testkit::{eventually_within, servers};

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
    let orders = place.orders().await;
    orders.insert("o-1").await;
    eventually_within(PATIENCE, "the row is done", async || orders.row("o-1").await == (1, 0)).await;

    let found = kafka.records(&topic).await;
    assert_eq!(found.len(), 1, "{}", daemon.log());
    assert_eq!((found[0].key.as_deref(), found[0].value.as_str()), (Some("42"), r#"{"total":1.10}"#));
    assert_eq!(found[0].headers["ce_id"], "o-1");
    assert_eq!(found[0].headers["ce_source"], "/outbox/orders");
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn brokers_that_are_away_hold_up_neither_start_nor_end_and_the_page_says_why_events_wait() {
    let settings = "outbox:
  name: orders
  database: {url: 'sqlite:orders.db'}
  poller: {interval-ms: 50}
  dispatcher: {worker-count: 8}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      kafka: {bootstrap-servers: '127.0.0.1:9', topic: orders, timeout: 300ms}
server: {address: '127.0.0.1:0'}
";
    let place = Place::with(settings);
    let daemon = place.serve();
    let shown = daemon.component("topic", |_| true);
    assert_eq!(shown["name"], "orders: OrderPlaced (Order) → orders");
    assert_eq!(shown["health"]["status"], "up");

    let orders = place.orders().await;
    for number in 0..8 {
        orders.insert(&format!("o-{number}")).await;
    }
    let shown = daemon.component("topic", |shown| shown["health"]["status"] == "degraded");
    let told = shown["health"]["why"].as_str().unwrap();
    assert!(told.contains("did not confirm a record within 300ms") && told.contains("127.0.0.1:9"), "{told}");
    assert_eq!(orders.row("o-0").await, (0, 0), "NEW, and no attempt counted");
    daemon.end("-TERM").with(0);
}
