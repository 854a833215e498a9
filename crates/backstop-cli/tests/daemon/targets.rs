//! Where webhooks go, on the operator's page: whether a target is called, and why its events wait.

use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;

use crate::receiver::Receiver;
use crate::support::Place;

fn settings(url: &str) -> String {
    with_handlers(&[handler("[OrderPlaced, OrderPaid]", url)])
}

fn handler(event_type: &str, url: &str) -> String {
    format!(
        "    - aggregate-type: Order
      event-type: {event_type}
      http: {{url: '{url}', allowed-networks: 127.0.0.0/8}}
"
    )
}

fn with_handlers(handlers: &[String]) -> String {
    format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
{}server: {{address: '127.0.0.1:0'}}
",
        handlers.concat()
    )
}

/// Enough for the breaker to see that the target is unavailable.
async fn fill(place: &Place) {
    let orders = place.orders().await;
    for number in 0..8 {
        orders.insert(&format!("o-{number}")).await;
    }
}

#[tokio::test]
async fn a_target_that_is_away_says_that_its_events_wait_and_why() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let overloaded = Receiver::answering(503);
    for (url, why) in [(format!("http://{closed}/T0KEN"), "cannot connect"), (overloaded.url(), "503")] {
        let place = Place::with(&settings(&url));
        let daemon = place.serve();
        let shown = daemon.component("webhook", |_| true);
        let origin = url.rsplit_once('/').unwrap().0;
        assert_eq!(shown["name"], format!("orders: OrderPlaced, OrderPaid (Order) → {origin}"));
        assert_eq!(shown["health"]["status"], "up");

        fill(&place).await;
        let shown = daemon.component("webhook", |shown| shown["health"]["status"] == "degraded");
        let told = shown["health"]["why"].as_str().unwrap();
        assert!(told.starts_with("its events wait: ") && told.contains(why), "{told}");
        assert!(!shown.to_string().contains("T0KEN"), "a path may be a secret");
        let (_, metrics) = daemon.get("/metrics", "");
        let gauge = format!(r#"target_available{{kind="webhook",name="{origin}",component="orders"}} 0"#);
        assert!(metrics.contains(&gauge), "{metrics}");
        let waits = |outbox: &Value| outbox["routes"][1]["waiting"]["events"] == 8;
        let routes = daemon.component("outbox", waits)["routes"].clone();
        let placed = &routes[1];
        assert_eq!(
            (&placed["name"], &placed["paused"]["state"]),
            (&"Order/OrderPlaced".into(), &"held".into())
        );
        assert!(placed["paused"]["why"].as_str().unwrap().contains(why), "{placed}");
        assert!(placed["paused"]["since"].as_str().unwrap().ends_with('Z'), "{placed}");
        // The daemon itself is well, and nobody should restart it.
        let (status, health) = daemon.get("/health", "");
        assert!(status == 200 && health.contains("DEGRADED"), "{health}");
        assert_eq!(place.orders().await.row("o-0").await, (0, 0), "NEW, and no attempt counted");
        daemon.end("-TERM").with(0);
    }
}

#[tokio::test]
async fn two_targets_on_one_host_have_metrics_of_their_own() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let orders = handler("OrderPlaced", &format!("http://{closed}/orders"));
    let paid = handler("OrderPaid", &format!("http://{closed}/paid"));
    let place = Place::with(&with_handlers(&[orders, paid]));
    let daemon = place.serve();
    fill(&place).await;
    daemon.component("webhook", |shown| shown["health"]["status"] == "degraded");
    let (_, metrics) = daemon.get("/metrics", "");
    for (number, available) in [("", 0), (r#",number="2""#, 1)] {
        let labels = format!(r#"kind="webhook",name="http://{closed}",component="orders"{number}"#);
        assert!(metrics.contains(&format!("target_available{{{labels}}} {available}")), "{metrics}");
    }
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn a_target_that_is_gone_is_shown_as_disabled() {
    let receiver = Receiver::answering(410);
    let place = Place::with(&settings(&receiver.url()));
    let daemon = place.serve();
    fill(&place).await;
    let shown = daemon.component("webhook", |shown| shown["health"]["status"] == "degraded");
    assert!(shown["health"]["why"].as_str().unwrap().starts_with("disabled"), "{shown}");
    daemon.end("-TERM").with(0);
}

/// What the alerts and the board speak of, as the daemon shows it.
#[tokio::test]
async fn every_gauge_and_counter_of_the_alerts_is_scraped_from_a_daemon() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = with_handlers(&[handler("OrderPlaced", &format!("http://{closed}/"))]);
    let place = Place::with(&format!(
        "{settings}dlq: {{directory: letters, create: true}}\nqueue: {{database: {{url: 'sqlite:orders.db'}}}}\n"
    ));
    let daemon = place.serve();
    daemon.wait_for(|| daemon.get("/metrics", "").1.contains("outbox_route_waiting").then_some(()));
    let (_, metrics) = daemon.get("/metrics", "");
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for file in ["prometheus/backstop-alerts.yml", "grafana/backstop.json"] {
        let text = std::fs::read_to_string(packaging.join(file)).unwrap();
        let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let ours = names
            .filter(|name| ["outbox_", "queue_", "target_", "dlq_"].iter().any(|it| name.starts_with(it)));
        // A histogram is shown once it has something to show.
        for name in ours.filter(|name| !name.ends_with("_bucket")) {
            assert!(metrics.contains(&format!("\n{name}{{")), "{name} of {file} is not in\n{metrics}");
        }
    }
    daemon.end("-TERM").with(0);
}
