//! A database that is away when the daemon starts is waited for; what no waiting changes ends the start.

use backstop_testkit::proxy::Proxy;
use backstop_testkit::servers::{mysql, postgres};

use crate::support::Place;

const SETTINGS: &str = "\
outbox:
  - name: orders
    mode: multi-node
    database: {url: env:ORDERS_URL}
    claim-locking: {enabled: true, lock-timeout: 10s}
    handlers: [{event-type: Tick, log: }]
  - name: audit
    database: {url: 'sqlite:orders.db'}
    poller: {interval-ms: 50}
    handlers: [{aggregate-type: Order, event-type: OrderPlaced, log: }]
server: {address: '127.0.0.1:0'}
";

// The proxy runs beside a test that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_at_the_start_is_waited_for_and_holds_up_no_other() {
    let Some(database) = postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    proxy.refuse();
    let place = Place::with(SETTINGS).variable("ORDERS_URL", proxy.through(&database.url()));
    let daemon = place.serve_soon();
    daemon.wait_for(|| daemon.log().contains("waits for its database").then_some(()));
    assert_eq!(daemon.get("/live", "").0, 200);
    let (status, answer) = daemon.get("/ready", "");
    assert!(status == 503 && answer.contains("it is being started"), "{answer}");
    let (status, health) = daemon.get("/health", "");
    assert!(status == 503 && health.contains("it cannot be started yet: "), "{health}");
    let (_, page) = daemon.get("/", "");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    daemon.wait_for(|| daemon.log().contains("started: single-node on SQLite").then_some(()));
    let orders = place.orders().await;
    orders.insert("o-1").await;
    daemon.until_handled(1);

    proxy.restore();
    daemon.wait_for(|| (daemon.get("/ready", "").0 == 200).then_some(()));
    assert!(
        daemon.log().contains("outbox.orders (backstop.yaml:2:5) waits for its database"),
        "{}",
        daemon.log()
    );
    // Away again, it is not ready, and lives on.
    proxy.refuse();
    proxy.cut();
    let (_, answer) = daemon.wait_for(|| Some(daemon.get("/ready", "")).filter(|(status, _)| *status == 503));
    assert!(answer.contains("outbox orders: "), "{answer}");
    assert_eq!(daemon.get("/live", "").0, 200);
    proxy.restore();
    daemon.wait_for(|| (daemon.get("/ready", "").0 == 200).then_some(()));
    daemon.end("-TERM").with(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_waits_for_its_database_ends_when_it_is_asked_to() {
    let Some(database) = postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    proxy.refuse();
    let place = Place::with(SETTINGS).variable("ORDERS_URL", proxy.through(&database.url()));
    let daemon = place.serve_soon();
    daemon.wait_for(|| daemon.log().contains("waits for its database").then_some(()));
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn what_no_waiting_changes_ends_the_start_at_once() {
    let missing = "\
outbox: {database: {url: 'sqlite:orders.db', migrate: false}, handlers: [{event-type: Tick, log: }]}
server: {address: '127.0.0.1:0'}
";
    let place = Place::with(missing);
    std::fs::write(place.file("orders.db"), "").unwrap();
    let told = place.run(&["serve"]).with(1).complained;
    assert!(told.contains("there is no table outbox_event"), "{told}");

    let Some(database) = mysql().await else { return };
    let (scheme, rest) = database.url().split_once("://").map(|(s, r)| (s.to_owned(), r.to_owned())).unwrap();
    let server = rest.rsplit_once('@').unwrap().1;
    let place = Place::with(SETTINGS).variable("ORDERS_URL", format!("{scheme}://nobody:wrong@{server}"));
    let told = place.run(&["serve"]).with(1).complained;
    assert!(told.contains("refuses this user and password"), "{told}");
    assert!(!told.contains("waits for its database"), "{told}");
}
