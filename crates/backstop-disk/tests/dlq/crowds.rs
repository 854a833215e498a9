//! Many who fail at once are stored together, and with the same promises: complete on disk, or the sender has the error.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};

use backstop_core::{CloudEvent, Sink};
use backstop_disk::dlq::{DlqSink, Setup};
use backstop_disk::fs::{Disk, Filesystem};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::eventually;
use backstop_testkit::servers::directory;
use tokio::task::JoinSet;

use crate::fake_disk::{EIO, ENOSPC, EOPNOTSUPP, FakeDisk, Fault};
use crate::faults::{PLACE, assert_kept, disk, readable};
use crate::support::{ERROR, closed, event, event_from};

/// Enough to be stored together.
const MANY: usize = 20;

/// The calls that store a crowd together.
const OWN_CALLS: [&str; 5] = ["unwritten bytes", "create unnamed", "write", "sync filesystem", "link"];

fn open(disk: &FakeDisk) -> DlqSink {
    DlqSink::open(closed(), Setup::at(PLACE).filesystem(disk.clone())).unwrap()
}

fn crowd(name: &str) -> impl Iterator<Item = CloudEvent> {
    (0..MANY).map(move |number| event(&format!("{name}{number}")))
}

/// Emits one, and many while the disk is busy with that one, so that they are one batch. Gives back the ids that are
/// said to be safe. `prepare` is called before the batch of many comes to the disk.
async fn emit_crowd(
    sink: &DlqSink,
    disk: &FakeDisk,
    events: impl IntoIterator<Item = CloudEvent>,
    prepare: impl FnOnce(),
) -> Vec<String> {
    let mut told = JoinSet::new();
    let mut emit = |event: CloudEvent| {
        let sink = sink.clone();
        told.spawn(async move {
            let id = event.id().to_owned();
            match sink.emit(event).await {
                Ok(()) => Some(id),
                Err(failure) => {
                    assert_eq!(failure.to_string(), ERROR, "the original failure");
                    None
                }
            }
        });
    };
    disk.hold();
    emit(event("first"));
    eventually("the first is at the disk", async || disk.is_waited_for()).await;
    let before = disk.calls().len();
    events.into_iter().for_each(&mut emit);
    // Tasks that were spawned before this one yields are queued before it.
    tokio::task::yield_now().await;
    prepare();
    disk.release();
    let safe = told.join_all().await.into_iter().flatten().collect();
    assert!(disk.calls().len() > before);
    safe
}

/// The calls that were made for the crowd, without the five of the first.
fn calls_for_crowd(disk: &FakeDisk) -> Vec<&'static str> {
    let calls = disk.calls();
    let first = calls.iter().position(|call| *call == "sync directory").unwrap();
    calls[first + 1..].to_vec()
}

/// Rules: D-030.
#[tokio::test]
async fn a_crowd_is_safe_without_names_before_it_gets_names_and_with_names_before_anybody_is_told() {
    let disk = disk();
    let safe = emit_crowd(&open(&disk), &disk, crowd("a"), || ()).await;
    assert_eq!(safe.len(), 1 + MANY);
    assert_kept("no fault", &disk, &safe, false);
    let calls = calls_for_crowd(&disk);
    let (written, named) = calls.split_at(1 + 2 * MANY + 1);
    assert_eq!((written[0], written[1 + 2 * MANY]), ("unwritten bytes", "sync filesystem"));
    assert!(written[1..=2 * MANY].chunks(2).all(|pair| pair == ["create unnamed", "write"]), "{written:?}");
    assert_eq!(named[..MANY], ["link"; MANY]);
    assert_eq!(named[MANY..], ["sync filesystem"]);
}

/// Rules: D-030, D-036, D-038.
#[tokio::test]
async fn whatever_fails_together_is_stored_on_its_own_and_nobody_has_an_error() {
    for call in OWN_CALLS {
        for code in [ENOSPC, EIO, EOPNOTSUPP] {
            for number in 0.. {
                let disk = disk();
                let sink = open(&disk);
                // The first writes once; that write is no part of the crowd.
                let nth = number + usize::from(call == "write");
                let safe =
                    emit_crowd(&sink, &disk, crowd("a"), || disk.fail_nth(call, nth, Fault::Error(code)))
                        .await;
                if disk.faulted().is_none() {
                    assert!(number > 0, "{call} is not called");
                    break;
                }
                let what = format!("error {code} at {call} {number}");
                assert_eq!(safe.len(), 1 + MANY, "{what}");
                assert_kept(&what, &disk, &safe, false);
                assert_eq!(readable(&disk).len(), 1 + MANY, "{what}: nothing is there twice");
            }
        }
    }
}

