//! The log of the daemon: for programs, too, and never a line for each event of a flood.

use serde_json::Value;

use crate::support::Place;

const SETTINGS: &str = "\
outbox:
  name: orders
  database: {url: 'sqlite:orders.db'}
  poller: {interval-ms: 50}
  handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

fn lines(log: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    log.lines().map(read).collect()
}

#[tokio::test]
async fn each_line_is_a_json_object_where_that_is_asked_for() {
    let place = Place::with(SETTINGS);
    let daemon = place.serve_with(&["--log-format", "json"]);
    place.orders().await.insert("o-1").await;
    daemon.wait_for(|| daemon.log().contains("o-1").then_some(()));
    let lines = lines(&daemon.end("-TERM").with(0).complained);
    let handled = lines.iter().find(|line| line["fields"]["event_id"] == "o-1").unwrap();
    assert_eq!((&handled["level"], &handled["message"]), (&"INFO".into(), &"event".into()));
    assert_eq!(handled["target"], "backstop::handlers::log");
    assert_eq!(handled["fields"]["payload_bytes"], 14, "numbers stay numbers");
    let time = handled["time"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.contains('T'), "{time}");

    let place = place.variable("BACKSTOP_LOG_FORMAT", "json");
    self::lines(&place.serve().end("-TERM").with(0).complained);
    place.run(&["check", "--log-format", "xml"]).with(2);
}

#[tokio::test]
async fn a_flood_of_one_failure_is_a_line_and_a_count() {
    let place = Place::with(SETTINGS);
    let daemon = place.serve();
    let orders = place.orders().await;
    for number in 0..150 {
        orders.insert_typed(&format!("x-{number}"), "Unheard").await;
    }
    orders.insert("o-1").await;
    orders.insert("o-2").await;
    for number in 0..150 {
        orders.until(&format!("x-{number}"), 3).await;
    }
    daemon.until_handled(2);
    let log = daemon.end("-TERM").with(0).complained;
    let told =
        log.lines().filter(|line| line.contains("an event is dead") && line.contains("event_id")).count();
    assert!((1..20).contains(&told), "{told} lines:\n{log}");
    let left_out: usize = log
        .lines()
        .filter(|line| line.contains("left out") && line.contains("an event is dead"))
        .filter_map(|line| line.split("count=").nth(1)?.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(told + left_out, 150, "{log}");
}
