//! `backstop dlq` as its user sees it: good input, bad input, and nothing lost in between.

#[path = "../receiver/mod.rs"]
mod receiver;
mod topic;
mod web;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use backstop_testkit::servers::{Directory, directory};

const FIRST: &str = "1767225600000-42.jsonl";

fn dlq(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstop"));
    command.arg("dlq").args(arguments).env_remove("BACKSTOP_LOG").stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn complained(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn record(id: &str, event_type: &str, error: &str) -> String {
    let event = serde_json::json!({
        "specversion": "1.0", "id": id, "source": "/shop", "type": event_type, "data": {"n": 1},
    });
    format!("{{\"event\":{event},\"error\":{}}}\n", serde_json::Value::from(error))
}

/// Three entries, and one that is damaged.
fn filled() -> Directory {
    let place = directory();
    for (name, content) in [
        (FIRST, record("42", "OrderPlaced", "timeout: no answer")),
        ("1767225600001-43.jsonl", record("43", "OrderPlaced", "http-503: closed")),
        ("1767225600002-_-0123456789ab.jsonl", record("\x1b[2J", "StockLow", "line\nbreak")),
        ("1767225600003-torn.jsonl", "{\"event\":{\"id\":\"4111-1111\"".to_owned()),
    ] {
        fs::write(place.file(name), content).unwrap();
    }
    place
}

fn left(place: &Directory) -> usize {
    fs::read_dir(place.path()).unwrap().count()
}

#[test]
fn list_shows_one_line_for_each_and_tells_what_is_damaged() {
    let place = filled();
    let output = dlq(&["list", text(place.path())]);
    assert!(output.status.success());
    let lines: Vec<_> = said(&output).lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], format!("{FIRST}  2026-01-01T00:00:00.000Z  OrderPlaced  42  timeout: no answer"));
    assert!(lines[2].ends_with(r"StockLow  \u{1b}[2J  line\u{a}break"), "{}", lines[2]);
    assert!(complained(&output).contains("damaged: 1767225600003-torn.jsonl: not a record"), "{output:?}");
    assert!(complained(&output).ends_with("3 entries, 1 damaged\n"));
    assert!(!complained(&output).contains("4111"), "{output:?}");
}

#[test]
fn a_file_full_of_damage_is_one_line_and_a_name_that_is_no_text_is_seen() {
    let place = directory();
    fs::write(place.file("1767225600000-rolling-a.jsonl"), "nonsense\n".repeat(11_925)).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"1767225600001-\xff\x1b[2J.jsonl");
    fs::write(place.path().join(odd), record("1", "t", "e")).unwrap();
    let expected = [
        "damaged: 1767225600000-rolling-a.jsonl: not a record",
        r"damaged: 1767225600001-\xff\x1b[2J.jsonl: its name is not UTF-8 text; rename it so that it can be read",
    ];
    let output = dlq(&["fsck", text(place.path())]);
    let lines: Vec<_> = said(&output).lines().collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(
        lines[0].starts_with(expected[0]) && lines[0].ends_with("; and 11924 more lines of it"),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1], expected[1]);
    assert!(complained(&output).contains("0 sound entries, 11926 damaged"), "{output:?}");

    let output = dlq(&["list", text(place.path())]);
    let lines: Vec<_> = complained(&output).lines().collect();
    assert_eq!((lines.len(), lines[1], lines[2]), (3, expected[1], "0 entries, 11926 damaged"), "{output:?}");
}

#[test]
fn json_of_an_entry_tells_a_terminal_nothing() {
    let place = directory();
    fs::write(place.file(FIRST), record("4\u{9b}2J", "t", "\u{202e}\u{1b}[2J")).unwrap();
    for arguments in [vec!["list", text(place.path()), "--json"], vec!["inspect", text(place.path()), FIRST]]
    {
        let output = dlq(&arguments);
        assert!(
            !said(&output).contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{output:?}"
        );
        let entry: serde_json::Value = serde_json::from_str(said(&output)).unwrap();
        assert_eq!(
            (&entry["event"]["id"], &entry["error"]),
            (&"4\u{9b}2J".into(), &"\u{202e}\u{1b}[2J".into())
        );
    }
}

