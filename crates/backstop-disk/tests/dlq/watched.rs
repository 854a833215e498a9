//! The directory on the operator's page: counted so far, shown by its oldest, and honest about its disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use backstop_core::burial::{Bury, Cause};
use backstop_core::inspect::{Count, Health, Inspect, Report};
use backstop_core::{Clock, SystemClock};
use backstop_disk::dlq::{DeadLetters, Rolling, Setup};
use backstop_disk::fs::{Disk, Filesystem, Names, Reading, Writing};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::eventually;
use backstop_testkit::servers::directory;

use crate::fake_disk::{ENOSPC, FakeDisk, Fault};
use crate::support::event;

fn cause() -> Cause {
    Cause::new("http-422: no such product at https://joe:s3cret@shop/", SystemClock.now()).attempts(3)
}

fn flow(report: &Report, name: &str) -> u64 {
    report.flows.iter().find(|flow| flow.name == name).unwrap().total
}

#[tokio::test]
async fn letters_are_counted_and_the_oldest_shown_first() {
    let place = directory();
    let clock = ManualClock::new();
    let settings = Setup::at(place.path()).name("orders").details(true).clock(clock);
    let letters = DeadLetters::open(settings).unwrap();
    let empty = letters.report().await;
    assert_eq!((empty.kind, empty.name.as_str(), &empty.health), ("dead letters", "orders", &Health::Up));
    assert_eq!((empty.places[0].name, empty.places[0].count), ("stored", Count::exactly(0)));

    for number in 0..12 {
        let moment = SystemClock.now() + std::time::Duration::from_secs(number);
        let cause = Cause::new("timeout", moment).attempts(3);
        letters.bury(event(&number.to_string()), cause).await.unwrap();
    }
    eventually("the page sees them", async || letters.report().await.places[0].count == Count::exactly(12))
        .await;
    let report = letters.report().await;
    let ids: Vec<_> = report.troubled.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let first = &report.troubled[0];
    assert_eq!((first.event_type.as_str(), first.attempts, first.place), ("OrderPlaced", 3, "stored"));
    assert_eq!((first.error.as_deref(), first.next_attempt_at), (Some("timeout"), None));
    assert_eq!((flow(&report, "stored"), flow(&report, "refused")), (12, 0));
    assert!(fs::read_dir(place.path()).unwrap().all(|entry| !is_hidden(&entry.unwrap().path())));
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with('.')
}

