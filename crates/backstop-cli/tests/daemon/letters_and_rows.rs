//! A dead letter and its row: whichever is sent again, both know of it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, SystemClock};
use backstop_testkit::eventually;
use backstop_testkit::servers::postgres;

use crate::receiver::Receiver;
use crate::support::{Ended, Place};
use crate::tables::{Tables, on_mysql, on_postgres, on_sqlite};

const LOCAL: [&str; 2] = ["--allow-network", "127.0.0.0/8"];

/// Lets the outbox of a tables write its letters to a directory.
fn with_letters(tables: &Tables) {
    let settings = crate::tables::SETTINGS.replace("  handlers:", "  dlq: letters\n  handlers:");
    let settings = settings + "dlq: {name: letters, directory: dlq, create: true}\n";
    std::fs::write(tables.place.file("backstop.yaml"), settings).unwrap();
    std::fs::create_dir(tables.place.file("dlq")).unwrap();
}

/// Writes a letter as an outbox does.
fn letter(place: &Place, number: u32, id: &str, source: &str) {
    let event = serde_json::json!({
        "specversion": "1.0", "id": id, "source": source, "type": "OrderPlaced", "subject": "42",
        "time": "2026-01-01T00:00:00Z", "aggregatetype": "Order", "datacontenttype": "application/json",
        "data": {"total": 1},
    });
    let record = format!("{{\"event\":{event},\"error\":\"timeout: no answer\"}}\n");
    std::fs::write(
        place.file("dlq").join(format!("{}-l{number}.jsonl", 1_767_225_600_000_u64 + u64::from(number))),
        record,
    )
    .unwrap();
}

/// The ids of the letters that are left.
fn left(place: &Place) -> Vec<String> {
    let listed = place.run(&["dlq", "list", "dlq", "--json"]).with(0).said;
    let id = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["event"]["id"].as_str().unwrap().to_owned()
    };
    listed.lines().map(id).collect()
}

/// A dead row, a done one, one that waits, one that retries; a letter for each, and for one without a row.
async fn fill(tables: &Tables) {
    tables.bury("dead", "OrderPlaced", "timeout: no answer", SystemClock.now()).await;
    for id in ["done", "waiting", "retrying"] {
        tables.insert(id, "OrderPlaced", "Order").await;
    }
    tables.settle("done", Settlement::Done).await;
    let after = std::time::Duration::from_secs(3_600);
    tables.settle("retrying", Settlement::Retry { after, error: "http-503: closed".to_owned() }).await;
    for (number, id) in (0..).zip(["dead", "done", "waiting", "retrying", "gone"]) {
        letter(&tables.place, number, id, "/outbox/orders");
    }
}

fn redrive(place: &Place, to: &str, more: &[&str]) -> Ended {
    place.run(&[&["dlq", "redrive", "dlq", "--to", to], more].concat())
}