/// Rules: D-030, D-036, D-038.
#[tokio::test]
async fn where_nothing_can_be_stored_together_each_fault_is_the_events_own() {
    for unsupported in ["create unnamed", "sync filesystem", "link"] {
        for (call, lost) in [("create", 1), ("sync", 1), ("rename", 1), ("sync directory", MANY)] {
            let disk = disk();
            disk.fail_always(unsupported, EOPNOTSUPP);
            // Each of these is called once for the first.
            let fail = || disk.fail_nth(call, 1, Fault::Error(EIO));
            let safe = emit_crowd(&open(&disk), &disk, crowd("a"), fail).await;
            let what = format!("no {unsupported}, error at {call}");
            assert_eq!(safe.len(), 1 + MANY - lost, "{what}");
            assert_kept(&what, &disk, &safe, false);
            assert_eq!(readable(&disk).len(), safe.len(), "{what}: what failed is not there");
        }
    }
}

#[tokio::test]
async fn what_a_filesystem_cannot_do_is_tried_only_once() {
    for unsupported in ["create unnamed", "sync filesystem", "link"] {
        let disk = disk();
        let sink = open(&disk);
        disk.fail_always(unsupported, EOPNOTSUPP);
        assert_eq!(emit_crowd(&sink, &disk, crowd("a"), || ()).await.len(), 1 + MANY);
        let tried = disk.calls().len();
        assert_eq!(emit_crowd(&sink, &disk, crowd("b"), || ()).await.len(), 1 + MANY);
        let again = &disk.calls()[tried..];
        assert!(!again.contains(&"create unnamed") && !again.contains(&"unwritten bytes"), "{again:?}");
    }
}

#[tokio::test]
async fn a_crowd_does_not_wait_for_all_that_others_have_left_unwritten() {
    let disk = disk();
    let sink = open(&disk);
    disk.set_unwritten(1 << 30);
    assert_eq!(emit_crowd(&sink, &disk, crowd("a"), || ()).await.len(), 1 + MANY);
    assert!(!disk.calls().contains(&"sync filesystem"), "{:?}", disk.calls());

    disk.set_unwritten(1 << 20);
    assert_eq!(emit_crowd(&sink, &disk, crowd("b"), || ()).await.len(), 1 + MANY);
    assert!(disk.calls().contains(&"sync filesystem"));
}

/// Rules: D-030, D-038.
#[tokio::test]
async fn wherever_the_power_is_cut_in_a_crowd_what_was_told_is_safe_has_survived() {
    let mut cuts = 0;
    for call in 0.. {
        let disk = disk();
        let safe = emit_crowd(&open(&disk), &disk, crowd("a"), || disk.fail_at(call, Fault::PowerCut)).await;
        let Some(name) = disk.faulted() else { break };
        assert_kept(&format!("cut at call {call}, {name}"), &disk, &safe, false);
        cuts += 1;
    }
    assert!(cuts >= 3 * MANY, "only {cuts} cuts");
}

/// Rules: D-027.
#[tokio::test]
async fn a_crowd_with_one_id_in_one_millisecond_has_a_file_for_each() {
    let disk = disk();
    let settings = Setup::at(PLACE).filesystem(disk.clone()).clock(ManualClock::new());
    let sink = DlqSink::open(closed(), settings).unwrap();
    let alike = (0..MANY).map(|number| event_from(&format!("/source/{}", number / 2), "first"));
    assert_eq!(emit_crowd(&sink, &disk, alike, || ()).await.len(), 1 + MANY);
    assert_eq!(readable(&disk), vec!["first"; 1 + MANY]);
    assert_eq!(disk.calls().iter().filter(|call| **call == "sync filesystem").count(), 2);
}

/// Rules: D-018, D-027.
#[test]
fn a_file_without_a_name_is_its_owners_and_takes_no_name_that_is_taken() {
    let (place, elsewhere) = (directory(), directory());
    let (fair, taken, link) = (place.file("fair"), place.file("taken"), place.file("link"));
    fs::write(&taken, "older").unwrap();
    symlink(elsewhere.file("made"), &link).unwrap();
    let mut file = match Disk.create_unnamed(place.path()) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            return backstop_testkit::skip("needs a filesystem with files that have no name");
        }
        file => file.unwrap(),
    };
    file.write_all(b"dear reader").unwrap();
    assert!(!file.is_named().unwrap());
    for other in [&taken, &link] {
        assert_eq!(file.link_new(other).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    file.link_new(&fair).unwrap();
    assert!(file.is_named().unwrap());
    assert_eq!(fs::read_to_string(&fair).unwrap(), "dear reader");
    assert_eq!(fs::metadata(&fair).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&taken).unwrap(), "older");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    match file.sync_filesystem() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => panic!("{error}"),
        _ => {}
    }
}

/// Whichever way its batches went.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_on_a_real_disk_leaves_one_private_file_for_each_and_nothing_else() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path())).unwrap();
    let mut told = JoinSet::new();
    for number in 0..300 {
        let sink = sink.clone();
        told.spawn(async move { sink.emit(event(&format!("{number:03}"))).await });
    }
    assert!(told.join_all().await.into_iter().all(|told| told.is_ok()));
    let files: Vec<_> = fs::read_dir(place.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 300);
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file.path().extension().unwrap(), "jsonl");
        assert!(fs::read(file.path()).unwrap().ends_with(b"}\n"));
    }
}
