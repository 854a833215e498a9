//! Sending again: what arrived is removed, nothing else is, and no crash or fault loses an event.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backstop_core::{CloudEvent, Failure, SharedSink, Sink};
use backstop_disk::dlq::{Directory, DlqSink, Filter, Place, Setup};
use backstop_testkit::servers::directory;

use crate::fake_disk::{EIO, Fault};
use crate::faults::{PLACE, disk, layouts, readable};
use crate::support::{Kept, closed, emit_all, event, failing_into, ids, names, refusing};

async fn filled(path: &Path, count: u32) -> Directory {
    emit_all(&failing_into(path), (0..count).map(|number| event(&format!("{number:03}")))).await;
    Directory::open(path).unwrap()
}

#[tokio::test]
async fn what_arrives_is_removed_and_what_is_refused_stays() {
    let (place, kept) = (directory(), Kept::default());
    let directory = filled(place.path(), 10).await;
    let done = directory.redrive(Filter::all()).to(refusing(&["003", "007"], kept.clone())).await.unwrap();
    assert_eq!((done.matched, done.delivered, done.failed, done.not_removed), (10, 8, 2, 0));
    assert_eq!(done.last_failure.as_deref(), Some("schema: refused"));
    assert_eq!(ids(place.path()), ["003", "007"]);
    assert!(!kept.ids().contains(&"003".to_owned()));
    assert_eq!(kept.all()[0], event("000"));

    let done = directory.redrive(Filter::all()).to(kept.clone()).await.unwrap();
    assert_eq!((done.delivered, names(place.path()).len()), (2, 0));
}

#[tokio::test]
async fn one_or_those_that_match_are_sent_and_the_others_stay() {
    let (place, kept) = (directory(), Kept::default());
    let directory = filled(place.path(), 5).await;
    let second = names(place.path())[1].parse().unwrap();
    directory.redrive(Filter::only(second)).to(kept.clone()).await.unwrap();
    assert_eq!(kept.ids(), ["001"]);
    directory.redrive(Filter::all().event_id("003")).to(kept.clone()).await.unwrap();
    assert_eq!(kept.ids(), ["001", "003"]);
    assert_eq!(ids(place.path()), ["000", "002", "004"]);
}

#[tokio::test]
async fn a_dry_run_counts_and_a_limit_ends_it() {
    let (place, kept) = (directory(), Kept::default());
    let directory = filled(place.path(), 9).await;
    let would = directory.redrive(Filter::all()).dry_run(true).to(kept.clone()).await.unwrap();
    assert_eq!((would.matched, would.delivered, kept.ids().len(), names(place.path()).len()), (9, 0, 0, 9));
    let done = directory.redrive(Filter::all()).limit(4).to(kept.clone()).await.unwrap();
    assert_eq!((done.delivered, names(place.path()).len()), (4, 5));
    assert_eq!(kept.ids(), ["000", "001", "002", "003"]);
}

#[tokio::test]
async fn it_begins_behind_the_place_where_another_ended() {
    let place = directory();
    let directory = filled(place.path(), 6).await;
    let broken = directory.redrive(Filter::all()).limit(3).to(closed()).await.unwrap();
    assert_eq!(broken.failed, 3);
    let kept = Kept::default();
    directory.redrive(Filter::all()).after(&broken.last.unwrap()).to(kept.clone()).await.unwrap();
    assert_eq!(kept.ids(), ["003", "004", "005"]);
}

/// A sink that is unavailable this many times before it takes an event, and then again.
fn away_before_each(times: usize, wait: Duration, kept: Kept) -> impl Sink {
    let tries = Arc::new(Mutex::new(0));
    SharedSink::new(move |event: CloudEvent| {
        let (kept, tries) = (kept.clone(), Arc::clone(&tries));
        async move {
            let away = {
                let mut tries = tries.lock().unwrap();
                *tries += 1;
                *tries % (times + 1) != 0
            };
            if away {
                return Err(Failure::retry_after(wait).class_is("unavailable").message_is("closed"));
            }
            kept.emit(event).await
        }
    })
}

#[tokio::test]
async fn a_sink_that_is_away_is_waited_for_and_the_same_entry_is_sent_again() {
    let (place, kept) = (directory(), Kept::default());
    let directory = filled(place.path(), 4).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let wait = Duration::from_millis(12);
    // Each event that is taken gives the patience back: eight waits of 12 ms are more than 40 ms.
    let done = directory
        .redrive(Filter::all())
        .patience(Duration::from_millis(40))
        .on_progress(move |progress| telling.lock().unwrap().extend(progress.waiting.clone()))
        .to(away_before_each(2, wait, kept.clone()))
        .await
        .unwrap();
    assert_eq!((done.matched, done.delivered, done.failed, done.stopped), (4, 4, 0, None));
    assert_eq!((kept.ids().join(" "), done.waiting), ("000 001 002 003".to_owned(), None));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 8);
    assert_eq!((told[0].wait, told[0].why.as_str()), (wait, "unavailable: closed"));
    assert!(told[0].at == told[1].at && told[1].at < told[2].at, "{told:?}");
}