backstop_testkit::suite! {
    over { sqlite: on_sqlite, postgres: on_postgres, mysql: on_mysql }

    async fn a_letter_that_arrives_settles_its_row_if_that_is_dead(tables) {
        with_letters(&tables);
        fill(&tables).await;
        // Another system's event may have the same id.
        letter(&tables.place, 9, "waiting", "/shop");
        let receiver = Receiver::answering(200);
        let dry = redrive(&tables.place, &receiver.url(), &["--dry-run"]).with(0);
        assert!(dry.complained.contains("would send 6") && tables.dead().await == 1, "{}", dry.complained);
        let ended = redrive(&tables.place, &receiver.url(), &LOCAL).with(0);
        let told = "6 delivered, 0 failed, 1 row settled as done, 3 rows not dead and left as they are";
        assert!(ended.complained.contains(told), "{}", ended.complained);
        assert!(ended.complained.contains("backstop::audit"), "{}", ended.complained);
        for (id, status) in [("dead", Some(1)), ("done", Some(1)), ("waiting", Some(0)), ("retrying", Some(2)), ("gone", None)] {
            assert_eq!(tables.status(id).await, status, "{id}");
        }
        assert_eq!(left(&tables.place), [""; 0]);
    }

    async fn rows_are_left_alone_where_that_is_asked_for_or_the_letter_does_not_arrive(tables) {
        with_letters(&tables);
        fill(&tables).await;
        let receiver = Receiver::answering(422);
        redrive(&tables.place, &receiver.url(), &LOCAL).with(1);
        assert_eq!((tables.dead().await, left(&tables.place).len()), (1, 5));
        receiver.answer(200);
        let ended = redrive(&tables.place, &receiver.url(), &[&LOCAL[..], &["--leave-rows"]].concat()).with(0);
        assert!(!ended.complained.contains("rows"), "{}", ended.complained);
        assert_eq!((tables.dead().await, left(&tables.place).len()), (1, 0));
    }

    async fn a_letter_is_brought_back_to_its_outbox_whatever_has_become_of_its_row(tables) {
        with_letters(&tables);
        fill(&tables).await;
        letter(&tables.place, 7, "foreign", "/shop");
        letter(&tables.place, 8, &"long".repeat(10), "/outbox/orders");
        let ended = redrive(&tables.place, "outbox:orders", &[]).with(1);
        for told in [
            "5 delivered, 2 failed",
            "1 row replayed",
            "1 appended anew, its row was gone",
            "2 in their table already, and delivered from there",
            "1 done in its table already, and not delivered again",
        ] {
            assert!(ended.complained.contains(told), "{told}: {}", ended.complained);
        }
        for (id, status) in [("dead", 0), ("done", 1), ("waiting", 0), ("retrying", 2), ("gone", 0)] {
            assert_eq!(tables.status(id).await, Some(status), "{id}");
        }
        assert_eq!(tables.status("foreign").await, None);
        assert_eq!(left(&tables.place), ["foreign".to_owned(), "long".repeat(10)]);
        let only = redrive(&tables.place, "outbox:orders", &["--id", "foreign"]).with(1);
        assert!(only.complained.contains("another-source: its source is /shop"), "{}", only.complained);

        // The daemon delivers what was brought back.
        let daemon = tables.place.serve();
        daemon.wait_for(|| {
            let handled = daemon.handled();
            ["dead", "gone", "waiting"].iter().all(|id| handled.contains(&(*id).to_owned())).then_some(())
        });
        let handled = daemon.end("-TERM").with(0);
        assert!(!handled.complained.contains("event_id=\"done\""), "{}", handled.complained);
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_known_before_anything_is_sent() {
    let tables = on_sqlite().await.unwrap();
    with_letters(&tables);
    fill(&tables).await;
    let receiver = Receiver::answering(200);
    let place = tables.place.variable("ORDERS_URL", "postgres://u:hunter2@127.0.0.1:9/shop");
    let ended = redrive(&place, &receiver.url(), &LOCAL).with(1);
    assert!(ended.complained.contains("say --leave-rows to redrive without"), "{}", ended.complained);
    assert!(!ended.complained.contains("hunter2"), "{}", ended.complained);
    let place = place.variable("ORDERS_URL", "");
    let ended = redrive(&place, &receiver.url(), &LOCAL).with(1);
    assert!(ended.complained.contains("say --leave-rows to redrive without it"), "{}", ended.complained);
    assert_eq!(left(&place).len(), 5);
    redrive(&place, &receiver.url(), &[&LOCAL[..], &["--leave-rows", "--limit", "1"]].concat()).with(0);
    assert_eq!(left(&place).len(), 4);
}

#[tokio::test]
async fn a_row_that_the_database_refuses_to_settle_keeps_its_letter() {
    let tables = on_sqlite().await.unwrap();
    with_letters(&tables);
    fill(&tables).await;
    let trigger = "create trigger refuse before update of status on outbox_event when new.status = 1 \
                   begin select raise(abort, 'not today'); end";
    tables.run(trigger).await;
    let receiver = Receiver::answering(200);
    let ended = redrive(&tables.place, &receiver.url(), &LOCAL).with(1);
    for told in [
        "0 delivered, 0 failed",
        "has arrived, and its row cannot be settled, so nothing was sent behind it",
        "not today",
    ] {
        assert!(ended.complained.contains(told), "{told}: {}", ended.complained);
    }
    assert_eq!((left(&tables.place).len(), tables.status("dead").await), (5, Some(3)));
    tables.run("drop trigger refuse").await;
    redrive(&tables.place, &receiver.url(), &LOCAL).with(0);
    assert_eq!((left(&tables.place).len(), tables.status("dead").await), (0, Some(1)));
    // Sent by the first run, and once more by the second.
    let sent: Vec<_> =
        std::iter::from_fn(|| receiver.next_in(std::time::Duration::from_millis(200))).collect();
    assert_eq!(sent.len(), 6);
}

/// The connection goes after the letter has arrived and before its row is settled.
#[tokio::test]
async fn a_letter_that_has_arrived_is_not_sent_again_while_its_row_waits_for_the_database() {
    let Some(database) = postgres().await else { return };
    let tables = Tables::on(database.url()).await;
    with_letters(&tables);
    tables.bury("dead", "OrderPlaced", "timeout: no answer", SystemClock.now()).await;
    letter(&tables.place, 0, "dead", "/outbox/orders");
    let pool = database.pool().await;
    let mut holding = pool.begin().await.unwrap();
    sqlx::query("select 1 from outbox_event where event_id = 'dead' for update")
        .execute(&mut *holding)
        .await
        .unwrap();

    let receiver = Receiver::answering(200);
    let url = receiver.url();
    let mut command = tables.place.command(&[&["dlq", "redrive", "dlq", "--to", &url][..], &LOCAL].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let end = "select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity \
               where wait_event_type = 'Lock' and query like 'update outbox_event%' and datname = current_database()) ended";
    eventually("its row is being settled", async || {
        sqlx::query_scalar::<_, i64>(end).fetch_one(&pool).await.unwrap() > 0
    })
    .await;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waiting =
        lines.find(|line| line.contains("waiting, the next look at the database is in 1.0 s")).unwrap();
    assert!(waiting.contains("it has arrived, and its row cannot be settled"), "{waiting}");
    holding.rollback().await.unwrap();
    let told: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success(), "{told:?}");
    assert!(
        told.iter().any(|line| line.contains("1 delivered, 0 failed, 1 row settled as done")),
        "{told:?}"
    );
    assert_eq!((left(&tables.place).len(), tables.status("dead").await), (0, Some(1)));
    assert!(receiver.next().is_some());
    assert!(receiver.next_in(std::time::Duration::from_millis(200)).is_none(), "it was sent once");
    pool.close().await;
}

#[test]
fn bad_input_is_told_in_a_sentence() {
    let place = Place::empty();
    std::fs::create_dir(place.file("dlq")).unwrap();
    letter(&place, 0, "o-1", "/outbox/orders");
    let none = redrive(&place, "outbox:orders", &[]).with(1);
    assert!(
        none.complained.contains("there is no settings file backstop.yaml here; name it with --config"),
        "{none:?}"
    );
    let settings =
        "outbox: {name: orders, database: {url: 'sqlite:orders.db'}, handlers: [{event-type: '*', log: }]}\n";
    std::fs::write(place.file("other.yaml"), settings).unwrap();
    for (to, more, code, told) in [
        (
            "outbox:nobody",
            &["--config", "other.yaml"][..],
            1,
            "--to names nobody, and the settings file has no such outbox",
        ),
        ("outbox:", &["--config", "other.yaml"], 1, "it has: orders"),
        ("outbox:orders", &["--config", "other.yaml"], 1, "cannot open the database"),
        ("outbox:orders", &["--config", "nowhere.yaml"], 1, "cannot read nowhere.yaml"),
        ("outbox:orders", &["--config", "other.yaml", "--secret", "env:X"], 1, "are for a URL"),
        ("-", &["--config", "other.yaml", "--leave-rows"], 2, "cannot be used with"),
    ] {
        let ended = redrive(&place, to, more).with(code);
        assert!(ended.complained.contains(told), "{to} {more:?}: {}", ended.complained);
    }
    assert_eq!(left(&place), ["o-1"]);
    assert!(!place.file("orders.db").exists());
}
