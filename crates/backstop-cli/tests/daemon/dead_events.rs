//! `backstop outbox`: dead events listed, replayed and discarded without a line of Rust, and where any event is.

use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, SystemClock, Timestamp};
use serde_json::Value;

use crate::support::{Ended, Place};
use crate::tables::{SETTINGS, Tables, on_mysql, on_postgres, on_sqlite};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Three dead events, and one in each other state.
async fn fill(tables: &Tables) {
    tables.bury("d-1", "OrderPlaced", "timeout: no answer", at("2026-01-01T00:00:00Z")).await;
    tables.bury("d-2", "OrderPaid", "http-422: no total", at("2026-01-02T00:00:00Z")).await;
    tables
        .bury("d-3", "OrderPlaced", "timeout: \x1b[2J\u{202e}gone\nforged line", at("2026-01-03T00:00:00Z"))
        .await;
    for id in ["claimed", "done", "retrying", "deferred", "waiting"] {
        tables.insert(id, "OrderPlaced", "Order").await;
        match id {
            "claimed" => tables.claim("node-7").await,
            "done" => tables.settle(id, Settlement::Done).await,
            "retrying" => {
                let after = Duration::from_secs(3_600);
                tables.settle(id, Settlement::Retry { after, error: "http-503: closed".to_owned() }).await;
            }
            "deferred" => tables.settle(id, Settlement::Deferred { after: Duration::from_secs(3_600) }).await,
            _ => {}
        }
    }
}

fn ids(ended: &Ended) -> Vec<&str> {
    ended.said.lines().filter_map(|line| line.split("  ").next()).collect()
}

/// Nothing that a terminal acts upon.
#[track_caller]
fn is_plain(ended: &Ended) {
    for text in [&ended.said, &ended.complained] {
        assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
        assert!(!text.contains("\nforged"), "{text:?}");
    }
}