#[tokio::test]
async fn when_patience_is_over_it_stops_and_the_next_one_goes_on_there() {
    for (wait, patience) in
        [(Duration::ZERO, Duration::ZERO), (Duration::from_secs(3600), Duration::from_secs(600))]
    {
        let (place, kept) = (directory(), Kept::default());
        let directory = filled(place.path(), 9).await;
        let files = names(place.path());
        let tries = Arc::new(Mutex::new(0));
        let closes = SharedSink::new({
            let (kept, tries) = (kept.clone(), Arc::clone(&tries));
            move |event: CloudEvent| {
                let (kept, tries) = (kept.clone(), Arc::clone(&tries));
                async move {
                    *tries.lock().unwrap() += 1;
                    if kept.ids().len() == 2 {
                        Err(Failure::retry_after(wait))
                    } else {
                        kept.emit(event).await
                    }
                }
            }
        });
        let done = directory.redrive(Filter::all()).patience(patience).to(closes).await.unwrap();
        assert_eq!((done.delivered, done.failed, *tries.lock().unwrap()), (2, 0, 3));
        assert_eq!(done.stopped.unwrap().at.file(), files[2]);
        assert_eq!(done.last.as_ref().map(Place::file), Some(files[1].as_str()));
        assert_eq!(names(place.path()), files[2..]);

        directory.redrive(Filter::all()).after(&done.last.unwrap()).to(kept.clone()).await.unwrap();
        assert_eq!((kept.ids().len(), names(place.path()).len()), (9, 0));
    }
}

#[tokio::test]
async fn whoever_stops_listening_while_it_waits_ends_it() {
    let place = directory();
    let directory = filled(place.path(), 2).await;
    let (tell, told) = std::sync::mpsc::channel();
    let redrive = directory.redrive(Filter::all()).patience(Duration::from_secs(86_400));
    let redrive = redrive.on_progress(move |progress| tell.send(progress.waiting.is_some()).unwrap());
    let an_hour = SharedSink::new(|_: CloudEvent| async {
        Err::<(), _>(Failure::retry_after(Duration::from_secs(3600)))
    });
    let task = tokio::spawn(redrive.to(an_hour));
    let told = tokio::task::spawn_blocking(move || {
        assert!(told.recv().unwrap(), "it waits");
        told
    });
    let told = told.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // The thread lets go of what it holds, and so of the channel; otherwise this would last for ever.
    tokio::task::spawn_blocking(move || assert!(told.recv().is_err())).await.unwrap();
    assert_eq!(names(place.path()).len(), 2);
}

#[tokio::test]
async fn the_rate_is_kept_and_progress_is_told() {
    let place = directory();
    let directory = filled(place.path(), 11).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let began = Instant::now();
    let redrive = directory.redrive(Filter::all()).per_second(50);
    redrive
        .on_progress(move |progress| telling.lock().unwrap().push(progress.delivered))
        .to(Kept::default())
        .await
        .unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200), "ten gaps of 20 ms took {:?}", began.elapsed());
    assert_eq!(*told.lock().unwrap(), (1..=11).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_fails_anew_is_left_for_the_next_time() {
    let place = directory();
    let directory = filled(place.path(), 20).await;
    // The target still fails, and has this very directory behind it.
    let again = DlqSink::open(closed(), Setup::at(place.path())).unwrap();
    let done = directory.redrive(Filter::all()).to(again).await.unwrap();
    assert_eq!(done.delivered, 20);
    assert_eq!(ids(place.path()).len(), 20);
}

#[tokio::test]
async fn damaged_files_are_left_alone() {
    let (place, kept) = (directory(), Kept::default());
    let directory = filled(place.path(), 3).await;
    fs::write(place.file("1767225600000-torn.jsonl"), "{\"event\":{\"id\"").unwrap();
    let done = directory.redrive(Filter::all()).to(kept.clone()).await.unwrap();
    assert_eq!((done.delivered, done.damaged), (3, 1));
    assert_eq!(names(place.path()), ["1767225600000-torn.jsonl"]);
}

#[tokio::test]
async fn two_at_once_send_each_event_once() {
    let (place, kept) = (directory(), Kept::default());
    let directory = filled(place.path(), 60).await;
    let slow = |kept: Kept| {
        SharedSink::new(move |event: CloudEvent| {
            let kept = kept.clone();
            async move {
                tokio::task::yield_now().await;
                kept.emit(event).await
            }
        })
    };
    let (one, two) = tokio::join!(
        directory.redrive(Filter::all()).to(slow(kept.clone())),
        directory.redrive(Filter::all()).to(slow(kept.clone())),
    );
    assert_eq!(one.unwrap().delivered + two.unwrap().delivered, 60);
    let mut sent = kept.ids();
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), 60);
    assert_eq!(names(place.path()), [""; 0]);
}

