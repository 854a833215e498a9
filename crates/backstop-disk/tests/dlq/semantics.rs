//! What a failed emit does: the file, the log line, and what the caller is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::failure::Kind;
use backstop_core::{Clock, CloudEvent, Failure, SharedSink, Sink};
use backstop_disk::Error;
use backstop_disk::dlq::{Config, Directory, DlqSink, Rolling, Setup};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::logs::Logs;
use backstop_testkit::servers::directory;
use tracing::Level;

use crate::support::{
    ERROR, Kept, closed, emit_all, entries, event, failing_into, failure, names, only_file,
};

const MILLIS: &str = "1893456000000";

fn settings(path: &Path) -> (ManualClock, Setup) {
    let clock = ManualClock::new();
    (clock.clone(), Setup::at(path).clock(clock))
}

/// Rules: D-003, D-011, D-012, D-013, D-019, D-020, D-021, D-022, D-024, D-035.
#[tokio::test]
async fn a_failed_event_is_in_a_file_of_its_own_and_the_caller_is_told_that_all_is_well() {
    let place = directory();
    let (_, settings) = settings(place.path());
    let sink = DlqSink::open(closed(), settings).unwrap();
    let failed = event("42");
    assert!(sink.emit(failed.clone()).await.is_ok());

    let (file, content) = only_file(place.path());
    assert_eq!(file.file_name().unwrap().to_str().unwrap(), format!("{MILLIS}-42.jsonl"));
    assert_eq!(content, format!("{{\"event\":{},\"error\":\"{ERROR}\"}}\n", failed.as_json()));
    assert_eq!((sink.metrics().stored.total(), sink.metrics().refused.total()), (1, 0));
}

/// Rules: D-004, D-005.
#[tokio::test]
async fn an_event_that_is_taken_leaves_no_file() {
    let (place, kept) = (directory(), Kept::default());
    let sink = DlqSink::open(SharedSink::new(kept.clone()), Setup::at(place.path())).unwrap();
    assert!(sink.emit(event("1")).await.is_ok());
    assert_eq!(kept.ids(), ["1"]);
    assert_eq!(names(place.path()), [""; 0]);
}

/// Rules: D-001, D-002, D-049, D-050.
#[tokio::test]
async fn the_wrapper_stands_wherever_its_inner_sink_could_also_around_another_wrapper() {
    fn any(sink: impl Sink) -> SharedSink {
        SharedSink::new(sink)
    }
    let (inside, outside) = (directory(), directory());
    // A closure, a struct and a shared sink are all wrapped alike.
    let inner = failing_into(inside.path());
    let wrapped = DlqSink::open(any(inner), Setup::at(outside.path())).unwrap();
    let shared: SharedSink = any(wrapped);
    shared.emit(event("1")).await.unwrap();
    assert_eq!((names(inside.path()).len(), names(outside.path()).len()), (1, 0));

    // When the inner directory is gone, the outer one catches what the inner sink could not keep.
    fs::remove_dir_all(inside.path()).unwrap();
    shared.emit(event("2")).await.unwrap();
    assert_eq!(
        only_file(outside.path()).1,
        format!("{{\"event\":{},\"error\":\"{ERROR}\"}}\n", event("2").as_json())
    );
    fs::create_dir(inside.path()).unwrap();
}

/// Rules: D-013.
#[tokio::test]
async fn the_time_in_the_name_is_that_of_the_failure_not_of_the_start() {
    let place = directory();
    let (clock, settings) = settings(place.path());
    let in_sink = clock.clone();
    let slow = SharedSink::new(move |_: CloudEvent| {
        in_sink.advance(Duration::from_millis(250));
        async { Err::<(), _>(failure()) }
    });
    let sink = DlqSink::open(slow, settings).unwrap();
    sink.emit(event("1")).await.unwrap();
    assert_eq!(names(place.path()), ["1893456000250-1.jsonl"]);
}

/// Rules: D-014.
#[tokio::test]
async fn times_do_not_go_back_while_the_clock_does_not() {
    let place = directory();
    let sink = failing_into(place.path());
    let mut last = 0;
    for number in 0..200 {
        sink.emit(event(&number.to_string())).await.unwrap();
        let ending = format!("-{number}.jsonl");
        let name = names(place.path()).into_iter().find(|name| name.ends_with(&ending)).unwrap();
        let millis: u64 = name.split('-').next().unwrap().parse().unwrap();
        assert!(millis >= last, "{name} after {last}");
        last = millis;
    }
}

