//! Ids that somebody chose in order to do harm, and directories that somebody prepared.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use backstop_core::Sink;
use backstop_disk::dlq::{Directory, DlqSink, Filter, Found, Rolling, Setup};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::eventually;
use backstop_testkit::servers::directory;

use crate::support::{Kept, closed, emit_all, entries, event, event_from, failing_into, ids, names};

/// Rules: D-015, D-017, D-018, D-027.
#[tokio::test]
async fn no_id_escapes_collides_or_is_lost() {
    let outer = directory();
    let path = outer.file("dlq");
    fs::create_dir(&path).unwrap();
    let ids: Vec<String> = [
        "../../etc/passwd",
        "..",
        ".",
        "",
        "/",
        "\\",
        "a/b",
        "a\\b",
        "a_b",
        "a b",
        "a\0b",
        "\0",
        "é",
        "ü",
        "日本語",
        "😀",
        "*",
        "?",
        "[a-z]",
        "{a,b}",
        "~",
        "$HOME",
        "`id`",
        "-rf",
        "--",
        ".hidden",
        "x.jsonl",
        "x.tmp",
        "con",
        "a\nb",
        "\u{202e}",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([300, 255, 254, 236, 235, 10_240].map(|length| "x".repeat(length)))
    .chain([300, 10_240].map(|length| "x".repeat(length - 1) + "y"))
    .chain(["é".repeat(300), "../".repeat(100)])
    .collect();

    // Twice, with a clock that stands still.
    let sink = DlqSink::open(closed(), Setup::at(&path).clock(ManualClock::new())).unwrap();
    for _ in 0..2 {
        for id in &ids {
            sink.emit(event(id)).await.unwrap();
        }
    }

    let stored = entries(&Directory::open(&path).unwrap());
    assert_eq!(stored.len(), 2 * ids.len());
    for id in &ids {
        assert_eq!(stored.iter().filter(|entry| entry.event.id() == id).count(), 2, "{id:?}");
    }
    assert_eq!(names(outer.path()), ["dlq"]);
    for name in names(&path) {
        assert!(
            name.len() <= 255 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
            "{name}"
        );
        assert!(fs::symlink_metadata(path.join(&name)).unwrap().is_file());
    }
}

/// Rules: D-027.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_id_from_ten_thousand_sources_is_ten_thousand_files() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).clock(ManualClock::new())).unwrap();
    let emitters: Vec<_> = (0..100)
        .map(|tens| {
            let sink = sink.clone();
            tokio::spawn(async move {
                for source in tens * 100..(tens + 1) * 100 {
                    sink.emit(event_from(&format!("/source/{source}"), "42")).await.unwrap();
                }
            })
        })
        .collect();
    for emitter in emitters {
        emitter.await.unwrap();
    }
    let directory = Directory::open(place.path()).unwrap();
    let sources: HashSet<_> =
        entries(&directory).iter().map(|entry| entry.event.source().to_owned()).collect();
    assert_eq!((sources.len(), names(place.path()).len()), (10_000, 10_000));
}

/// A name that is taken by something else is left alone, whatever it is.
#[tokio::test]
async fn links_and_folders_in_the_way_are_neither_followed_nor_replaced() {
    let (place, elsewhere) = (directory(), directory());
    let victim = elsewhere.file("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, place.file("1893456000000-link.jsonl")).unwrap();
    symlink(elsewhere.file("made"), place.file("1893456000000-dangling.jsonl")).unwrap();
    fs::create_dir(place.file("1893456000000-folder.jsonl")).unwrap();
    fs::write(place.file("1893456000000-file.jsonl"), "older").unwrap();

    let sink = DlqSink::open(closed(), Setup::at(place.path()).clock(ManualClock::new())).unwrap();
    for id in ["link", "dangling", "folder", "file"] {
        sink.emit(event(id)).await.unwrap();
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(names(elsewhere.path()), ["victim"]);
    assert_eq!(fs::read_to_string(place.file("1893456000000-file.jsonl")).unwrap(), "older");
    assert_eq!(names(place.path()).len(), 8);

    // Reading follows no link either, and a pipe without a writer holds nobody up.
    let pipe = place.file("1893456000000-pipe.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&victim, format!("{{\"event\":{},\"error\":\"e\"}}\n", event("secret").as_json())).unwrap();
    let found: Vec<_> =
        Directory::open(place.path()).unwrap().entries(Filter::all()).map(Result::unwrap).collect();
    let sound: Vec<_> =
        found.iter().filter_map(|it| it.clone().entry()).map(|it| it.event.id().to_owned()).collect();
    assert_eq!(sound.len(), 4, "{sound:?}");
    assert!(!sound.contains(&"secret".to_owned()));
    assert_eq!(found.iter().filter(|it| matches!(it, Found::Damaged(_))).count(), 5);
}

#[tokio::test]
async fn an_event_of_many_lines_or_with_odd_numbers_comes_back_as_it_was() {
    let place = directory();
    let text = "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\n  \"data\":{\"price\": 1.10, \"big\":12345678901234567890123, \"a\":1,\"a\":2, \"s\":\"\\u00e9\\n\"}}";
    let odd = backstop_core::CloudEvent::from_json(text).unwrap();
    failing_into(place.path()).emit(odd).await.unwrap();
    let stored = entries(&Directory::open(place.path()).unwrap());
    assert_eq!(stored[0].event.as_json(), text.replace('\n', " "));
}

/// Whoever may write to the directory must not be able to have us write, or believe, a file elsewhere.
#[tokio::test]
async fn marks_follow_no_link() {
    let (place, elsewhere) = (directory(), directory());
    let forever = Duration::from_secs(86_400);
    let rolling = Rolling { max_bytes: u64::MAX, max_age: forever, idle: forever, ..Rolling::default() };
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(rolling)).unwrap();
    emit_all(&sink, ["1", "2", "3"].map(event)).await;
    drop(sink);
    let (opened, kept) = (Directory::open(place.path()).unwrap(), Kept::default());
    eventually("the writer has let go", async || {
        opened.redrive(Filter::all()).limit(1).to(kept.clone()).await.unwrap().delivered > 0
    })
    .await;
    let marks = names(place.path()).into_iter().find(|name| name.starts_with('.')).expect("a file of marks");

    // Theirs would say that the first line was sent.
    let victim = elsewhere.file("victim");
    fs::rename(place.file(&marks), &victim).unwrap();
    let before = fs::read_to_string(&victim).unwrap();
    symlink(&victim, place.file(&marks)).unwrap();
    assert_eq!(ids(place.path()), ["1", "2", "3"]);
    let done = opened.redrive(Filter::all()).limit(2).to(kept.clone()).await.unwrap();
    assert_eq!((done.delivered, done.not_removed), (2, 2), "they will be sent again, and that is told");
    assert_eq!(fs::read_to_string(&victim).unwrap(), before);
    assert_eq!(ids(place.path()), ["1", "2", "3"]);

    // Nor is anything made at the end of a link that leads nowhere.
    fs::remove_file(&victim).unwrap();
    opened.redrive(Filter::all()).limit(2).to(kept.clone()).await.unwrap();
    assert_eq!(names(elsewhere.path()), [""; 0]);
    assert_eq!(ids(place.path()), ["1", "2", "3"]);
}
