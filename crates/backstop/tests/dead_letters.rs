//! An outbox with a dead-letter directory behind it: what dies is in a file too, and the table never lies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop::dead_letters::{Bury as _, Cause, DeadLetters, Directory, Entry, Filter, Setup};
use backstop::outbox::{Builder, SingleNode};
use backstop::retry::Exponential;
use backstop::{CloudEvent, Event, Failure, Outbox, Outcome};
use backstop_testkit::{eventually, servers};
use sqlx::{Sqlite, SqlitePool};

/// Three tries, a millisecond apart.
fn builder(pool: &SqlitePool) -> Builder<Sqlite, SingleNode> {
    Outbox::single_node(pool.clone())
        .name("orders")
        .max_attempts(3)
        .retry_policy(Exponential { base: Duration::from_millis(1), max: Duration::from_millis(1) })
        .interval(Duration::from_millis(10))
}

async fn append(outbox: &Outbox<Sqlite>, id: &str) {
    let event = Event::of("OrderPlaced").id(id).aggregate("Order", "42").json(&["tea"]).unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(event).await.unwrap();
    tx.commit().await.unwrap();
}

/// The status of an event's row, and what went wrong.
async fn row(pool: &SqlitePool, id: &str) -> (i64, Option<String>) {
    let row = sqlx::query_as("select status, last_error from outbox_event where event_id = ?");
    row.bind(id).fetch_one(pool).await.unwrap()
}

async fn until_settled(pool: &SqlitePool, id: &str) -> (i64, Option<String>) {
    eventually("the row is settled for good", async || [1, 3].contains(&row(pool, id).await.0)).await;
    row(pool, id).await
}

fn letters(path: &Path) -> Vec<Entry> {
    let entries = Directory::open(path).unwrap().entries(Filter::all());
    entries.map(|found| found.unwrap().entry().expect("a sound letter")).collect()
}

fn refused() -> Failure {
    Failure::transient("http-500", "https://joe:s3cret@shop/hooks failed")
}