/// Rules: D-022.
#[tokio::test]
async fn the_error_has_its_causes_and_no_password() {
    let place = directory();
    let leaking = SharedSink::new(|_: CloudEvent| async {
        Err::<(), _>(
            Failure::transient("connect", "cannot reach https://joe:s3cret@warehouse/in")
                .caused_by(std::io::Error::other("connection refused")),
        )
    });
    let logs = Logs::catch();
    DlqSink::open(leaking, Setup::at(place.path())).unwrap().emit(event("1")).await.unwrap();
    let stored = entries(&Directory::open(place.path()).unwrap());
    assert_eq!(stored[0].error, "connect: cannot reach https://***@warehouse/in: connection refused");
    assert!(!logs.all().contains("s3cret"), "{}", logs.all());
}

/// Rules: D-023.
#[tokio::test]
async fn details_are_one_more_key_and_only_when_asked_for() {
    let place = directory();
    let (clock, settings) = settings(place.path());
    let sink = DlqSink::open(closed(), settings.details_for("warehouse")).unwrap();
    sink.emit(event("1")).await.unwrap();
    let stored = &entries(&Directory::open(place.path()).unwrap())[0];
    let details = stored.details.as_ref().unwrap();
    assert_eq!((details.schema, details.attempts), (1, 1));
    assert_eq!((details.first_failed_at, details.last_failed_at), (Some(clock.now()), clock.now()));
    assert_eq!(details.target.as_deref(), Some("warehouse"));

    let plain = directory();
    failing_into(plain.path()).emit(event("1")).await.unwrap();
    let object: serde_json::Value = serde_json::from_str(&only_file(plain.path()).1).unwrap();
    assert_eq!(object.as_object().unwrap().len(), 2);
}

/// Rules: D-031, D-032, D-033.
#[tokio::test]
async fn one_warning_tells_the_event_and_the_error() {
    let place = directory();
    let logs = Logs::catch();
    failing_into(place.path()).emit(event("42")).await.unwrap();
    let lines = logs.having(Level::WARN, "event_id=\"42\"");
    assert_eq!(lines.len(), 1, "{}", logs.all());
    assert!(
        lines[0].contains(&format!("error=\"{ERROR}\"")) && !lines[0].contains("dlq_error"),
        "{}",
        lines[0]
    );
    assert_eq!(logs.having(Level::WARN, "").len(), 1, "{}", logs.all());
}

/// Rules: D-008, D-009, D-034, D-036, D-037, D-038.
#[tokio::test]
async fn if_it_cannot_be_stored_either_the_caller_gets_the_inner_failure_untouched() {
    let place = directory();
    let telling = SharedSink::new(|_: CloudEvent| async {
        Err::<(), _>(
            Failure::retry_after(Duration::from_secs(7))
                .class_is("http-429")
                .message_is("see https://joe:s3cret@warehouse")
                .caused_by(std::io::Error::other("the cause")),
        )
    });
    let sink = DlqSink::open(telling, Setup::at(place.path())).unwrap();
    fs::remove_dir(place.path()).unwrap();

    let logs = Logs::catch();
    let failure = sink.emit(event("42")).await.unwrap_err();
    assert_eq!((failure.class(), failure.kind()), ("http-429", Kind::RetryAfter(Duration::from_secs(7))));
    assert_eq!(failure.message(), Some("see https://joe:s3cret@warehouse"));
    assert!(failure.source().unwrap().is::<std::io::Error>());
    assert_eq!(failure.source().unwrap().to_string(), "the cause");

    let lines = logs.having(Level::WARN, "event_id=\"42\"");
    assert_eq!(lines.len(), 1, "{}", logs.all());
    for part in ["error=\"http-429: ", "dlq_error=cannot create a file: No such file or directory"] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    assert_eq!((sink.metrics().stored.total(), sink.metrics().refused.total()), (0, 1));

    // The directory was not made again; when somebody does, it is used.
    assert!(!place.path().exists());
    fs::create_dir(place.path()).unwrap();
    assert!(sink.emit(event("43")).await.is_ok());
    assert_eq!(names(place.path()).len(), 1);
}