#[tokio::test]
async fn counting_ends_at_ten_thousand_and_what_is_damaged_or_huge_is_counted_only() {
    let place = directory();
    for number in 0..10_050 {
        fs::write(place.file(format!("{}-{number}.jsonl", 1_767_225_600_000_u64 + number)), "torn").unwrap();
    }
    let huge =
        format!(r#"{{"event":{{"id":"{}","source":"s","type":"t"}},"error":"e"}}"#, "x".repeat(300_000));
    fs::write(place.file("0-huge.jsonl"), huge).unwrap();
    let letters = DeadLetters::open(Setup::at(place.path())).unwrap();
    // A busy disk may take longer than the page waits; the look goes on, and a later report shows it.
    eventually("the look is over", async || !letters.report().await.places.is_empty()).await;
    let report = letters.report().await;
    assert_eq!(report.name, place.path().display().to_string());
    assert_eq!(report.places[0].count, Count { events: 10_000, capped: true });
    assert_eq!((report.troubled.len(), report.health), (0, Health::Up));
}

#[tokio::test]
async fn an_error_is_kept_without_its_password_and_details_tell_the_target() {
    for (settings, key) in [(false, ""), (true, "\"target\":\"warehouse\"")] {
        let place = directory();
        let letters = DeadLetters::open(Setup::at(place.path()).details(settings)).unwrap();
        letters.towards("warehouse").bury(event("1"), cause()).await.unwrap();
        let (_, text) = crate::support::only_file(place.path());
        assert!(text.contains("https://***@shop/") && !text.contains("s3cret"), "{text}");
        assert!(text.contains(key), "{text}");
        assert_eq!(text.contains("backstop"), settings, "{text}");
        // Nobody knows when the first of three tries failed.
        assert!(!text.contains("first_failed_at"), "{text}");
    }
}

#[tokio::test]
async fn an_event_that_was_not_stored_degrades_it_until_one_is() {
    let path = Path::new("/dlq");
    let disk = FakeDisk::with_directory(path);
    for settings in [Setup::at(path), Setup::at(path).rolling(Rolling::default())] {
        let letters = DeadLetters::open(settings.filesystem(disk.clone())).unwrap();
        disk.fail_nth("write", 0, Fault::Error(ENOSPC));
        let refused = letters.bury(event("1"), cause()).await.unwrap_err();
        assert_eq!(refused.class(), "dead-letters");
        let report = letters.report().await;
        let Health::Degraded(why) = &report.health else { panic!("{report:?}") };
        assert!(why.contains("No space left on device"), "{why}");
        assert_eq!((flow(&report, "stored"), flow(&report, "refused")), (0, 1));

        letters.bury(event("2"), cause()).await.unwrap();
        assert_eq!(letters.report().await.health, Health::Up);
    }
}

#[tokio::test]
async fn a_refusal_is_forgotten_after_a_minute_in_which_the_directory_was_well() {
    let clock = ManualClock::new();
    let disk = FakeDisk::with_directory(Path::new("/dlq"));
    let setup = Setup::at("/dlq").filesystem(disk.clone()).clock(clock.clone());
    let letters = DeadLetters::open(setup).unwrap();
    disk.fail_nth("write", 0, Fault::Error(ENOSPC));
    letters.bury(event("1"), cause()).await.unwrap_err();
    clock.advance(Duration::from_secs(59));
    assert!(matches!(letters.report().await.health, Health::Degraded(_)));
    clock.advance(Duration::from_secs(1));
    assert_eq!(letters.report().await.health, Health::Up);
    assert_eq!(flow(&letters.report().await, "refused"), 1, "that it happened is not forgotten");
}

#[tokio::test]
async fn a_directory_that_is_gone_or_cannot_be_written_is_down() {
    let place = directory();
    let path = place.file("dlq");
    let letters = DeadLetters::open(Setup::at(&path).create(true)).unwrap();
    fs::remove_dir(&path).unwrap();
    let report = letters.report().await;
    assert!(matches!(&report.health, Health::Down(why) if why.contains("cannot be read")), "{report:?}");
    assert!(letters.bury(event("1"), cause()).await.is_err());
    // It is noticed when it is back.
    fs::create_dir(&path).unwrap();
    letters.bury(event("2"), cause()).await.unwrap();
    eventually("it is well again", async || letters.report().await.health == Health::Up).await;

    let fake = FakeDisk::with_directory(Path::new("/dlq"));
    let letters = DeadLetters::open(Setup::at("/dlq").filesystem(fake.clone())).unwrap();
    fake.fail_nth("create", 0, Fault::Error(ENOSPC));
    let report = letters.report().await;
    assert!(matches!(&report.health, Health::Down(why) if why.contains("cannot be written")), "{report:?}");

    // Room for a name, and none for a byte.
    let fake = FakeDisk::with_directory(Path::new("/dlq"));
    let letters = DeadLetters::open(Setup::at("/dlq").filesystem(fake.clone())).unwrap();
    fake.fail_nth("write", 0, Fault::Error(ENOSPC));
    let report = letters.report().await;
    assert!(matches!(&report.health, Health::Down(why) if why.contains("cannot be written")), "{report:?}");
}

/// A disk whose listings wait for leave.
#[derive(Debug)]
struct Slow {
    listings: Arc<AtomicUsize>,
    leave: Mutex<Receiver<()>>,
}

impl Slow {
    fn new() -> (Self, Sender<()>, Arc<AtomicUsize>) {
        let (sender, receiver) = channel();
        let listings = Arc::new(AtomicUsize::new(0));
        (Self { listings: listings.clone(), leave: Mutex::new(receiver) }, sender, listings)
    }
}

impl Filesystem for Slow {
    fn names(&self, path: &Path) -> std::io::Result<Names> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        let _ = self.leave.lock().unwrap().recv();
        Disk.names(path)
    }

    fn create_new(&self, path: &Path) -> std::io::Result<Box<dyn Writing>> {
        Disk.create_new(path)
    }

    fn create_unnamed(&self, directory: &Path) -> std::io::Result<Box<dyn Writing>> {
        Disk.create_unnamed(directory)
    }

    fn unwritten_bytes(&self) -> std::io::Result<u64> {
        Disk.unwritten_bytes()
    }

    fn append(&self, path: &Path) -> std::io::Result<Box<dyn Writing>> {
        Disk.append(path)
    }

    fn open(&self, path: &Path) -> std::io::Result<Box<dyn Reading>> {
        Disk.open(path)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        Disk.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        Disk.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> std::io::Result<()> {
        Disk.sync_directory(path)
    }

    fn create_directory(&self, path: &Path) -> std::io::Result<()> {
        Disk.create_directory(path)
    }

    fn is_directory(&self, path: &Path) -> std::io::Result<bool> {
        Disk.is_directory(path)
    }
}

#[tokio::test]
async fn a_disk_that_hangs_is_looked_at_by_one_thread_however_many_ask() {
    let place = directory();
    let (slow, leave, listings) = Slow::new();
    let letters = DeadLetters::open(Setup::at(place.path()).filesystem(slow)).unwrap();
    let hung = Health::Down("its disk does not answer".to_owned());
    let ask = async || letters.report().await.health;
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    assert_eq!([one, two, three], [hung.clone(), hung.clone(), hung]);
    // Whoever stops waiting does not begin another look either.
    let soon = std::time::Duration::from_millis(20);
    eventually("somebody asks again", async || tokio::time::timeout(soon, letters.report()).await.is_err())
        .await;
    assert_eq!(listings.load(Ordering::Relaxed), 1);

    leave.send(()).unwrap();
    eventually("the disk answers", async || ask().await == Health::Up).await;
    // What was found serves the next who ask.
    assert_eq!(letters.report().await.places[0].count, Count::exactly(0));
    assert_eq!(listings.load(Ordering::Relaxed), 1);
}
