//! The operator's tools: list, inspect, check, purge and export, also on what is damaged.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use backstop_core::{Clock, CloudEvent, Failure, SystemClock};
use backstop_disk::Error;
use backstop_disk::dlq::{Directory, Filter, Finding, Form, Found};
use backstop_testkit::servers::directory;

use crate::support::{event, ids, names};

fn write(path: &Path, millis: u64, id: &str) -> String {
    let name = format!("{millis}-{id}.jsonl");
    fs::write(path.join(&name), format!("{{\"event\":{},\"error\":\"no. {id}\"}}\n", event(id).as_json()))
        .unwrap();
    name
}

fn opened(path: &Path) -> Directory {
    Directory::open(path).unwrap()
}

#[test]
fn entries_come_the_oldest_first_and_damaged_ones_stop_nobody() {
    let place = directory();
    for (millis, id) in [(1_767_225_600_003, "c"), (1_767_225_600_001, "a"), (1_767_225_600_004, "d")] {
        write(place.path(), millis, id);
    }
    fs::write(place.file("1767225600002-b.jsonl"), "{\"event\":").unwrap();
    let found: Vec<_> = opened(place.path()).entries(Filter::all()).map(Result::unwrap).collect();
    let shown: Vec<_> = found
        .iter()
        .map(|found| match found {
            Found::Entry(entry) => entry.event.id().to_owned(),
            Found::Damaged(damaged) => format!("damaged {}", damaged.place),
        })
        .collect();
    assert_eq!(shown, ["a", "damaged 1767225600002-b.jsonl", "c", "d"]);
}

#[test]
fn one_entry_is_found_by_its_place() {
    let place = directory();
    let name = write(place.path(), 1_767_225_600_000, "a");
    let directory = opened(place.path());
    let found = directory.inspect(&name.parse().unwrap()).unwrap().entry().unwrap();
    assert_eq!((found.event.id(), found.error.as_str()), ("a", "no. a"));
    for missing in [format!("{name}:2"), "1-x.jsonl".to_owned()] {
        assert!(matches!(directory.inspect(&missing.parse().unwrap()), Err(Error::NoEntry(_))), "{missing}");
    }
}

#[test]
fn a_check_tells_everything_and_changes_nothing() {
    let place = directory();
    write(place.path(), 1_767_225_600_000, "a");
    for (name, content) in [
        ("1767225600001-empty.jsonl", ""),
        ("1767225600002-torn.jsonl", "{\"event\":{\"id\":\"x\""),
        (".1767225600003-0000000000000001.tmp", "{\"ev"),
        ("notes.txt", "buy milk"),
    ] {
        fs::write(place.file(name), content).unwrap();
    }
    let fresh = format!(".{}-0000000000000002.tmp", SystemClock.now().timestamp_millis());
    fs::write(place.file(&fresh), "{").unwrap();
    let before = names(place.path());

    let mut findings = Vec::new();
    let checked = opened(place.path()).fsck(|finding| findings.push(finding)).unwrap();
    assert_eq!((checked.sound, checked.damaged, checked.leftovers, checked.foreign), (1, 2, 1, 1));
    let told: Vec<_> = findings
        .iter()
        .map(|finding| match finding {
            Finding::Damaged { first, .. } => first.place.to_string(),
            Finding::Leftover(name) | Finding::Foreign(name) => name.clone(),
            other => format!("{other:?}"),
        })
        .collect();
    for name in [
        "1767225600001-empty.jsonl",
        "1767225600002-torn.jsonl",
        ".1767225600003-0000000000000001.tmp",
        "notes.txt",
    ] {
        assert!(told.contains(&name.to_owned()), "{name}: {told:?}");
    }
    assert_eq!(names(place.path()), before);
}