#[test]
fn a_target_is_never_repeated_and_never_a_device() {
    let place = filled();
    let redrive = |to: &str| dlq(&["redrive", text(place.path()), "--to", to]);
    for to in [
        "ftp://u:hunter2@h/",
        "HTTPS://u:hunter2@h/",
        "https://u:hunter2@h/",
        "kafka://u:hunter2@h:1/t",
        "env:hunter2",
    ] {
        let output = redrive(to);
        assert!(!output.status.success() && !complained(&output).contains("hunter2"), "{to}: {output:?}");
    }
    let output = redrive("/dev/null");
    assert!(complained(&output).contains("it is not a regular file"), "{output:?}");
    assert_eq!(left(&place), 4, "nothing was sent");
}

#[test]
fn list_picks_by_type_error_time_and_number_and_speaks_json() {
    let place = filled();
    let count = |more: &[&str]| {
        let output = dlq(&[&["list", text(place.path())], more].concat());
        assert!(output.status.success(), "{output:?}");
        said(&output).lines().count()
    };
    assert_eq!(count(&["--type", "OrderPlaced"]), 2);
    assert_eq!(count(&["--error", "timeout"]), 1);
    assert_eq!(count(&["--id", "43", "--source", "/shop"]), 1);
    assert_eq!(count(&["--source", "/other"]), 0);
    assert_eq!(count(&["--target", "warehouse"]), 0);
    assert_eq!(count(&["--since", "2026-01-01T00:00:00.001Z"]), 2);
    assert_eq!(count(&["--until", "2026-01-01T00:00:00.001Z"]), 1);
    assert_eq!(count(&["--since", "1h"]), 0);
    assert_eq!(count(&["--limit", "2"]), 2);

    let output = dlq(&["list", text(place.path()), "--json", "--limit", "1"]);
    let shown: serde_json::Value = serde_json::from_str(said(&output)).unwrap();
    assert_eq!((&shown["place"], &shown["event"]["id"]), (&FIRST.into(), &"42".into()));
}

#[test]
fn inspect_shows_one_whole_and_refuses_paths() {
    let place = filled();
    let output = dlq(&["inspect", text(place.path()), FIRST]);
    let shown: serde_json::Value = serde_json::from_str(said(&output)).unwrap();
    assert_eq!((&shown["error"], &shown["event"]["data"]["n"]), (&"timeout: no answer".into(), &1.into()));

    for (entry, code, told) in [
        ("../../etc/passwd", 2, "names no entry"),
        ("nothing", 2, "names no entry"),
        ("1-x.jsonl", 1, "there is no entry 1-x.jsonl"),
        ("1767225600003-torn.jsonl", 1, "is damaged"),
    ] {
        let output = dlq(&["inspect", text(place.path()), entry]);
        assert_eq!(output.status.code(), Some(code), "{entry}");
        assert!(complained(&output).contains(told) && output.stdout.is_empty(), "{entry}: {output:?}");
    }
}

#[test]
fn fsck_fails_when_something_is_damaged_and_changes_nothing() {
    let place = filled();
    fs::write(place.file(".1767225600000-0000000000000001.tmp"), "{").unwrap();
    fs::write(place.file("notes.txt"), "").unwrap();
    let output = dlq(&["fsck", text(place.path())]);
    assert_eq!(output.status.code(), Some(1));
    for line in
        ["damaged: 1767225600003-torn.jsonl", "left by a crash: .1767225600000-", "not ours: notes.txt"]
    {
        assert!(said(&output).contains(line), "{line}: {output:?}");
    }
    assert!(complained(&output).contains("3 sound entries, 1 damaged, 1 left by crashes, 1 not ours"));
    assert_eq!(left(&place), 6);

    fs::remove_file(place.file("1767225600003-torn.jsonl")).unwrap();
    assert!(dlq(&["fsck", text(place.path())]).status.success());
}

