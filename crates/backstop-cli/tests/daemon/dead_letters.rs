//! Dead-letter directories of the daemon: what dies is found there, shown on the page, and sent again.

use crate::receiver::Receiver;
use crate::support::Place;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A daemon's settings with a directory behind a webhook.
fn settings(url: &str, dlq: &str) -> String {
    format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  dlq: orders
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      http: {{url: '{url}', secrets: env:HOOK_SECRET, allowed-networks: 127.0.0.0/8}}
dlq: {dlq}
server: {{address: '127.0.0.1:0'}}
"
    )
}

#[tokio::test]
async fn what_a_target_refuses_is_in_the_directory_and_on_the_page_and_is_sent_again() {
    let receiver = Receiver::answering(422);
    let dlq = "{name: orders, directory: dlq, create: true, details: true}";
    let place = Place::with(&settings(&receiver.url(), dlq)).variable("HOOK_SECRET", SECRET);
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    let refused = receiver.next().unwrap_or_else(|| panic!("{}", daemon.log()));
    orders.until("o-1", 3).await;

    let listed = place.run(&["dlq", "list", "dlq", "--json"]).with(0);
    let entry: serde_json::Value = serde_json::from_str(&listed.said).unwrap();
    assert_eq!((&entry["event"]["id"], &entry["event"]["source"]), (&"o-1".into(), &"/outbox/orders".into()));
    assert!(entry["error"].as_str().unwrap().starts_with("http-422"), "{entry}");
    assert_eq!(entry["backstop"]["attempts"], 1);
    assert!(receiver.url().starts_with(entry["backstop"]["target"].as_str().unwrap()), "{entry}");

    let shown = daemon.component("dead letters", |shown| shown["places"][0]["count"]["events"] == 1);
    assert_eq!((&shown["name"], &shown["health"]["status"]), (&"orders".into(), &"up".into()));
    assert_eq!((&shown["troubled"][0]["id"], &shown["troubled"][0]["attempts"]), (&"o-1".into(), &1.into()));
    assert!(daemon.get("/metrics", "").1.contains(r#"dlq_stored{dlq="orders"} 1"#));

    receiver.answer(200);
    let url = receiver.url();
    let to = ["dlq", "redrive", "dlq", "--to", &url, "--secret", "env:HOOK_SECRET"];
    let sent = place.run(&[&to[..], &["--allow-network", "127.0.0.0/8"]].concat()).with(0);
    assert!(sent.complained.contains("1 delivered, 0 failed"), "{}", sent.complained);
    let again = receiver.next().unwrap();
    assert_eq!(again.header("webhook-id"), refused.header("webhook-id"), "a receiver knows it again");
    assert_eq!(again.body, refused.body);
    assert_eq!(std::fs::read_dir(place.file("dlq")).unwrap().count(), 0);
    assert_eq!(orders.row("o-1").await.0, 1, "its row is done as well");
    daemon.component("dead letters", |shown| shown["places"][0]["count"]["events"] == 0);
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn a_handler_may_name_a_directory_of_its_own_and_events_without_a_handler_go_to_the_outboxs() {
    let receiver = Receiver::answering(422);
    let place = Place::with(&format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  dlq: all
  handlers:
    - aggregate-type: Order
      event-type: OrderPaid
      dlq: paid
      http: {{url: '{}', allowed-networks: 127.0.0.0/8}}
dlq:
  - {{name: all, directory: all, create: true}}
  - {{name: paid, directory: paid, create: true, rolling: {{enabled: true, idle: 10ms}}}}
server: {{address: '127.0.0.1:0'}}
",
        receiver.url()
    ));
    let daemon = place.serve();
    let orders = place.orders().await;
    // Nobody handles OrderPlaced.
    orders.insert("o-1").await;
    orders.insert_typed("o-2", "OrderPaid").await;
    for id in ["o-1", "o-2"] {
        orders.until(id, 3).await;
    }
    for (directory, id, error) in [("all", "o-1", "unroutable"), ("paid", "o-2", "http-422")] {
        let listed = place.run(&["dlq", "list", directory]).with(0).said;
        assert!(listed.contains(id) && listed.contains(error), "{directory}: {listed}");
        assert_eq!(listed.lines().count(), 1, "{directory}: {listed}");
        assert!(daemon.get("/metrics", "").1.contains(&format!(r#"dlq_stored{{dlq="{directory}"}} 1"#)));
    }
    let shown = daemon.component("dead letters", |shown| shown["name"] == "paid");
    assert!(shown["places"][0]["meaning"].as_str().unwrap().starts_with("Files with"), "{shown}");
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn a_directory_that_vanishes_leaves_the_row_dead_and_degrades_the_page() {
    let receiver = Receiver::answering(422);
    let dlq = "{name: orders, directory: dlq, create: true}";
    let place = Place::with(&settings(&receiver.url(), dlq)).variable("HOOK_SECRET", SECRET);
    let daemon = place.serve();
    std::fs::remove_dir(place.file("dlq")).unwrap();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    orders.until("o-1", 3).await;
    let shown = daemon.component("dead letters", |shown| shown["health"]["status"] == "degraded");
    assert!(shown["health"]["why"].as_str().unwrap().contains("cannot be read"), "{shown}");
    let (status, health) = daemon.get("/health", "");
    assert!(status == 200 && health.contains("DEGRADED"), "{health}");
    assert!(daemon.get("/metrics", "").1.contains(r#"outbox_letter_failed{outbox="orders"} 1"#));
    let ended = daemon.end("-TERM").with(0);
    assert!(ended.complained.contains("the dead event is in the table only"), "{}", ended.complained);
}

#[test]
fn a_directory_that_cannot_be_used_keeps_the_daemon_from_starting() {
    let place = Place::with(&settings("http://127.0.0.1:9/", "{name: orders, directory: nowhere}"))
        .variable("HOOK_SECRET", SECRET);
    let ended = place.run(&["serve"]).with(1);
    for told in ["dlq (backstop.yaml:10:1) cannot be used", "there is no directory nowhere"] {
        assert!(ended.complained.contains(told), "{told}: {}", ended.complained);
    }
    assert!(!place.file("orders.db").exists(), "no outbox was started");
    let checked = place.run(&["check"]).with(0);
    assert!(checked.said.contains("dlq orders: nowhere"), "{}", checked.said);
}