#[test]
fn a_damaged_file_is_told_once_with_its_first_line_and_how_many_there_are() {
    let place = directory();
    let good = format!("{{\"event\":{},\"error\":\"e\"}}\n", event("x").as_json());
    fs::write(
        place.file("1767225600000-rolling-a.jsonl"),
        good.clone() + &"nonsense\n".repeat(11_925) + &good,
    )
    .unwrap();
    fs::write(place.file("1767225600001-b.jsonl"), "nonsense\n").unwrap();
    let mut told = Vec::new();
    let checked = opened(place.path()).fsck(|finding| told.push(finding)).unwrap();
    assert_eq!((checked.sound, checked.damaged), (2, 11_926));
    let told: Vec<_> = told
        .into_iter()
        .map(|finding| match finding {
            Finding::Damaged { first, lines, .. } => (first.place.to_string(), lines),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [("1767225600000-rolling-a.jsonl:2", 11_925), ("1767225600001-b.jsonl", 1)];
    assert_eq!(told, expected.map(|(place, lines)| (place.to_owned(), lines)));
}

#[tokio::test]
async fn a_file_whose_name_is_no_text_is_seen_by_every_tool_and_sent_by_none() {
    let place = directory();
    write(place.path(), 1_767_225_600_000, "a");
    let content = fs::read(place.file("1767225600000-a.jsonl")).unwrap();
    for name in [&b"1767225600001-\xff.jsonl"[..], b".1767225600001-\xff.tmp", b"n\xfftes"] {
        fs::write(place.path().join(OsStr::from_bytes(name)), &content).unwrap();
    }
    let directory = opened(place.path());
    let mut told = Vec::new();
    let checked = directory.fsck(|finding| told.push(format!("{finding:?}"))).unwrap();
    assert_eq!((checked.sound, checked.damaged, checked.foreign), (1, 1, 1), "{told:?}");
    assert!(told[0].contains(r"1767225600001-\\xff.jsonl") && told[0].contains("not UTF-8 text"), "{told:?}");

    let listed: Vec<_> = directory.entries(Filter::all()).map(Result::unwrap).collect();
    assert!(matches!(&listed[..], [Found::Entry(_), Found::Damaged(_)]), "{listed:?}");
    let before = names_of_bytes(place.path());
    let taken = |_: CloudEvent| async { Ok::<(), Failure>(()) };
    let sent = directory.redrive(Filter::all().event_id("none")).to(taken).await.unwrap();
    assert_eq!((sent.delivered, sent.damaged), (0, 1));
    let purged = directory.purge(Filter::all()).dry_run(true).run().unwrap();
    assert_eq!((purged.events, purged.kept), (1, 1));
    assert_eq!(names_of_bytes(place.path()), before);
}

fn names_of_bytes(path: &Path) -> BTreeSet<OsString> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_purge_deletes_what_is_old_and_leftovers_and_leaves_what_is_damaged() {
    let place = directory();
    write(place.path(), 1_000_000_000_000, "old");
    write(place.path(), 1_767_225_600_000, "new");
    for name in ["1000000000001-torn.jsonl", ".1000000000002-0000000000000001.tmp", "notes.txt"] {
        fs::write(place.file(name), "{").unwrap();
    }
    let several = format!("{{\"event\":{},\"error\":\"e\"}}\nnonsense\n", event("x").as_json());
    fs::write(place.file("1000000000003-several.jsonl"), several).unwrap();

    let moment = backstop_core::Timestamp::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let purge = || opened(place.path()).purge(Filter::all().until(moment));
    let would = purge().dry_run(true).run().unwrap();
    assert_eq!((would.events, would.files, would.kept), (1, 2, 1));
    assert_eq!(names(place.path()).len(), 6);
    assert_eq!(purge().run().unwrap(), would);
    assert_eq!(
        names(place.path()),
        ["1000000000001-torn.jsonl", "1000000000003-several.jsonl", "1767225600000-new.jsonl", "notes.txt"]
    );
}

#[test]
fn an_export_is_a_copy_one_to_a_line() {
    let place = directory();
    write(place.path(), 1_767_225_600_000, "a");
    write(place.path(), 1_767_225_600_001, "b");
    fs::write(place.file("1767225600002-torn.jsonl"), "{").unwrap();
    let (mut events, mut records) = (Vec::new(), Vec::new());
    let directory = opened(place.path());
    let done = directory.export(Filter::all(), Form::Events, &mut events).unwrap();
    directory.export(Filter::all().event_id("b"), Form::Records, &mut records).unwrap();
    assert_eq!((done.exported, done.damaged), (2, 1));
    assert_eq!(
        String::from_utf8(events).unwrap(),
        format!("{}\n{}\n", event("a").as_json(), event("b").as_json())
    );
    assert_eq!(records, fs::read(place.file("1767225600001-b.jsonl")).unwrap());
    assert_eq!(names(place.path()).len(), 3);
}

#[test]
fn filters_pick_by_time_type_and_error() {
    let place = directory();
    for number in 0..10 {
        write(place.path(), 1_767_225_600_000 + number, &number.to_string());
    }
    let at = |millis: u64| {
        backstop_core::Timestamp::UNIX_EPOCH + Duration::from_millis(1_767_225_600_000 + millis)
    };
    let count = |filter| opened(place.path()).entries(filter).count();
    assert_eq!(count(Filter::all().since(at(3)).until(at(7))), 4);
    assert_eq!(count(Filter::all().error_contains("no. 5")), 1);
    assert_eq!(count(Filter::all().event_type("OrderPlaced")), 10);
    assert_eq!(count(Filter::all().event_type("Other")), 0);
    assert_eq!(ids(place.path()).len(), 10);
}

#[test]
fn a_directory_that_is_not_there_is_told() {
    let place = directory();
    assert!(matches!(Directory::open(place.file("nowhere")), Err(Error::NoDirectory(_))));
}
