//! `backstop demo` as its user sees it: it runs without anything else, ends well, and loses nothing.

mod running;

use std::net::TcpListener;

use backstop_testkit::servers::directory;
use running::{Ended, Running, run, text};

/// It ended well, and every order it took is accounted for. Gives back how many that were.
fn assert_ended_well(ended: &Ended) -> u64 {
    let Ended { status, said, complained } = ended;
    assert!(status.success(), "{status}\n{said}\n{complained}");
    assert_eq!(complained, "");
    let (appended, found) = (ended.number_before(" appended = "), ended.number_before(" accounted for"));
    assert!(appended > 0 && appended == found, "{said}");
    let (published, handled) =
        (ended.number_before(" published = "), ended.number_before(" accounted for. N"));
    assert!(published == appended && published == handled, "{said}");
    assert!(said.contains("Nothing is lost."), "{said}");
    appended
}

/// It failed with one sentence for a person, and without a panic.
fn assert_one_sentence(ended: &Ended, sentence: &str) {
    let Ended { status, said, complained } = ended;
    assert_eq!(status.code(), Some(1), "{said}\n{complained}");
    assert!(complained.starts_with("error: ") && complained.contains(sentence), "{complained}");
    assert_eq!(complained.trim_end().lines().count(), 1, "{complained}");
    assert!(!complained.contains("panicked") && !said.contains("panicked"), "{said}\n{complained}");
}

/// The total of a counter in Prometheus text.
fn total(metrics: &str, name: &str) -> u64 {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    lines.next().unwrap_or_default()
}

fn delivers(metrics: &str) -> bool {
    total(metrics, r#"outbox_dispatch_success{outbox="orders"}"#) > 0
        && total(metrics, r#"queue_completed{queue="invoices"}"#) > 0
}

/// Rules: O-088.
#[test]
fn it_runs_on_embedded_parts_alone_shows_what_happens_and_accounts_for_every_order() {
    let demo = Running::start(&["--for", "3s", "--rate", "200"]);
    let (status, page) = demo.get("/");
    assert_eq!(status, 200);
    assert!(page.contains("<!doctype html") || page.contains("<!DOCTYPE html"), "{page}");
    let (status, health) = demo.get("/health");
    assert_eq!(status, 200, "{health}");

    // Events flow: what the metrics count grows, and the components show where events are.
    demo.get_until("/metrics", delivers);
    let components = demo.get_until("/api/v1/components", |answer| answer.contains(r#""delivered""#));
    let (_, body) = components.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value =
        serde_json::from_str(body.trim()).unwrap_or_else(|_| panic!("{components}"));
    let shown = body.to_string();
    for part in [
        r#""invoices""#,
        r#""processing""#,
        r#""completed""#,
        r#""orders""#,
        r#""waiting""#,
        r#""retrying""#,
        r#""dead""#,
        r#""done""#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_ended_well(&demo.end());
}

#[test]
fn sigterm_and_ctrl_c_end_it_cleanly() {
    for signal in ["-TERM", "-INT"] {
        let demo = Running::start(&["--rate", "100"]);
        demo.get_until("/metrics", delivers);
        demo.signal(signal);
        assert_ended_well(&demo.end());
    }
}

/// Rules: O-088.
#[test]
fn killed_in_the_middle_and_started_again_it_still_accounts_for_every_order() {
    let directory = directory();
    let kept = ["--dir", text(directory.path()), "--rate", "500"];
    let demo = Running::start(&kept);
    let taken = total(&demo.get_until("/metrics", delivers), r#"outbox_append{outbox="orders"}"#);
    demo.signal("-KILL");
    let killed = demo.end();
    assert!(!killed.status.success() && !killed.said.contains("accounted for"), "{}", killed.said);

    let again = Running::start(&["--dir", text(directory.path()), "--rate", "50", "--for", "1s"]).end();
    let appended = assert_ended_well(&again);
    let before = again.number_before(" before;");
    assert!(taken > 0 && before >= taken && appended > before, "{taken} were taken\n{}", again.said);
}

#[test]
fn a_second_demo_in_the_same_directory_is_told_so() {
    let directory = directory();
    let first = Running::start(&["--dir", text(directory.path())]);
    let second = run(&["--dir", text(directory.path()), "--port", "0", "--for", "1s"]);
    assert_one_sentence(&second, "another process delivers from table");
    first.signal("-TERM");
    assert_ended_well(&first.end());
    assert_ended_well(&run(&["--dir", text(directory.path()), "--port", "0", "--for", "500ms"]));
}

#[test]
fn a_wrong_flag_or_value_is_told_with_the_usage() {
    for wrong in
        [&["--fro", "3s"][..], &["--for", "0s"], &["--for", "soon"], &["--rate", "0"], &["--port", "99999"]]
    {
        let ended = run(wrong);
        assert_eq!(ended.status.code(), Some(2), "{wrong:?}");
        assert!(ended.complained.starts_with("error: "), "{}", ended.complained);
        assert!(ended.complained.contains("--help"), "{}", ended.complained);
        assert!(!ended.complained.contains("panicked"), "{}", ended.complained);
        assert_eq!(ended.said, "");
    }
    assert!(run(&["--fro", "3s"]).complained.contains("Usage: backstop demo"));
    assert!(run(&["--for", "0s"]).complained.contains("give a number above zero and a unit"));
}

#[test]
fn a_busy_port_is_told_in_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_one_sentence(&run(&["--port", &port, "--for", "1s"]), &port);
}

#[test]
fn a_directory_that_cannot_be_used_is_told_in_one_sentence() {
    let directory = directory();
    let file = directory.file("a file");
    std::fs::write(&file, "no directory").unwrap();
    for unusable in [file.clone(), file.join("below"), "/proc/backstop-demo".into()] {
        let ended = run(&["--dir", text(&unusable), "--port", "0", "--for", "1s"]);
        assert_one_sentence(&ended, "name a directory you may write to");
    }
    // A directory that holds something else under the database's name.
    std::fs::write(directory.file("backstop-demo.db"), "this is no database, whatever its name says")
        .unwrap();
    let ended = run(&["--dir", text(directory.path()), "--port", "0", "--for", "1s"]);
    assert_one_sentence(&ended, "database");
}
