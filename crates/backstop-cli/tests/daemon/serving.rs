//! `backstop serve`: a file becomes outboxes and a page, and what cannot be started leaves nothing behind.

use std::net::TcpListener;

use backstop_testkit::servers::postgres;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::support::{Daemon, Place};

/// One outbox on SQLite, looked through often, with a page on a free port.
const ONE: &str = "\
outbox:
  name: orders
  database: {url: 'sqlite:orders.db'}
  poller: {interval-ms: 50}
  handlers:
    - {aggregate-type: Order, event-type: OrderPlaced, log: }
    - {event-type: Tick, log: }
server: {address: '127.0.0.1:0'}
";

async fn sqlite(place: &Place, file: &str) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(place.file(file))).await.unwrap()
}

/// A row as a program in another language inserts it.
async fn insert(connection: &mut SqliteConnection, id: &str, aggregate_type: Option<&str>, event_type: &str) {
    let moment = "strftime('%Y-%m-%d %H:%M:%f000', 'now')";
    let sql = format!(
        "insert into outbox_event (event_id, event_type, aggregate_type, payload, status, available_at, created_at) \
         values (?, ?, ?, '{{}}', 0, {moment}, {moment})"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id).bind(event_type).bind(aggregate_type);
    query.execute(connection).await.unwrap();
}

fn total(daemon: &Daemon, name: &str) -> u64 {
    let (_, metrics) = daemon.get("/metrics", "");
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    lines.next().unwrap_or_default()
}