/// Rules: D-025, D-027, D-028, D-029.
#[tokio::test]
async fn each_failure_is_one_more_file_and_none_is_touched_again() {
    let place = directory();
    let (_, settings) = settings(place.path());
    let sink = DlqSink::open(closed(), settings).unwrap();
    let mut before: Vec<(String, String)> = Vec::new();
    // The clock stands still, so every one of them would like to have the same name.
    for number in 1..=300 {
        sink.emit(event("same")).await.unwrap();
        let now = names(place.path());
        assert_eq!(now.len(), number);
        if number % 50 == 0 {
            let content = |name: &String| fs::read_to_string(place.file(name)).unwrap();
            assert!(before.iter().all(|(name, old)| content(name) == *old));
            before = now.iter().map(|name| (name.clone(), content(name))).collect();
        }
    }
}

/// Rules: D-026, D-027.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_emitters_fail_at_once_and_share_the_work() {
    let place = directory();
    let (_, settings) = settings(place.path());
    let sink = DlqSink::open(closed(), settings).unwrap();
    let emitters: Vec<_> = (0..256)
        .map(|emitter| {
            let sink = sink.clone();
            tokio::spawn(async move { sink.emit(event(&format!("{}", emitter % 16))).await })
        })
        .collect();
    for emitter in emitters {
        emitter.await.unwrap().unwrap();
    }
    assert_eq!(entries(&Directory::open(place.path()).unwrap()).len(), 256);
    let commits = sink.metrics().commits.total();
    assert!(commits < 128, "{commits} commits for 256 events");
}

/// Rules: D-026.
#[tokio::test]
async fn an_emitter_whose_inner_sink_is_slow_keeps_nobody_waiting() {
    let place = directory();
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let inner = SharedSink::new(move |event: CloudEvent| {
        let released = Arc::clone(&released);
        async move {
            while event.id() == "slow" && !released.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            Err::<(), _>(failure())
        }
    });
    let sink = DlqSink::open(inner, Setup::at(place.path())).unwrap();
    let slow = tokio::spawn({
        let sink = sink.clone();
        async move { sink.emit(event("slow")).await }
    });
    emit_all(&sink, ["1", "2", "3"].map(event)).await;
    assert!(!slow.is_finished());
    release.store(true, Ordering::Relaxed);
    slow.await.unwrap().unwrap();
    assert_eq!(names(place.path()).len(), 4);
}

#[tokio::test]
async fn files_are_for_their_owner_alone_and_so_is_a_directory_that_we_made() {
    let place = directory();
    let path = place.file("made/by/us");
    let sink = DlqSink::open(closed(), Setup::at(&path).create(true)).unwrap();
    sink.emit(event("1")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&only_file(&path).0), 0o600);
}

#[test]
fn a_directory_that_is_configured_and_unusable_is_refused_with_the_reason() {
    let place = directory();
    fs::write(place.file("file"), "").unwrap();
    let refused = |path: &Path| DlqSink::open(closed(), Setup::at(path)).unwrap_err();
    assert!(matches!(refused(&place.file("nowhere")), Error::NoDirectory(_)));
    assert!(matches!(refused(&place.file("file")), Error::NotADirectory(_)));
    assert!(matches!(refused(Path::new("/proc/self")), Error::Unwritable { .. }));
    let told = refused(&place.file("nowhere")).to_string();
    assert!(told.contains("there is no directory") && told.contains("create it"), "{told}");
    assert!(!place.file("nowhere").exists());
}

#[test]
fn settings_that_cannot_be_used_are_refused_all_at_once() {
    let never = Rolling { max_bytes: 0, max_age: Duration::ZERO, idle: Duration::MAX, ..Rolling::default() };
    let refused = DlqSink::open(closed(), Setup::at("").rolling(never)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the dead-letter directory cannot be opened: directory is required: it says where failed events are kept; \
         rolling.max-bytes must be at least 1; rolling.max-age must be between 1 ms and 3650 days; \
         rolling.idle must be between 1 ms and 3650 days"
    );
    assert!(matches!(refused, Error::Settings { .. }));
}

#[test]
fn a_file_says_what_a_program_says() {
    let read: Config = serde_json::from_str(
        r#"{"directory": "d", "create": true, "metrics-prefix": "x", "rolling": {"enabled": true, "idle": "2s"}}"#,
    )
    .unwrap();
    let rolling = Rolling { enabled: true, idle: Duration::from_secs(2), ..Rolling::default() };
    let metrics_prefix = Some("x".to_owned());
    assert_eq!(read, Config { create: true, metrics_prefix, rolling, ..Config::at("d") });
}
