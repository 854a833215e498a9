//! Every call to the filesystem fails once: the event is in a complete file, or its sender has the original error.

use std::path::Path;
use std::time::Duration;

use backstop_core::{CloudEvent, Sink};
use backstop_disk::dlq::{Directory, DlqSink, Filter, Rolling, Setup};

use crate::fake_disk::{EIO, ENOSPC, FakeDisk, Fault};
use crate::support::{ERROR, Kept, closed, event};

pub(crate) const PLACE: &str = "/dlq";

/// How many ways a crash may turn out that are looked at.
pub(crate) const CRASHES: u64 = 24;

pub(crate) fn disk() -> FakeDisk {
    FakeDisk::with_directory(Path::new(PLACE))
}

pub(crate) fn layouts() -> [(&'static str, Setup); 2] {
    let settings = Setup::at(PLACE);
    [("files", settings.clone()), ("rolling", settings.rolling(Rolling::default()))]
}

/// The ids that can be read from a disk.
pub(crate) fn readable(disk: &FakeDisk) -> Vec<String> {
    let directory = Directory::open_on(PLACE, disk.clone()).unwrap();
    let found = directory.entries(Filter::all()).map(Result::unwrap);
    found.filter_map(|found| Some(found.entry()?.event.id().to_owned())).collect()
}

/// Emits three side by side and one more, and gives back the ids that are said to be safe.
pub(crate) async fn emit_some(sink: &DlqSink) -> Vec<String> {
    let told = |event: CloudEvent| async move {
        let id = event.id().to_owned();
        match sink.emit(event).await {
            Ok(()) => Some(id),
            Err(failure) => {
                assert_eq!(failure.to_string(), ERROR, "the original failure");
                None
            }
        }
    };
    let together = tokio::join!(told(event("a")), told(event("b/")), told(event("c")));
    let alone = told(event("a")).await;
    [together.0, together.1, together.2, alone].into_iter().flatten().collect()
}

/// Everything that was said to be safe is there now and after any crash, and nothing is half there.
pub(crate) fn assert_kept(what: &str, disk: &FakeDisk, safe: &[String], may_be_torn: bool) {
    for seed in 0..CRASHES {
        let after = disk.after_crash(seed);
        let mut there = readable(&after);
        for id in safe {
            let at = there.iter().position(|known| known == id);
            let at = at.unwrap_or_else(|| panic!("{what}: {id} is lost in crash {seed}"));
            there.swap_remove(at);
        }
        for (name, content) in after.files_ending(".jsonl").into_iter().filter(|_| !may_be_torn) {
            assert!(content.ends_with(b"}\n"), "{what}: {name} is torn in crash {seed}");
        }
    }
}

/// Rules: D-030, D-036, D-038.
#[tokio::test]
async fn whichever_call_fails_the_event_is_complete_on_disk_or_the_sender_has_the_error() {
    for (layout, settings) in layouts() {
        let own = if layout == "files" { &["rename"][..] } else { &["lock", "is named"] };
        for call in ["create", "write", "sync", "sync directory"].iter().chain(own).copied() {
            for code in [ENOSPC, EIO] {
                for number in 0.. {
                    let disk = disk();
                    let sink = DlqSink::open(closed(), settings.clone().filesystem(disk.clone())).unwrap();
                    disk.fail_nth(call, number, Fault::Error(code));
                    let safe = emit_some(&sink).await;
                    if disk.faulted().is_none() {
                        assert!(number > 0, "{layout} does not call {call}");
                        break;
                    }
                    let what = format!("{layout}, error {code} at {call} {number}");
                    assert_kept(&what, &disk, &safe, layout == "rolling");

                    // It works again as soon as the disk does.
                    assert!(sink.emit(event("later")).await.is_ok(), "{what}");
                    assert_kept(&what, &disk, &["later".to_owned()], layout == "rolling");
                }
            }
        }
    }
}

/// Rules: D-030.
#[tokio::test]
async fn data_is_synced_before_it_gets_its_name_and_the_name_before_anybody_is_told() {
    let disk = disk();
    let sink = DlqSink::open(closed(), Setup::at(PLACE).filesystem(disk.clone())).unwrap();
    let before = disk.calls().len();
    sink.emit(event("1")).await.unwrap();
    assert_eq!(disk.calls()[before..], ["create", "write", "sync", "rename", "sync directory"]);
}

#[test]
fn a_disk_that_fails_at_the_start_is_told_at_the_start() {
    for call in 0.. {
        let disk = disk();
        disk.fail_at(call, Fault::Error(EIO));
        let opened = DlqSink::open(closed(), Setup::at(PLACE).filesystem(disk.clone()));
        let Some(name) = disk.faulted() else { break };
        assert!(opened.is_err(), "{name}");
        assert!(disk.files_ending(".jsonl").is_empty());
    }
}

/// A bug must not turn into senders who wait for ever.
#[tokio::test]
async fn a_writer_that_panics_leaves_nobody_waiting() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.filesystem(disk.clone())).unwrap();
        disk.fail_nth("create", 0, Fault::Panic);
        for number in 0..3 {
            let told = tokio::time::timeout(Duration::from_secs(30), sink.emit(event("1"))).await;
            let told = told.unwrap_or_else(|_| panic!("{layout}: emit {number} waits"));
            assert_eq!(told.unwrap_err().to_string(), ERROR, "{layout}");
        }
    }
}

/// Somebody else has sent and removed it after it was found, and let go of the lock.
#[tokio::test]
async fn a_file_that_vanishes_between_opening_and_locking_is_neither_sent_nor_counted() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.filesystem(disk.clone())).unwrap();
        sink.emit(event("1")).await.unwrap();
        drop(sink);

        let (raced, kept) = (disk.after_crash(1), Kept::default());
        raced.fail_nth("lock", 0, Fault::Removed);
        let directory = Directory::open_on(PLACE, raced.clone()).unwrap();
        let done = directory.redrive(Filter::all()).to(kept.clone()).await.unwrap();
        assert_eq!(raced.faulted(), Some("lock"), "{layout}");
        assert_eq!((kept.ids().len(), done.matched, done.busy, done.damaged), (0, 0, 0, 0), "{layout}");

        let raced = disk.after_crash(1);
        raced.fail_nth("lock", 0, Fault::Removed);
        let purged = Directory::open_on(PLACE, raced.clone()).unwrap().purge(Filter::all()).run().unwrap();
        assert_eq!(raced.faulted(), Some("lock"), "{layout}");
        assert_eq!((purged.events, purged.files, purged.kept), (0, 0, 0), "{layout}");
    }
}