/// Rules: O-062.
#[tokio::test]
async fn settings_alone_make_an_outbox_that_delivers_and_a_page_that_shows_it() {
    let place = Place::with(ONE);
    let daemon = place.serve();
    let mut connection = sqlite(&place, "orders.db").await;
    insert(&mut connection, "o-1", Some("Order"), "OrderPlaced").await;
    insert(&mut connection, "t-1", None, "Tick").await;
    insert(&mut connection, "x-1", Some("Order"), "Unheard").await;

    let mut handled = daemon.until_handled(2);
    handled.sort();
    assert_eq!(handled, ["o-1", "t-1"]);
    daemon.wait_for(|| (total(&daemon, r#"outbox_dispatch_success{outbox="orders"}"#) == 2).then_some(()));
    daemon.wait_for(|| (total(&daemon, r#"outbox_dispatch_dead{outbox="orders"}"#) == 1).then_some(()));
    let (status, health) = daemon.get("/health", "");
    assert_eq!(status, 200);
    assert!(health.contains(r#""kind":"outbox","name":"orders","status":"UP""#), "{health}");
    let (_, components) = daemon.get("/api/v1/components", "");
    assert!(components.contains(r#""name":"orders""#) && components.contains("Unheard"), "{components}");
    assert!(!daemon.log().contains("payload="), "no payload is logged");
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn sigterm_and_ctrl_c_end_it_with_zero() {
    for signal in ["-TERM", "-INT"] {
        let place = Place::with(ONE);
        let daemon = place.serve();
        let ended = daemon.end(signal).with(0);
        assert!(ended.said.contains("  outbox orders: single-node on SQLite"), "{}", ended.said);
        // What it held is free again.
        place.serve().end(signal).with(0);
    }
}

/// Rules: O-077.
#[test]
fn without_a_database_nothing_is_wired() {
    let place = Place::with("outbox: {name: orders, handlers: [{event-type: Tick, log: }]}\n");
    let told = place.run(&["serve"]).with(1).complained;
    assert!(
        told.contains("outbox.database.url: is required: without a database there is no outbox"),
        "{told}"
    );
    let files = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(files, 1, "the settings file alone");
}

#[tokio::test]
async fn a_busy_port_is_told_before_anything_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let place = Place::with(&ONE.replace("127.0.0.1:0", &format!("127.0.0.1:{port}")));
    let told = place.run(&["serve"]).with(1).complained;
    assert!(
        told.contains(&format!("server cannot be started: port {port} on 127.0.0.1 is in use")),
        "{told}"
    );
    assert!(!place.file("orders.db").exists(), "no outbox was started");
}

#[tokio::test]
async fn a_start_that_fails_names_its_section_and_leaves_nothing_running() {
    let settings = "\
outbox:
  - name: first
    database: {url: 'sqlite:first.db'}
    handlers: [{event-type: Tick, log: }]
  - name: second
    database: {url: 'sqlite:nowhere/second.db'}
    handlers: [{event-type: Tick, log: }]
server: {address: '127.0.0.1:0'}
";
    let place = Place::with(settings);
    let ended = place.run(&["serve"]).with(1);
    let told = ended.complained.lines().last().unwrap();
    assert!(told.starts_with("error: outbox.second (backstop.yaml:5:5) cannot be started: "), "{told}");
    assert!(told.contains("check that its directory exists"), "{told}");
    assert_eq!(ended.said, "", "it never said that it serves");
    // The first was closed: its lock is free, and it starts by itself.
    std::fs::create_dir(place.file("nowhere")).unwrap();
    place.serve().end("-TERM").with(0);
}

#[tokio::test]
async fn a_second_daemon_for_one_node_is_refused() {
    let place = Place::with(ONE);
    let first = place.serve();
    let told = place.run(&["serve"]).with(1).complained;
    assert!(
        told.contains("outbox (backstop.yaml:1:1) cannot be started: another process delivers from table"),
        "{told}"
    );
    first.end("-TERM").with(0);
}

#[tokio::test]
async fn two_outboxes_of_one_file_are_counted_apart() {
    let Some(database) = postgres().await else { return };
    let settings = "\
outbox:
  - {name: orders, database: {url: env:ORDERS_URL}, handlers: [{event-type: Tick, log: }], poller: {interval-ms: 50}}
  - {name: audit, database: {url: file:audit.url}, handlers: [{event-type: Tick, log: }]}
  - {name: quiet, database: {url: 'sqlite:quiet.db'}, handlers: [{event-type: Tick, log: }], metrics: {enabled: false}}
server: {address: '127.0.0.1:0'}
";
    let place = Place::with(settings).variable("ORDERS_URL", database.url());
    std::fs::write(place.file("audit.url"), "sqlite:audit.db\n").unwrap();
    let daemon = place.serve();
    let pool = database.pool().await;
    pool.execute(
        "insert into outbox_event (event_id, event_type, payload, status, available_at, created_at) \
         values ('t-1', 'Tick', '{}', 0, now(), now())",
    )
    .await
    .unwrap();
    daemon.until_handled(1);
    daemon.wait_for(|| (total(&daemon, r#"outbox_dispatch_success{outbox="orders"}"#) == 1).then_some(()));
    let (_, metrics) = daemon.get("/metrics", "");
    assert!(metrics.contains(r#"outbox_dispatch_success{outbox="audit"} 0"#), "{metrics}");
    assert!(metrics.contains(r#"outbox_delivery_latency_seconds_count{outbox="orders"} 1"#), "{metrics}");
    assert!(
        metrics.contains(r#"outbox_dispatch_duration_seconds_bucket{outbox="orders",le="0.001"}"#),
        "{metrics}"
    );
    assert!(!metrics.contains("quiet"), "its metrics are off:\n{metrics}");
    pool.close().await;
    let ended = daemon.end("-TERM").with(0);
    let password_free = !ended.complained.contains(&database.url()) && !ended.said.contains(&database.url());
    assert!(password_free, "{}\n{}", ended.said, ended.complained);
}

#[test]
fn with_tokens_the_page_is_for_their_holders() {
    let made = Place::empty().run(&["token"]).with(0).said;
    let (first, snippet) = made.split_once("\n\n").unwrap();
    let token = first.rsplit_once(' ').unwrap().1;
    let snippet = snippet.strip_prefix("server:\n").unwrap();
    let place =
        Place::with(&ONE.replace(
            "server: {address: '127.0.0.1:0'}\n",
            &format!("server:\n  address: 0.0.0.0:0\n{snippet}"),
        ));
    let daemon = place.serve();
    let (status, _) = daemon.get("/metrics", "");
    assert_eq!(status, 401);
    let (status, metrics) = daemon.get("/metrics", &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(status, 200, "{metrics}");
    let (status, health) = daemon.get("/health", "");
    assert!(status == 200 && !health.contains("orders"), "{health}");
    let ended = daemon.end("-TERM").with(0);
    assert!(!ended.complained.contains(token));
}
