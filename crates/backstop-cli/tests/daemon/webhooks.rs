//! A row that is inserted with plain SQL becomes a webhook.

use crate::receiver::Receiver;
use crate::support::Place;

#[tokio::test]
async fn a_row_that_any_program_inserts_becomes_a_signed_cloud_event() {
    let receiver = Receiver::answering(204);
    let settings = format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      http:
        url: {}
        format: binary
        secrets: env:HOOK_SECRET
        allowed-networks: 127.0.0.0/8
server: {{address: '127.0.0.1:0'}}
",
        receiver.url()
    );
    let place = Place::with(&settings).variable("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;

    let request = receiver.next().unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(request.head.starts_with("post /hooks http/1.1"), "{}", request.head);
    for (header, value) in [("ce-id", "o-1"), ("ce-source", "/outbox/orders"), ("ce-subject", "42")] {
        assert_eq!(request.header(header), Some(value), "{}", request.head);
    }
    assert!(request.header("webhook-signature").unwrap().starts_with("v1,"), "{}", request.head);
    assert_eq!(request.body, r#"{"total":1.10}"#);
    orders.until("o-1", 1).await;
    let ended = daemon.end("-TERM").with(0);
    assert!(!ended.complained.contains("MfKQ9r8G"), "no secret is logged");
}

#[tokio::test]
async fn headers_source_and_breaker_of_the_settings_file_are_kept() {
    let receiver = Receiver::answering(503);
    let settings = format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      http:
        url: {}
        name: billing
        source: /shop
        headers:
          authorization: env:HOOK_TOKEN
          x-tenant: acme
        allowed-networks: 127.0.0.1
        pause: 10ms
        breaker: {{consecutive-failures: 1, wait-duration-in-open-state-ms: 1h}}
server: {{address: '127.0.0.1:0'}}
",
        receiver.url()
    );
    let place = Place::with(&settings).variable("HOOK_TOKEN", "Bearer T0ken");
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;

    let request = receiver.next().unwrap_or_else(|| panic!("{}", daemon.log()));
    assert_eq!(request.header("authorization"), Some("bearer t0ken"), "{}", request.head);
    assert_eq!(request.header("x-tenant"), Some("acme"), "{}", request.head);
    assert!(request.body.contains(r#""source":"/shop""#), "{}", request.body);
    // One failure opens the breaker; by default it takes five.
    let told = daemon
        .wait_for(|| daemon.log().lines().find(|line| line.contains("circuit open")).map(str::to_owned));
    assert!(told.contains("billing"), "{told}");
    let ended = daemon.end("-TERM").with(0);
    assert!(!ended.complained.contains("T0ken"), "no header's value is logged");
}
