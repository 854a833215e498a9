//! The power is cut at every call: what anybody was told is safe has survived.

use std::path::Path;

use backstop_core::Sink;
use backstop_disk::Error;
use backstop_disk::dlq::{Directory, DlqSink, Filter, Setup};

use crate::fake_disk::{EIO, FakeDisk, Fault};
use crate::faults::{CRASHES, PLACE, assert_kept, disk, emit_some, layouts, readable};
use crate::support::{Kept, closed, emit_all, event, refusing};

/// Rules: D-030, D-038.
#[tokio::test]
async fn wherever_the_power_is_cut_what_was_told_is_safe_has_survived() {
    for (layout, settings) in layouts() {
        let mut cuts = 0;
        for call in 0.. {
            let disk = disk();
            let sink = DlqSink::open(closed(), settings.clone().filesystem(disk.clone())).unwrap();
            disk.fail_at(call, Fault::PowerCut);
            let safe = emit_some(&sink).await;
            let Some(name) = disk.faulted() else { break };
            assert_kept(&format!("{layout}, cut at call {call}, {name}"), &disk, &safe, layout == "rolling");
            cuts += 1;
        }
        assert!(cuts >= 7, "{layout}: only {cuts} cuts");
    }
}

#[tokio::test]
async fn after_a_crash_the_next_process_goes_on_beside_what_is_left() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.clone().filesystem(disk.clone())).unwrap();
        let mut safe = emit_some(&sink).await;
        disk.fail_at(1, Fault::PowerCut);
        assert!(sink.emit(event("lost")).await.is_err());
        for seed in 0..8 {
            let after = disk.after_crash(seed);
            let sink = DlqSink::open(closed(), settings.clone().filesystem(after.clone())).unwrap();
            sink.emit(event("new")).await.unwrap();
            safe.push("new".to_owned());
            assert_kept(layout, &after, &safe, layout == "rolling");
            safe.pop();
        }
    }
}

/// The name of a directory is kept by the one above it, so each of those has to be told as well.
///
/// Rules: D-038.
#[tokio::test]
async fn a_directory_that_we_made_survives_with_all_its_parents() {
    for (outermost, path) in [("/var", "/var/lib/shop/dlq"), (".", "dlq"), (".", "shop/dlq")] {
        let disk = FakeDisk::with_directory(Path::new(outermost));
        let settings = Setup::at(path).create(true).filesystem(disk.clone());
        let sink = DlqSink::open(closed(), settings.clone()).unwrap();
        sink.emit(event("1")).await.unwrap();
        for seed in 0..CRASHES {
            let after = disk.after_crash(seed);
            let directory = Directory::open_on(path, after).unwrap_or_else(|error| panic!("{seed}: {error}"));
            assert_eq!(directory.entries(Filter::all()).count(), 1, "{path}, crash {seed}");
        }
        // What is there is not made again.
        let made = disk.calls().iter().filter(|call| **call == "create directory").count();
        DlqSink::open(closed(), settings).unwrap();
        assert_eq!(disk.calls().iter().filter(|call| **call == "create directory").count(), made, "{path}");
    }
}

#[test]
fn a_directory_whose_name_cannot_be_made_safe_is_not_begun_with() {
    for number in 0..3 {
        let disk = FakeDisk::with_directory(Path::new("/var"));
        disk.fail_nth("sync directory", number, Fault::Error(EIO));
        let settings = Setup::at("/var/lib/shop/dlq").create(true).filesystem(disk);
        let refused = DlqSink::open(closed(), settings).unwrap_err();
        assert!(matches!(refused, Error::Unwritable { .. }), "{number}: {refused}");
    }
}

/// A removed file and a marked line alike: when the redrive has ended, no crash brings them back.
#[tokio::test]
async fn what_was_sent_again_stays_sent() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.filesystem(disk.clone())).unwrap();
        emit_all(&sink, ["1", "2", "3", "4"].map(event)).await;
        drop(sink);
        // Its writer is gone as well after that.
        let disk = disk.after_crash(1);
        let directory = Directory::open_on(PLACE, disk.clone()).unwrap();
        directory.redrive(Filter::all()).to(refusing(&["2"], Kept::default())).await.unwrap();
        for seed in 0..CRASHES {
            assert_eq!(readable(&disk.after_crash(seed)), ["2"], "{layout}, crash {seed}");
        }
    }
}

#[tokio::test]
async fn what_was_purged_stays_deleted() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.filesystem(disk.clone())).unwrap();
        emit_all(&sink, ["1", "2"].map(event)).await;
        drop(sink);
        let disk = disk.after_crash(1);
        let directory = Directory::open_on(PLACE, disk.clone()).unwrap();
        assert_eq!(directory.purge(Filter::all()).run().unwrap().events, 2, "{layout}");
        for seed in 0..CRASHES {
            assert_eq!(readable(&disk.after_crash(seed)), [""; 0], "{layout}, crash {seed}");
        }
    }
}
