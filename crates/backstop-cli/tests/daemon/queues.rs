//! Queues in the daemon: a file becomes queues, and events that any program inserts are handled.

use backstop_admin::{Role, Token};
use backstop_sql::queue::{Filter, Status};
use backstop_testkit::eventually;
use backstop_testkit::proxy::Proxy;
use backstop_testkit::servers::postgres;

use crate::jobs::{Jobs, on_mysql, on_postgres, on_sqlite};
use crate::receiver::Receiver;
use crate::support::{Daemon, Place};

fn total(daemon: &Daemon, name: &str) -> u64 {
    let (_, metrics) = daemon.get("/metrics", "");
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    lines.next().unwrap_or_default()
}

/// The id of the event that was inserted last.
async fn last(jobs: &Jobs) -> i64 {
    let mut last = 0;
    for status in Status::ALL {
        let listed = jobs.operations.list(status, &Filter::default(), 1_000).await.unwrap();
        last = listed.iter().map(|listed| listed.id).max().unwrap_or_default().max(last);
    }
    last
}

backstop_testkit::suite! {
    over { sqlite: on_sqlite, postgres: on_postgres, mysql: on_mysql }

    /// Rules: Q-004, Q-007, Q-017.
    async fn settings_alone_make_a_queue_that_handles_what_any_program_inserts(jobs) {
        let daemon = jobs.place.serve();
        jobs.execute(r#"insert into events (event) values ('{"type": "InvoiceRequested", "order": 42}')"#).await;
        let invoice = last(&jobs).await;
        assert_eq!(daemon.until_handled(1), [invoice.to_string()]);
        eventually("in the log", async || jobs.row(invoice).await == Some((Status::Completed, 1))).await;

        jobs.execute(r#"insert into events (event) values ('{"type": "Unheard"}')"#).await;
        let unheard = last(&jobs).await;
        eventually("failed", async || jobs.row(unheard).await == Some((Status::Failed, 1))).await;
        let why = jobs.queue(&["why", &unheard.to_string()]).with(0).said;
        assert!(why.contains("no handler is registered for event type Unheard"), "{why}");

        daemon.wait_for(|| (total(&daemon, r#"queue_completed{queue="jobs"}"#) == 1).then_some(()));
        let (status, health) = daemon.get("/health", "");
        assert!(status == 200 && health.contains("\"jobs\""), "{health}");
        let shown = daemon.component("queue", |shown| shown["places"][4]["count"]["events"] == 1);
        assert_eq!((&shown["name"], &shown["health"]["status"]), (&"jobs".into(), &"up".into()));
        assert_eq!((&shown["troubled"][0]["place"], &shown["troubled"][0]["id"]), (&"failed".into(), &unheard.to_string().into()));
        daemon.end("-TERM").with(0);
    }

    /// Rules: Q-005, Q-054, Q-055.
    async fn what_a_dead_worker_held_is_taken_over(jobs) {
        jobs.fill().await;
        let daemon = jobs.place.serve();
        eventually("taken over", async || jobs.row(3).await == Some((Status::Completed, 3))).await;
        assert!(daemon.log().contains("an abandoned event is taken over"), "{}", daemon.log());
        assert_eq!(jobs.row(2).await, Some((Status::Processing, 1)), "somebody else has it");
        daemon.end("-TERM").with(0);
    }
}

#[tokio::test]
async fn a_queue_sends_webhooks_and_what_is_refused_goes_to_the_dead_letters() {
    let receiver = Receiver::answering(204);
    let settings = format!(
        "queue:
  name: jobs
  database: {{url: env:JOBS_URL}}
  idle-wait: 50ms
  dlq: lost
  handlers:
    - event-type: '*'
      http: {{url: '{}', format: binary, secrets: env:HOOK_SECRET, allowed-networks: 127.0.0.0/8}}
dlq: {{name: lost, directory: lost, create: true}}
server: {{address: '127.0.0.1:0'}}
",
        receiver.url()
    );
    let mut jobs = on_sqlite().await.unwrap();
    std::fs::write(jobs.place.file("backstop.yaml"), settings).unwrap();
    jobs.place = jobs.place.variable("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let daemon = jobs.place.serve();
    jobs.execute(r#"insert into events (event) values ('{"type": "InvoiceRequested", "total": 1.10}')"#)
        .await;
    let request = receiver.next().unwrap_or_else(|| panic!("{}", daemon.log()));
    for (header, value) in [("ce-type", "invoicerequested"), ("ce-source", "/queue/jobs")] {
        assert_eq!(request.header(header), Some(value), "{}", request.head);
    }
    assert_eq!(request.body, r#"{"type": "InvoiceRequested", "total": 1.10}"#);
    eventually("completed", async || jobs.row(1).await == Some((Status::Completed, 1))).await;

    receiver.answer(422);
    jobs.execute(r#"insert into events (event) values ('{"type": "InvoiceRequested"}')"#).await;
    eventually("failed", async || jobs.row(2).await == Some((Status::Failed, 1))).await;
    let listed = jobs.place.run(&["dlq", "list", "lost", "--json"]).with(0);
    let entry: serde_json::Value = serde_json::from_str(&listed.said).unwrap();
    assert_eq!((&entry["event"]["id"], &entry["event"]["source"]), (&"2".into(), &"/queue/jobs".into()));
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn an_operator_requeues_through_the_api_of_a_running_daemon_and_it_is_on_record() {
    let jobs = on_sqlite().await.unwrap();
    let tokens = [("hands", Role::Operator, "do"), ("eyes", Role::Viewer, "see")];
    let token = |(name, role, text): (&str, Role, &str)| {
        let word = if role == Role::Operator { "operator" } else { "viewer" };
        format!("{{name: {name}, role: {word}, sha256: {}}}", Token::of(name, role, text).hash_in_hex())
    };
    let tokens = tokens.map(token).join(", ");
    let settings =
        crate::jobs::SETTINGS.replace("'127.0.0.1:0'", &format!("'127.0.0.1:0', tokens: [{tokens}]"));
    std::fs::write(jobs.place.file("backstop.yaml"), settings).unwrap();
    jobs.fill().await;
    let daemon = jobs.place.serve();
    let ask = |token: &str, operation: &str| {
        let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let body =
            format!(r#"{{"kind":"queue","name":"jobs","operation":"{operation}","ids":["2","6","404"]}}"#);
        daemon.send("POST", "/api/v1/operations", &headers, &body)
    };
    assert_eq!(ask("see", "replay").0, 403);
    assert_eq!(ask("do", "discard").0, 409, "nothing is deleted from a queue by id");
    let (code, answer) = ask("do", "replay");
    assert!(code == 200 && answer.contains("1 of 3 events are set back to PENDING"), "{answer}");
    eventually("handled", async || jobs.row(6).await == Some((Status::Completed, 1))).await;
    assert_eq!(jobs.row(2).await, Some((Status::Processing, 1)), "somebody handles it");
    let ended = daemon.end("-TERM").with(0);
    let audited = |line: &str| line.contains("backstop::audit") && line.contains("by=\"hands\"");
    assert!(ended.complained.lines().any(audited), "{}", ended.complained);
}

// The proxy runs beside a test that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_database_is_away_at_the_start_is_waited_for() {
    let Some(database) = postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    proxy.refuse();
    let place = Place::with(crate::jobs::SETTINGS).variable("JOBS_URL", proxy.through(&database.url()));
    let daemon = place.serve_soon();
    daemon
        .wait_for(|| daemon.log().contains("queue (backstop.yaml:1:1) waits for its database").then_some(()));
    let (status, health) = daemon.get("/health", "");
    assert!(status == 503 && health.contains("it cannot be started yet: "), "{health}");
    proxy.restore();
    daemon.wait_for(|| (daemon.get("/ready", "").0 == 200).then_some(()));
    daemon.end("-TERM").with(0);
}

#[test]
fn several_queues_and_outboxes_are_checked_migrated_and_served_together() {
    let settings = "\
outbox: {name: orders, mode: writer-only, database: {url: 'sqlite:shop.db'}}
queue:
  - {name: jobs, database: {url: 'sqlite:shop.db'}, handlers: [{event-type: [A, B], log: }]}
  - {name: mail, database: {url: 'sqlite:shop.db', table: mail, log-table: mail_log}}
  - {name: gone, database: {url: 'sqlite:nowhere/gone.db'}}
server: {address: '127.0.0.1:0'}
";
    let place = Place::with(settings);
    let said = place.run(&["check"]).with(0).said;
    for line in [
        "  queue jobs: SQLite, tables events and event_log, 2 event types",
        "  queue mail: SQLite, tables mail and mail_log",
    ] {
        assert!(said.lines().any(|it| it == line), "{line}: {said}");
    }
    let ended = place.run(&["migrate", "--triggers"]).with(1);
    for line in [
        "jobs: tables events and event_log are up to date",
        "jobs: workers find rows inserted by plain SQL when they look, at the latest after idle-wait",
        "mail: tables mail and mail_log are up to date",
    ] {
        assert!(ended.said.lines().any(|it| it == line), "{line}: {}", ended.said);
    }
    assert!(
        ended.complained.contains("error: queue.gone (backstop.yaml:5:5) cannot be migrated: "),
        "{}",
        ended.complained
    );
    assert!(
        ended.complained.ends_with("error: 1 of 4 outboxes and queues were not migrated\n"),
        "{}",
        ended.complained
    );

    let place = Place::with(&settings.replace("nowhere/gone.db", "gone.db"));
    let ended = place.serve().end("-TERM").with(0);
    assert!(
        ended.said.contains("  queue jobs: SQLite, tables events and event_log, 2 event types\n"),
        "{}",
        ended.said
    );
    assert!(place.file("gone.db").exists());
}