#[test]
fn redrive_sends_to_a_file_and_removes_what_arrived() {
    let place = filled();
    let elsewhere = directory();
    let target = elsewhere.file("sent.jsonl");
    // Somebody else's half line must not swallow the first event.
    fs::write(&target, "{\"half\":").unwrap();
    let to = ["redrive", text(place.path()), "--to", text(&target)];
    let output = dlq(&[&to[..], &["--dry-run"]].concat());
    assert!(output.status.success() && complained(&output).contains("would send 3, 1 damaged"), "{output:?}");
    assert_eq!(left(&place), 4);

    let output = dlq(&[&to[..], &["--type", "OrderPlaced", "--limit", "1", "--rate", "100"]].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left(&place), 3);
    let output = dlq(&to);
    assert!(output.status.success(), "{output:?}");
    assert!(complained(&output).contains("2 delivered, 0 failed, 1 damaged and left"), "{output:?}");
    assert_eq!(left(&place), 1);

    let sent = fs::read_to_string(&target).unwrap();
    let lines: Vec<_> = sent.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "{\"half\":"));
    for (line, id) in lines[1..].iter().zip(["42", "43", "\x1b[2J"]) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["id"], id);
    }
}

#[test]
fn redrive_makes_a_file_that_is_named_without_its_directory() {
    let (place, here) = (filled(), directory());
    let mut backstop = Command::new(env!("CARGO_BIN_EXE_backstop"));
    backstop.current_dir(here.path()).args(["dlq", "redrive", text(place.path()), "--to", "sent.jsonl"]);
    let output = backstop.output().unwrap();
    assert!(complained(&output).contains("3 delivered, 0 failed"), "{output:?}");
    assert_eq!(fs::read_to_string(here.file("sent.jsonl")).unwrap().lines().count(), 3);
}

