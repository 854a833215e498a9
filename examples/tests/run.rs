//! Every example runs to its end and says what it promises.

use std::path::PathBuf;
use std::process::Command;

/// Where cargo puts an example: beside the folder of the test that runs.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("examples");
    let path = folder.join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is not built; run `cargo test -p backstop-examples`", path.display());
    path
}

/// Runs an example and gives back what it said.
fn run(example: &str, arguments: &[&str]) -> String {
    let output = Command::new(built(example)).args(arguments).output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && complained.is_empty(), "{}\n{said}\n{complained}", output.status);
    said.into_owned()
}

#[test]
fn outbox_sqlite_ships_what_can_be_shipped_and_shows_what_is_dead() {
    let said = run("outbox_sqlite", &[]);
    for line in ["shipped order 1: tea", "shipped order 2: honey", "shipped order 4: pears"] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
    assert!(said.contains("4 appended"), "{said}");
    assert!(said.contains("dead after 1 attempt: address: no such street"), "{said}");
    assert!(!said.contains("never"), "{said}");
}

#[test]
fn queue_handles_what_is_published_and_what_is_requeued() {
    let said = run("queue", &[]);
    for line in [
        "invoices for orders [1, 2]",
        "failed: address: no such street",
        "invoice for order 3 after all",
        "3 completed, 0 failed",
    ] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
}

/// Rules: O-090.
#[test]
fn two_databases_deliver_side_by_side() {
    let said = run("two_databases", &[]);
    for line in [
        "billing heard of OrderPlaced about 42",
        "purchasing heard of StockLow about tea",
        "orders has seen 1 of its own",
        "stock has seen 1 of its own",
    ] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
}

/// Rules: O-089.
#[test]
fn axum_service_stores_and_ships_an_order_that_came_over_http() {
    let said = run("axum_service", &["--try"]);
    for line in [r#"answered 201 {"id":1,"event_id":""#, "shipped 2 × tea", "1 stored"] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
}

#[tokio::test]
async fn postgres_nodes_handle_each_event_once() {
    let Some(database) = backstop_testkit::servers::postgres().await else { return };
    let said = run("postgres_nodes", &[&database.url()]);
    assert!(said.contains("200 events, 0 of them more than once"), "{said}");
}

#[test]
fn postgres_nodes_says_what_to_do_without_a_database() {
    let output =
        Command::new(built("postgres_nodes")).env_remove("BACKSTOP_TEST_POSTGRES_URL").output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && complained.contains("cargo xtask services up"), "{complained}");
}

#[test]
fn sea_orm_stores_the_order_and_its_event_together() {
    let said = run("sea_orm", &[]);
    for line in ["shipped tea", "1 order stored", "1 event appended"] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
}
