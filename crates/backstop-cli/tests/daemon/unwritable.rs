//! Databases that come back other than they were: read-only, or with another table. The daemon says so and starts nothing.

use backstop_testkit::eventually;
use backstop_testkit::servers::{PrivatePostgres, private_postgres};
use sqlx::{Connection as _, PgConnection, raw_sql};

use crate::support::Place;

fn place(server: &PrivatePostgres, mode: &str) -> Place {
    let settings = format!(
        "outbox: {{mode: {mode}, database: {{url: env:URL}}, poller: {{interval-ms: 50}}, claim-locking: {{enabled: \
         {}}}, handlers: [{{event-type: T, log: }}]}}\nserver: {{enabled: false}}\n",
        mode == "multi-node"
    );
    Place::with(&settings).variable("URL", server.url())
}

async fn run(server: &PrivatePostgres, statement: &'static str) {
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    raw_sql("set default_transaction_read_only = off").execute(&mut admin).await.unwrap();
    raw_sql(statement).execute(&mut admin).await.unwrap();
}

async fn insert(server: &PrivatePostgres) {
    let insert = "insert into outbox_event (event_id, event_type, payload, status, available_at, created_at, aggregate_type) \
                  values ('e-1', 'T', '{}', 0, now(), now(), '__GLOBAL__')";
    run(server, insert).await;
}

/// Nothing starts, and the one line says why.
fn refuses(server: &PrivatePostgres, mode: &str, why: &[&str]) {
    let complained = place(server, mode).run(&["serve"]).with(1).complained;
    let told: Vec<_> = complained.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(told.len(), 1, "{mode}: {complained}");
    assert!(told[0].contains("outbox (backstop.yaml:1:1) cannot be started: "), "{mode}: {complained}");
    assert!(why.iter().all(|part| told[0].contains(part)), "{mode}: {complained}");
}

const MODES: [&str; 3] = ["single-node", "multi-node", "ordered"];

#[tokio::test]
async fn a_database_that_came_back_read_only_is_told_as_such_and_its_events_are_delivered_later() {
    let Some(mut server) = private_postgres().await else { return };
    place(&server, "single-node").run(&["migrate"]).with(0);
    insert(&server).await;
    let why =
        ["the database with table outbox_event is read-only", "connect to the server that accepts writes"];

    // As an operator sets it, or a cloud whose disk is full.
    run(&server, "alter database postgres set default_transaction_read_only = on").await;
    for mode in MODES {
        refuses(&server, mode, &why);
    }
    run(&server, "alter database postgres reset default_transaction_read_only").await;

    // As a standby is, which the old server may be after a fail-over.
    server.stop().await;
    let standby = server.write("data/standby.signal", "");
    server.start().await;
    for mode in MODES {
        refuses(&server, mode, &why);
    }
    server.stop().await;
    std::fs::remove_file(standby).unwrap();
    server.start().await;

    let daemon = place(&server, "single-node").serve();
    assert_eq!(daemon.until_handled(1), ["e-1"]);
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn a_table_that_another_programs_migration_has_changed_is_told_with_the_column() {
    let Some(server) = private_postgres().await else { return };
    place(&server, "single-node").run(&["migrate"]).with(0);
    insert(&server).await;
    run(&server, "alter table outbox_event rename column locked_at to locked_on").await;
    for mode in MODES {
        refuses(&server, mode, &["table outbox_event was changed by somebody else", "locked_at", "docs/sql"]);
    }
    let complained = place(&server, "single-node").run(&["migrate"]).with(1).complained;
    assert!(complained.contains("was changed by somebody else"), "{complained}");

    run(&server, "alter table outbox_event rename column locked_on to locked_at").await;
    run(&server, "alter table outbox_event add column region text").await;
    let daemon = place(&server, "multi-node").serve();
    assert_eq!(daemon.until_handled(1), ["e-1"]);
    daemon.end("-TERM").with(0);
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    eventually("it is done", async || {
        let status = sqlx::query_scalar::<_, i16>("select status from outbox_event").fetch_one(&mut admin);
        status.await.unwrap() == 1
    })
    .await;
}