#[tokio::test]
async fn an_event_whose_tries_are_used_up_is_one_file_with_its_error_and_a_dead_row() {
    let (database, place) = (servers::sqlite(), servers::directory());
    let pool = database.pool().await;
    let directory = DeadLetters::open(Setup::at(place.path()).details(true)).unwrap();
    let (path, tries) = (place.path().to_owned(), Arc::new(AtomicU32::new(0)));
    let outbox = builder(&pool)
        .on("Order", "OrderPlaced", {
            let tries = tries.clone();
            move |_: Event| {
                tries.fetch_add(1, Ordering::Relaxed);
                // A try that is followed by another leaves no file.
                assert!(letters(&path).is_empty(), "nothing is written before the last attempt has failed");
                async { Err::<(), _>(refused()) }
            }
        })
        .dead_letters(directory.towards("warehouse"))
        .start()
        .await
        .unwrap();
    append(&outbox, "o-1").await;

    let (status, error) = until_settled(&pool, "o-1").await;
    outbox.close().await.unwrap();
    assert_eq!((status, tries.load(Ordering::Relaxed)), (3, 3));
    assert!(error.unwrap().contains("http-500"));
    let [letter] = &letters(place.path())[..] else { panic!("one letter") };
    assert_eq!((letter.event.id(), letter.event.source()), ("o-1", "/outbox/orders"));
    let event = letter.event.to_event().unwrap();
    assert_eq!((event.aggregate_id(), event.payload_json()), (Some("42"), r#"["tea"]"#));
    assert_eq!(letter.error, "http-500: https://***@shop/hooks failed");
    let details = letter.details.as_ref().unwrap();
    assert_eq!((details.attempts, details.target.as_deref()), (3, Some("warehouse")));
    assert_eq!(outbox.metrics().letter_failed.total(), 0);
}

#[tokio::test]
async fn a_retry_or_a_deferral_that_ends_well_leaves_no_file() {
    let (database, place) = (servers::sqlite(), servers::directory());
    let pool = database.pool().await;
    let tries = AtomicU32::new(0);
    let outbox = builder(&pool)
        .on("Order", "OrderPlaced", move |_: Event| {
            let answer = match tries.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err(refused()),
                2 => Ok(Outcome::retry_after(Duration::from_millis(1))),
                _ => Ok(Outcome::Done),
            };
            async { answer }
        })
        .dead_letters(DeadLetters::open(Setup::at(place.path())).unwrap())
        .start()
        .await
        .unwrap();
    append(&outbox, "o-1").await;
    assert_eq!(until_settled(&pool, "o-1").await.0, 1);
    outbox.close().await.unwrap();
    assert_eq!(letters(place.path()).len(), 0);
}

#[tokio::test]
async fn whatever_buries_an_event_its_letter_says_so_and_each_handler_may_have_its_directory() {
    let (database, all, own) = (servers::sqlite(), servers::directory(), servers::directory());
    let pool = database.pool().await;
    let outbox = builder(&pool)
        .on("Order", "OrderPlaced", |event: Event| async move {
            match event.id() {
                "given-up" => Ok(Outcome::dead_because("cancelled")),
                _ => Err(Failure::permanent("schema", "no total")),
            }
        })
        .on("Order", "OrderPaid", |_: Event| async { Outcome::dead() })
        .source("/shop")
        .dead_letters(DeadLetters::open(Setup::at(all.path())).unwrap())
        .dead_letters_of("Order", "OrderPaid", DeadLetters::open(Setup::at(own.path())).unwrap())
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    for (id, event_type) in
        [("given-up", "OrderPlaced"), ("wrong", "OrderPlaced"), ("lost", "Unknown"), ("paid", "OrderPaid")]
    {
        tx.append(Event::of(event_type).id(id).aggregate("Order", "1").json(&()).unwrap()).await.unwrap();
    }
    tx.commit().await.unwrap();
    for id in ["given-up", "wrong", "lost", "paid"] {
        assert_eq!(until_settled(&pool, id).await.0, 3, "{id}");
    }
    outbox.close().await.unwrap();

    let mut told: Vec<_> =
        letters(all.path()).into_iter().map(|letter| (letter.event.id().to_owned(), letter.error)).collect();
    told.sort();
    let errors: Vec<_> = told.iter().map(|(id, error)| (id.as_str(), error.as_str())).collect();
    assert_eq!(errors[0], ("given-up", "cancelled"));
    assert!(errors[1].0 == "lost" && errors[1].1.starts_with("unroutable: no handler"), "{errors:?}");
    assert_eq!(errors[2], ("wrong", "schema: no total"));
    let [letter] = &letters(own.path())[..] else { panic!("one letter") };
    assert_eq!((letter.event.id(), letter.event.source(), errors.len()), ("paid", "/shop", 3));
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_leaves_the_row_dead_and_is_counted() {
    let (database, place) = (servers::sqlite(), servers::directory());
    let pool = database.pool().await;
    let path = place.file("dlq");
    let directory = DeadLetters::open(Setup::at(&path).create(true)).unwrap();
    let outbox = builder(&pool)
        .on("Order", "OrderPlaced", |_: Event| async { Err::<(), _>(Failure::permanent("schema", "no")) })
        .dead_letters(directory.clone())
        .start()
        .await
        .unwrap();
    // The disk is gone.
    std::fs::remove_dir(&path).unwrap();
    append(&outbox, "o-1").await;
    let settled = until_settled(&pool, "o-1").await;
    assert_eq!((settled.0, settled.1.as_deref()), (3, Some("schema: no")));
    assert_eq!((outbox.metrics().letter_failed.total(), directory.metrics().refused.total()), (1, 1));

    // It comes back, and so does the event: somebody replays it, and now there is a letter.
    std::fs::create_dir(&path).unwrap();
    assert!(outbox.dead().replay("o-1").await.unwrap());
    eventually("the event dies again", async || directory.metrics().stored.total() == 1).await;
    assert_eq!(until_settled(&pool, "o-1").await.0, 3);
    outbox.close().await.unwrap();
    assert_eq!(letters(&path)[0].event.id(), "o-1");
}

#[tokio::test]
async fn what_hangs_or_panics_instead_of_taking_letters_holds_no_worker() {
    let database = servers::sqlite();
    let pool = database.pool().await;
    let outbox = builder(&pool)
        .on("Order", "OrderPlaced", |_: Event| async { Outcome::dead_because("no") })
        .worker_count(1)
        .dead_letter_timeout(Duration::from_millis(50))
        .dead_letters(|event: CloudEvent, _: Cause| async move {
            assert_ne!(event.id(), "panics", "on purpose");
            std::future::pending::<Result<(), Failure>>().await
        })
        .start()
        .await
        .unwrap();
    for id in ["hangs", "panics"] {
        append(&outbox, id).await;
        let settled = until_settled(&pool, id).await;
        assert_eq!((settled.0, settled.1.as_deref()), (3, Some("no")), "{id}");
    }
    assert_eq!(outbox.metrics().letter_failed.total(), 2);
    outbox.close().await.unwrap();
}

/// As after a crash between the letter and the row.
#[tokio::test]
async fn an_outbox_that_ends_before_the_row_says_dead_repeats_the_event_and_its_letter() {
    let (database, place) = (servers::sqlite(), servers::directory());
    let pool = database.pool().await;
    let directory = DeadLetters::open(Setup::at(place.path())).unwrap();
    let dies = || builder(&pool).on("Order", "OrderPlaced", |_: Event| async { Outcome::dead_because("no") });
    let writing = directory.clone();
    let broken = dies()
        .drain_timeout(Duration::from_millis(50))
        .dead_letters(move |event: CloudEvent, cause: Cause| {
            let writing = writing.clone();
            async move {
                writing.bury(event, cause).await?;
                std::future::pending::<Result<(), Failure>>().await
            }
        })
        .start()
        .await
        .unwrap();
    append(&broken, "o-1").await;
    eventually("the letter is written", async || directory.metrics().stored.total() == 1).await;
    assert!(broken.close().await.is_err(), "the drain time-out is over");
    assert_eq!(row(&pool, "o-1").await.0, 0, "the row waits");

    let outbox = dies().dead_letters(directory).start().await.unwrap();
    assert_eq!(until_settled(&pool, "o-1").await.0, 3);
    outbox.close().await.unwrap();
    let ids: Vec<_> = letters(place.path()).iter().map(|letter| letter.event.id().to_owned()).collect();
    assert_eq!(ids, ["o-1", "o-1"], "once more, and never less");
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_named() {
    let database = servers::sqlite();
    let pool = database.pool().await;
    let started = builder(&pool).source("").dead_letter_timeout(Duration::ZERO).start().await;
    let told = started.unwrap_err().to_string();
    assert!(
        told.contains("dead-letter-timeout") && told.contains("source must be a text that is not empty"),
        "{told}"
    );
}