fn summary(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

backstop_testkit::suite! {
    over { sqlite: on_sqlite, postgres: on_postgres, mysql: on_mysql }

    async fn the_dead_are_listed_oldest_first_and_narrowed_by_each_flag(tables) {
        fill(&tables).await;
        let listed = tables.outbox(&["list"]).with(0);
        assert_eq!(ids(&listed), ["d-1", "d-2", "d-3"]);
        let first = listed.said.lines().next().unwrap();
        assert_eq!(first, "d-1  2026-01-01T00:00:00.000Z  OrderPlaced  Order/42  1 attempt  timeout: no answer");
        assert!(listed.complained.ends_with("3 dead events in outbox orders\n"), "{}", listed.complained);
        is_plain(&listed);
        for (flags, wanted) in [
            (&["--type", "OrderPlaced"][..], &["d-1", "d-3"][..]),
            (&["--aggregate-type", "Order", "--aggregate-id", "42"], &["d-1", "d-2", "d-3"]),
            (&["--aggregate-type", "Invoice"], &[]),
            (&["--aggregate-id", "43"], &[]),
            (&["--error", "timeout"], &["d-1", "d-3"]),
            (&["--error", "TIMEOUT"], &[]),
            (&["--since", "2026-01-02T00:00:00Z"], &["d-2", "d-3"]),
            (&["--until", "2026-01-02T00:00:00Z"], &["d-1"]),
            (&["--since", "1h"], &[]),
            (&["--limit", "2"], &["d-1", "d-2"]),
            (&["--type", "OrderPlaced", "--error", "422"], &[]),
        ] {
            let listed = tables.outbox(&[&["list"], flags].concat()).with(0);
            assert_eq!(ids(&listed), wanted, "{flags:?}");
        }
    }

    async fn an_event_is_shown_whole_and_says_why_it_is_where_it_is(tables) {
        fill(&tables).await;
        let shown = tables.outbox(&["show", "d-2", "--json"]).with(0);
        assert!(shown.said.contains("\"payload\":{\"total\":1.10}"), "{}", shown.said);
        let shown = summary(&shown.said);
        assert_eq!((&shown["status"], &shown["error"]), (&"DEAD".into(), &"http-422: no total".into()));
        assert_eq!((&shown["attempts"], &shown["ended_at"]), (&1.into(), &"2026-01-02T00:00:00Z".into()));
        let shown = tables.outbox(&["show", "d-3"]).with(0);
        assert!(shown.said.starts_with("id: \"d-3\"\nstatus: \"DEAD\"\nevent_type: \"OrderPlaced\"\n"), "{}", shown.said);
        is_plain(&shown);
        let listed = tables.outbox(&["list", "--json"]).with(0);
        is_plain(&listed);
        let third = summary(listed.said.lines().nth(2).unwrap());
        assert_eq!(third["error"], "timeout: \x1b[2J\u{202e}gone\nforged line");

        for (id, told, advised) in [
            ("d-1", "is dead since 2026-01-01T00:00:00Z, after 1 attempt: timeout: no answer", "backstop outbox replay d-1"),
            ("d-3", "is dead since 2026-01-03T00:00:00Z", "backstop outbox discard d-3"),
            ("waiting", "is waiting for its first attempt, and has been due since ", "`backstop serve` must run"),
            ("claimed", "is claimed by node node-7 since ", "claim-locking.lock-timeout"),
            ("retrying", "is retrying: 1 attempt failed, with http-503: closed; the next attempt comes at ", "tried again by itself"),
            ("deferred", "is deferred until ", "it comes by itself"),
            ("done", "is done since ", "its handler has answered done"),
        ] {
            let why = tables.outbox(&["why", id]).with(0);
            assert!(why.said.starts_with(&format!("{id} in outbox orders {told}")), "{}", why.said);
            assert!(why.said.contains(advised), "{}", why.said);
            is_plain(&why);
            let json = summary(&tables.outbox(&["why", id, "--json"]).with(0).said);
            let word = if id.starts_with("d-") { "dead" } else { id };
            assert_eq!((&json["state"], &json["id"]), (&word.into(), &id.into()));
        }
        tables.insert("lost", "Unknown", "Order").await;
        let why = tables.outbox(&["why", "lost"]).with(0);
        assert!(why.said.contains("no handler for event type Unknown of aggregate type Order"), "{}", why.said);

        for command in ["why", "show"] {
            let missing = tables.outbox(&[command, "nobody\x1b[2J"]).with(1);
            assert!(missing.complained.contains("there is no event nobody\\u{1b}[2J in table outbox_event"), "{missing:?}");
            is_plain(&missing);
        }
    }

    async fn nothing_is_changed_unless_it_is_named_and_confirmed(tables) {
        fill(&tables).await;
        for verb in ["replay", "discard"] {
            for (flags, code, told) in [
                (&[][..], 1, format!("say which events to {verb}: their ids, a filter such as --type, or --all")),
                (&["--all"], 1, format!("nobody can be asked whether to {verb} 3 dead events of outbox orders")),
                (&["d-1"], 1, "look with --dry-run, then say --yes".to_owned()),
                (&["--all", "--dry-run"], 0, format!("would {verb} 3 dead events of outbox orders")),
                (&["--error", "timeout", "--limit", "1", "--dry-run"], 0, format!("would {verb} 1 dead event of")),
                (&["--type", "Nothing", "--yes"], 0, "ed 0 dead events of outbox orders".to_owned()),
                (&["--all", "d-1"], 2, "cannot be used with".to_owned()),
                (&["--all", "--rate", "0"], 2, "--rate".to_owned()),
            ] {
                let ended = tables.outbox(&[&[verb], flags].concat()).with(code);
                assert!(ended.complained.contains(&told), "{verb} {flags:?}: {}", ended.complained);
            }
        }
        assert_eq!(tables.dead().await, 3);
    }

    async fn a_replay_sets_back_what_it_names_and_says_who_did_it(tables) {
        fill(&tables).await;
        let ended = tables.outbox(&["replay", "--error", "timeout", "--yes", "--json"]).with(0);
        let told = summary(&ended.said);
        assert_eq!((&told["matched"], &told["changed"], &told["operation"]), (&2.into(), &2.into(), &"replay".into()));
        assert!(ended.complained.contains("replayed 2 dead events of outbox orders"), "{}", ended.complained);
        let audited = |what: &str| ended.complained.lines().any(|line| line.contains("backstop::audit") && line.contains(what));
        assert!(audited("begins replaying") && audited("ended replaying"), "{}", ended.complained);
        assert!(audited("by=\"user ") && audited("filter=error containing \"timeout\" changed=2"), "{}", ended.complained);
        for (id, status) in [("d-1", 0), ("d-2", 3), ("d-3", 0), ("done", 1), ("retrying", 2), ("deferred", 0)] {
            assert_eq!(tables.status(id).await, Some(status), "{id}");
        }
        // What was listed may have changed since.
        let ended = tables.outbox(&["replay", "d-1", "d-2", "done", "nobody", "--yes"]).with(1);
        for told in [
            "d-1 is waiting for its first attempt",
            "done is done since",
            "there is no event nobody",
            "replayed 1 dead event of",
            "3 of the 4 events named are not dead",
        ] {
            assert!(ended.complained.contains(told), "{told}: {}", ended.complained);
        }
        assert_eq!((tables.dead().await, tables.status("d-2").await), (0, Some(0)));
    }

    async fn a_discard_deletes_the_dead_and_nothing_else(tables) {
        fill(&tables).await;
        let ended = tables.outbox(&["discard", "d-1", "waiting", "--yes"]).with(1);
        assert!(ended.complained.contains("discarded 1 dead event of"), "{}", ended.complained);
        assert!(ended.complained.contains("ids=[\"d-1\"]"), "what is gone is on record: {}", ended.complained);
        tables.outbox(&["discard", "--all", "--yes"]).with(0);
        assert_eq!(tables.dead().await, 0);
        for id in ["d-1", "d-2", "d-3"] {
            assert_eq!(tables.status(id).await, None, "{id}");
        }
        for id in ["claimed", "done", "retrying", "deferred", "waiting"] {
            assert!(tables.status(id).await.is_some(), "{id}");
        }
    }

    async fn two_operators_at_once_move_each_event_once_and_count_what_they_moved(tables) {
        tables.bury_many(300).await;
        for (verb, left) in [("replay", 0), ("discard", 0)] {
            if verb == "discard" {
                for index in 0..300 {
                    tables.settle(&format!("e-{index:04}"), Settlement::Dead { error: "again".to_owned() }).await;
                }
            }
            let both = [(); 2].map(|()| tables.start(&[verb, "--all", "--yes", "--json"]));
            let changed = both.map(|child| {
                let output = child.wait_with_output().unwrap();
                assert!(output.status.success(), "{output:?}");
                summary(std::str::from_utf8(&output.stdout).unwrap())["changed"].as_u64().unwrap()
            });
            assert_eq!((changed.iter().sum::<u64>(), tables.dead().await), (300, left), "{verb}: {changed:?}");
        }
    }

    async fn a_replay_that_was_killed_is_started_again_and_moves_the_rest(tables) {
        tables.bury_many(60).await;
        let mut child = tables.start(&["replay", "--all", "--yes", "--rate", "20"]);
        backstop_testkit::eventually("it has begun", async || tables.dead().await < 60).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let left = tables.dead().await;
        assert!(left > 0, "it was not fast enough to end");
        let ended = tables.outbox(&["replay", "--all", "--yes", "--json"]).with(0);
        assert_eq!((summary(&ended.said)["changed"].as_u64(), tables.dead().await), (Some(left), 0));
    }

    async fn what_is_replayed_beside_a_daemon_is_delivered(tables) {
        fill(&tables).await;
        let daemon = tables.place.serve();
        tables.outbox(&["replay", "d-1", "--yes"]).with(0);
        daemon.wait_for(|| daemon.handled().contains(&"d-1".to_owned()).then_some(()));
        daemon.end("-TERM").with(0);
        assert_eq!(tables.status("d-1").await, Some(1));
    }
}

/// An interval longer than any test waits: only a wake-up brings the event.
#[tokio::test]
async fn a_replay_wakes_the_daemon_where_the_database_can() {
    let Some(tables) = on_postgres().await else { return };
    for id in ["d-1", "d-2", "d-3"] {
        tables.bury(id, "OrderPlaced", "timeout: no answer", SystemClock.now()).await;
    }
    let hourly = SETTINGS.replace("interval-ms: 100", "interval-ms: 3600000");
    std::fs::write(tables.place.file("backstop.yaml"), hourly).unwrap();
    let daemon = tables.place.serve();
    // The first may be found because it has just started, or just begun to listen; the others are not.
    for (id, handled) in [("d-1", 1), ("d-2", 2), ("d-3", 3)] {
        tables.outbox(&["replay", id, "--yes"]).with(0);
        assert_eq!(daemon.until_handled(handled).last().unwrap(), id);
    }
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn ctrl_c_stops_a_replay_between_batches_and_says_how_to_go_on() {
    let tables = on_sqlite().await.unwrap();
    tables.bury_many(60).await;
    let child = tables.start(&["replay", "--all", "--yes", "--rate", "10"]);
    backstop_testkit::eventually("it has begun", async || tables.dead().await < 60).await;
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complained}");
    assert!(complained.contains("events were replayed; start again to go on"), "{complained}");
    assert!(tables.dead().await > 0);
}

#[tokio::test]
async fn progress_is_told_while_it_takes_long() {
    let tables = on_sqlite().await.unwrap();
    tables.bury_many(30).await;
    let ended = tables.outbox(&["replay", "--all", "--yes", "--rate", "10"]).with(0);
    assert!(ended.complained.contains(" replayed …\n"), "{}", ended.complained);
}

#[test]
fn bad_input_is_told_in_a_sentence_and_makes_no_file() {
    let two = "\
outbox:
  - {name: orders, database: {url: 'sqlite:orders.db'}, handlers: [{event-type: '*', log: }]}
  - {name: refunds, database: {url: 'sqlite:refunds.db'}, handlers: [{event-type: '*', log: }]}
";
    let place = Place::with(two);
    for (arguments, code, told) in [
        (&["list"][..], 1, "the settings file has several outboxes; name one with --outbox: orders, refunds"),
        (
            &["list", "--outbox", "invoices\x1b[2J"],
            1,
            "--outbox names invoices\\u{1b}[2J, and the settings file has no such outbox; it has: orders, refunds",
        ),
        (
            &["list", "--outbox", "orders"],
            1,
            "outbox.orders (backstop.yaml:2:5) cannot be reached: cannot open the database",
        ),
        (&["replay", "--outbox", "orders", "--all", "--yes"], 1, "cannot open the database"),
        (&["list", "--config", "nowhere.yaml"], 1, "cannot read nowhere.yaml"),
        (&["list", "--since", "yesterday"], 2, "'--since <TIME>': give a moment like 2030-01-31T12:00:00Z"),
        (&["list", "--until", "2030-13-01"], 2, "'--until <TIME>': give a moment"),
        (&["replay", "--all", "--since", "0s"], 2, "'--since <TIME>'"),
        (&["why"], 2, "<ID>"),
        (&["show"], 2, "<ID>"),
        (&["lost"], 2, "unrecognized subcommand"),
    ] {
        let ended = place.run(&[&["outbox"], arguments].concat()).with(code);
        assert!(ended.complained.contains(told), "{arguments:?}: {}", ended.complained);
        assert!(ended.said.is_empty(), "{arguments:?}: {}", ended.said);
    }
    assert!(!place.file("orders.db").exists(), "looking at a database does not make one");
    std::fs::write(place.file("orders.db"), "").unwrap();
    let ended = place.run(&["outbox", "list", "--outbox", "orders"]).with(1);
    assert!(ended.complained.contains("there is no table outbox_event"), "{}", ended.complained);
}

#[tokio::test]
async fn of_very_many_dead_events_the_oldest_are_counted_and_all_that_match_are_changed() {
    let tables = on_sqlite().await.unwrap();
    // The last two are of another type.
    let many = "with recursive counted as (select 1 as n union all select n + 1 from counted where n < 100002) \
                insert into outbox_event (event_id, event_type, aggregate_type, payload, status, attempts, available_at, \
                created_at, done_at) select 'e-' || n, case when n > 100000 then 'Late' else 'OrderPlaced' end, 'Order', \
                '{}', 3, 0, moment, moment, moment from (select n, strftime('%Y-%m-%d %H:%M:%f', '2020-01-01', '+' || n || \
                ' seconds') || '000' as moment from counted)";
    tables.run(many).await;
    for (flags, told) in [
        (&["--all"][..], "would replay 100000+ dead events of outbox orders\n"),
        (&["--all", "--limit", "7"], "would replay 7 dead events of outbox orders\n"),
        (
            &["--type", "Late"],
            "would replay 0+ dead events (0 of the oldest 100000 match) of outbox orders\n",
        ),
        (&["e-100001", "e-100002"], "would replay 2 dead events of outbox orders\n"),
    ] {
        let ended = tables.outbox(&[&["replay", "--dry-run"], flags].concat()).with(0);
        assert_eq!(ended.complained, told, "{flags:?}");
    }
    // Whether any matches is not known, so somebody has to say yes.
    let asked = tables.outbox(&["replay", "--type", "Late"]).with(1).complained;
    assert!(asked.contains("nobody can be asked whether to replay 0+ dead events"), "{asked}");
    let replayed = tables.outbox(&["replay", "--type", "Late", "--yes", "--json"]).with(0);
    assert!(replayed.complained.ends_with("replayed 2 dead events of outbox orders\n"), "{replayed:?}");
    let told = summary(&replayed.said);
    assert_eq!(
        (&told["matched"], &told["matched_or_more"], &told["changed"]),
        (&Value::from(0), &Value::from(true), &Value::from(2))
    );
    assert_eq!(tables.dead().await, 100_000);
    // Not one too many to count any more.
    let ended = tables.outbox(&["discard", "--all", "--dry-run"]).with(0);
    assert_eq!(ended.complained, "would discard 100000 dead events of outbox orders\n");
}