#[tokio::test]
async fn a_sink_that_panics_removes_nothing_and_the_panic_is_the_callers() {
    let place = directory();
    let directory = filled(place.path(), 2).await;
    let panicking = SharedSink::new(|event: CloudEvent| async move {
        assert_ne!(event.id(), "001", "on purpose");
        Ok::<(), Failure>(())
    });
    let task = tokio::spawn(async move { directory.redrive(Filter::all()).to(panicking).await });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(ids(place.path()), ["001"]);
}

/// Faults and power cuts at every call: each event has arrived, or is still on the disk.
#[tokio::test]
async fn whatever_happens_while_sending_nothing_is_lost() {
    for (layout, settings) in layouts() {
        for fault in [Fault::Error(EIO), Fault::PowerCut] {
            let mut faults = 0;
            for call in 0.. {
                let disk = disk();
                let sink = DlqSink::open(closed(), settings.clone().filesystem(disk.clone())).unwrap();
                emit_all(&sink, ["1", "2", "3", "4"].map(event)).await;
                drop(sink);
                let (before, kept) = (disk.after_crash(1), Kept::default());
                let directory = Directory::open_on(PLACE, before.clone()).unwrap();
                before.fail_at(call, fault);
                let _ = directory.redrive(Filter::all()).to(refusing(&["2"], kept.clone())).await;
                let Some(name) = before.faulted() else { break };
                faults += 1;
                for seed in 0..8 {
                    let after = before.after_crash(seed);
                    let there = readable(&after);
                    for id in ["1", "2", "3", "4"] {
                        let somewhere =
                            kept.ids().iter().any(|sent| sent == id) || there.iter().any(|it| it == id);
                        assert!(
                            somewhere,
                            "{layout}, {fault:?} at {call}, {name}, crash {seed}: {id} is lost"
                        );
                    }
                    assert!(there.contains(&"2".to_owned()), "what was refused stays");
                }
            }
            assert!(faults > 8, "{layout}: only {faults}");
        }
    }
}

/// A redrive that is started again after a crash sends what is left, and at most one batch twice.
#[tokio::test]
async fn started_again_it_goes_on_where_it_was() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.filesystem(disk.clone())).unwrap();
        emit_all(&sink, (0..300).map(|number| event(&format!("{number:03}")))).await;
        drop(sink);
        let before = disk.after_crash(3);
        let kept = Kept::default();
        // The power is cut at the two hundredth delivery.
        let cutting = SharedSink::new({
            let (kept, disk) = (kept.clone(), before.clone());
            move |event: CloudEvent| {
                let (kept, disk) = (kept.clone(), disk.clone());
                async move {
                    if kept.ids().len() == 199 {
                        disk.fail_at(0, Fault::PowerCut);
                    }
                    kept.emit(event).await
                }
            }
        });
        let _ = Directory::open_on(PLACE, before.clone()).unwrap().redrive(Filter::all()).to(cutting).await;
        let after = before.after_crash(5);
        Directory::open_on(PLACE, after.clone())
            .unwrap()
            .redrive(Filter::all())
            .to(kept.clone())
            .await
            .unwrap();
        assert!(readable(&after).is_empty(), "{layout}");
        let (mut sent, all) = (kept.ids(), kept.ids().len());
        sent.sort();
        sent.dedup();
        assert_eq!(sent.len(), 300, "{layout}");
        assert!(all - 300 <= 65, "{layout}: {} were sent twice", all - 300);
    }
}

/// A file goes before its marks: without them everything in it would be sent again.
#[tokio::test]
async fn a_file_that_cannot_be_removed_keeps_its_marks_and_tells_what_will_be_sent_again() {
    let [_, (_, settings)] = layouts();
    let disk = disk();
    let sink = DlqSink::open(closed(), settings.filesystem(disk.clone())).unwrap();
    emit_all(&sink, ["1", "2", "3", "4", "5", "6"].map(event)).await;
    drop(sink);
    // Its writer is gone as well after that.
    let disk = disk.after_crash(1);
    let directory = Directory::open_on(PLACE, disk.clone()).unwrap();
    directory.redrive(Filter::all()).limit(3).to(Kept::default()).await.unwrap();
    disk.fail_nth("remove", 0, Fault::Error(EIO));
    let done = directory.redrive(Filter::all()).to(Kept::default()).await.unwrap();
    assert_eq!(disk.faulted(), Some("remove"));
    assert_eq!((done.delivered, done.not_removed), (3, 3));
    assert_eq!(readable(&disk), ["4", "5", "6"], "what was marked before stays so");

    let done = directory.redrive(Filter::all()).to(Kept::default()).await.unwrap();
    assert_eq!((done.delivered, done.not_removed), (3, 0));
    assert!(readable(&disk).is_empty());
    assert!(disk.files_ending(".sent").is_empty() && disk.files_ending(".jsonl").is_empty());
}
