//! Rolling mode: many events in one file, with the same promises and the same tools.

use std::fs;
use std::time::Duration;

use backstop_core::{CloudEvent, Failure, SharedSink, Sink};
use backstop_disk::dlq::{Directory, DlqSink, Filter, Rolling, Setup};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::{eventually, servers::directory};

use crate::support::{Kept, closed, emit_all, entries, event, ids, names, refusing};

const FOREVER: Rolling = Rolling {
    enabled: true,
    max_bytes: u64::MAX,
    max_age: Duration::from_secs(86_400),
    idle: Duration::from_secs(86_400),
};

fn numbered(count: u32) -> impl Iterator<Item = CloudEvent> {
    (0..count).map(|number| event(&format!("{number:03}")))
}

#[tokio::test]
async fn many_events_are_lines_of_one_file_each_a_record_of_the_same_shape() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, numbered(20)).await;
    let names = names(place.path());
    assert_eq!(names.len(), 1, "{names:?}");
    let content = fs::read_to_string(place.file(&names[0])).unwrap();
    assert_eq!(content.lines().count(), 20);
    assert!(content.lines().all(|line| line.starts_with("{\"event\":{") && line.ends_with('}')));
    let stored = entries(&Directory::open(place.path()).unwrap());
    assert_eq!(stored[2].place.to_string(), format!("{}:3", names[0]));
    assert_eq!(stored.len(), 20);
}

#[tokio::test]
async fn a_file_is_left_when_it_is_large_old_or_idle() {
    let (clock, place) = (ManualClock::new(), directory());
    let small = Rolling { max_bytes: 400, ..FOREVER };
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(small)).unwrap();
    emit_all(&sink, numbered(9)).await;
    assert_eq!(names(place.path()).len(), 3, "three of some 170 bytes fill a file of 400");

    let place = directory();
    let young = Rolling { max_age: Duration::from_secs(60), ..FOREVER };
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(young).clock(clock.clone())).unwrap();
    emit_all(&sink, numbered(2)).await;
    clock.advance(Duration::from_secs(61));
    emit_all(&sink, numbered(2)).await;
    assert_eq!(names(place.path()).len(), 2, "the third event found it too old, the fourth began another");

    let place = directory();
    let hasty = Rolling { idle: Duration::from_millis(20), ..FOREVER };
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(hasty)).unwrap();
    emit_all(&sink, numbered(1)).await;
    let opened = Directory::open(place.path()).unwrap();
    eventually("the idle file can be sent", async || {
        opened.redrive(Filter::all()).to(Kept::default()).await.unwrap().delivered == 1
    })
    .await;
    assert_eq!(names(place.path()), [""; 0]);
}

#[tokio::test]
async fn a_file_that_is_written_to_is_shown_but_not_sent() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, numbered(3)).await;
    let (opened, kept) = (Directory::open(place.path()).unwrap(), Kept::default());
    assert_eq!(entries(&opened).len(), 3);
    let done = opened.redrive(Filter::all()).to(kept.clone()).await.unwrap();
    assert_eq!((done.busy, done.delivered), (1, 0));
    assert_eq!(opened.purge(Filter::all()).run().unwrap().kept, 1);
    emit_all(&sink, [event("later")]).await;
    assert_eq!(entries(&opened).len(), 4);

    drop(sink);
    eventually("the writer has let go", async || {
        opened.redrive(Filter::all()).to(kept.clone()).await.unwrap().delivered == 4
    })
    .await;
    assert_eq!(kept.ids(), ["000", "001", "002", "later"]);
    assert_eq!(names(place.path()), [""; 0]);
}

#[tokio::test]
async fn a_file_that_somebody_removes_is_noticed_before_anybody_is_told_that_all_is_well() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, [event("1")]).await;
    fs::remove_file(place.file(&names(place.path())[0])).unwrap();
    emit_all(&sink, [event("2")]).await;
    assert_eq!(ids(place.path()), ["2"]);
}

#[tokio::test]
async fn what_was_sent_from_a_file_is_marked_and_the_rest_stays_until_it_is_sent_too() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, numbered(200)).await;
    drop(sink);
    let (opened, kept) = (Directory::open(place.path()).unwrap(), Kept::default());
    let sink = || refusing(&["007", "150"], kept.clone());
    eventually("the writer has let go", async || {
        opened.redrive(Filter::all()).to(sink()).await.unwrap().delivered > 0
    })
    .await;
    assert_eq!(kept.ids().len(), 198);
    assert_eq!(ids(place.path()), ["007", "150"]);

    // Sent again, only the two are; then the file and its marks are gone.
    let done = opened.redrive(Filter::all()).to(kept.clone()).await.unwrap();
    assert_eq!((done.matched, done.delivered), (2, 2));
    assert_eq!(names(place.path()), [""; 0]);
}

#[tokio::test]
async fn a_redrive_that_begins_behind_a_line_sends_the_lines_behind_it_and_keeps_the_others() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, numbered(6)).await;
    drop(sink);
    let (opened, kept) = (Directory::open(place.path()).unwrap(), Kept::default());
    let third = entries(&opened)[2].place.clone();
    assert_eq!(third.line(), 3);
    eventually("the writer has let go", async || {
        opened.redrive(Filter::all()).after(&third).to(kept.clone()).await.unwrap().delivered > 0
    })
    .await;
    assert_eq!(kept.ids(), ["003", "004", "005"]);
    assert_eq!(ids(place.path()), ["000", "001", "002"]);
}

#[tokio::test]
async fn a_redrive_whose_limit_ends_inside_a_file_keeps_the_lines_that_were_not_sent() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, numbered(6)).await;
    drop(sink);
    let (opened, kept) = (Directory::open(place.path()).unwrap(), Kept::default());
    eventually("the writer has let go", async || {
        opened.redrive(Filter::all()).limit(4).to(kept.clone()).await.unwrap().delivered > 0
    })
    .await;
    assert_eq!(kept.ids(), ["000", "001", "002", "003"]);
    assert_eq!(ids(place.path()), ["004", "005"]);

    // The next one goes on there, and a limit that ends with the file leaves nothing of it.
    let done = opened.redrive(Filter::all()).limit(2).to(kept.clone()).await.unwrap();
    assert_eq!((done.delivered, kept.ids().len()), (2, 6));
    assert_eq!(names(place.path()), [""; 0]);
}

#[tokio::test]
async fn a_sink_that_goes_away_inside_a_file_leaves_the_lines_that_were_not_sent() {
    let place = directory();
    let sink = DlqSink::open(closed(), Setup::at(place.path()).rolling(FOREVER)).unwrap();
    emit_all(&sink, numbered(6)).await;
    drop(sink);
    let (opened, kept) = (Directory::open(place.path()).unwrap(), Kept::default());
    let closes = |kept: Kept| {
        SharedSink::new(move |event: CloudEvent| {
            let kept = kept.clone();
            async move {
                if kept.ids().len() == 4 {
                    return Err(Failure::retry_after(Duration::from_secs(3600)));
                }
                kept.emit(event).await
            }
        })
    };
    eventually("the writer has let go", async || {
        opened.redrive(Filter::all()).to(closes(kept.clone())).await.unwrap().delivered > 0
    })
    .await;
    assert_eq!(kept.ids(), ["000", "001", "002", "003"]);
    assert_eq!(ids(place.path()), ["004", "005"]);
}