#[test]
fn redrive_sends_one_or_those_behind_one_to_standard_output() {
    let place = filled();
    let output =
        dlq(&["redrive", text(place.path()), "--to", "-", "--after", FIRST, "--type", "OrderPlaced"]);
    assert!(output.status.success() && said(&output).contains(r#""id":"43""#), "{output:?}");
    let output = dlq(&["redrive", text(place.path()), "--to", "-", "--only", FIRST]);
    assert!(output.status.success() && said(&output).contains(r#""id":"42""#), "{output:?}");
    assert_eq!(said(&output).lines().count(), 1);
    assert_eq!(left(&place), 2);
}

#[test]
fn what_a_full_target_does_not_take_stays() {
    let place = filled();
    // A disk that is full, as far as this process can tell.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" dlq redrive \"$1\" --to \"$2\"";
    let full = |to: &str, stdout: Stdio| {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_backstop"), text(place.path()), to]);
        command.env_remove("BACKSTOP_LOG").stdin(Stdio::null()).stderr(Stdio::piped()).stdout(stdout);
        command.spawn().unwrap().wait_with_output().unwrap()
    };
    let elsewhere = directory();
    let device = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (output, why) in [
        (full(text(&elsewhere.file("sent")), Stdio::null()), "File too large"),
        (full("-", device.into()), "No space left"),
    ] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = complained(&output);
        assert!(told.contains("0 delivered, 3 failed") && told.contains(why), "{output:?}");
        assert_eq!(left(&place), 4);
    }
}

#[test]
fn purge_deletes_only_what_is_named() {
    let place = filled();
    let run = |more: &[&str]| dlq(&[&["purge", text(place.path())], more].concat());
    assert_eq!(run(&[]).status.code(), Some(2), "nothing is deleted without a word about what");
    assert_eq!(run(&["--all", "--older-than", "1d"]).status.code(), Some(2));
    assert!(complained(&run(&["--older-than", "36500d"])).contains("deleted 0 events"));
    let output = run(&["--all", "--type", "StockLow", "--dry-run"]);
    assert!(complained(&output).contains("would delete 1 event in 1 file"), "{output:?}");
    assert_eq!(left(&place), 4);
    assert!(run(&["--all", "--type", "StockLow"]).status.success());
    assert_eq!(left(&place), 3);
    // Both conditions hold, whichever is the stricter one.
    assert!(run(&["--until", "2026-01-01T00:00:00.001Z", "--older-than", "1ms"]).status.success());
    assert_eq!(left(&place), 2);
    assert!(run(&["--older-than", "1ms"]).status.success());
    assert_eq!(left(&place), 1, "the damaged one stays");
}

#[test]
fn export_copies_and_writes_over_nothing() {
    let place = filled();
    let output = dlq(&["export", text(place.path())]);
    assert_eq!(said(&output).lines().count(), 3);
    assert!(complained(&output).contains("exported 3 events, 1 damaged and skipped"), "{output:?}");
    let records = dlq(&["export", text(place.path()), "--records", "--id", "42"]);
    assert_eq!(said(&records), fs::read_to_string(place.file(FIRST)).unwrap());

    let elsewhere = directory();
    let file = elsewhere.file("copy.jsonl");
    let to = ["export", text(place.path()), "--to", text(&file)];
    assert!(dlq(&to).status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), said(&output));
    let again = dlq(&to);
    assert_eq!(again.status.code(), Some(1));
    assert!(complained(&again).contains("name a file that does not exist yet"), "{again:?}");
    assert_eq!(left(&place), 4);
}

#[test]
fn a_reader_who_has_seen_enough_is_no_fault() {
    let place = directory();
    for number in 0..5_000 {
        let name = format!("{}-{number}.jsonl", 1_767_225_600_000_u64 + number);
        fs::write(place.file(name), record(&number.to_string(), "OrderPlaced", "timeout")).unwrap();
    }
    for command in ["list", "export"] {
        let line =
            format!("{} dlq {command} {} | head -1", env!("CARGO_BIN_EXE_backstop"), text(place.path()));
        let output = Command::new("bash").args(["-o", "pipefail", "-c", &line]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!((said(&output).lines().count(), complained(&output)), (1, ""), "{command}");
    }
}

#[test]
fn bad_input_is_told_in_a_sentence() {
    let place = filled();
    let path = text(place.path());
    for (arguments, code, told) in [
        (&["list"][..], 2, "Usage: backstop dlq list"),
        (&["list", "/nowhere/at/all"], 1, "there is no directory /nowhere/at/all"),
        (&["list", "/etc/passwd"], 1, "is not a directory"),
        (&["list", path, "--since", "yesterday"], 2, "give a moment like 2030-01-31T12:00:00Z"),
        (&["list", path, "--colour"], 2, "unexpected argument"),
        (&["redrive", path], 2, "--to"),
        (&["redrive", path, "--to", "-", "--rate", "0"], 2, "--rate"),
        (&["redrive", path, "--to", "-", "--only", "a/b"], 2, "names no entry"),
        (&["redrive", path, "--to", "/nowhere/out"], 1, "cannot write to /nowhere/out; name a file"),
        (&["purge", path, "--older-than", "soon"], 2, "give a number above zero and a unit"),
        (&["lost"], 2, "unrecognized subcommand"),
    ] {
        let output = dlq(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(complained(&output).contains(told), "{arguments:?}: {}", complained(&output));
        assert!(
            complained(&output).starts_with("error: ") && !complained(&output).contains("panicked"),
            "{output:?}"
        );
        assert_eq!(said(&output), "");
    }
    assert_eq!(left(&place), 4);
}
