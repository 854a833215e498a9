//! `backstop queue`: events listed, requeued and purged without a line of Rust, and where any event is.

use backstop_sql::queue::Status;
use serde_json::Value;

use crate::jobs::{Jobs, on_mysql, on_postgres, on_sqlite};
use crate::support::{Ended, Place};

fn ids(ended: &Ended) -> Vec<i64> {
    let first = |line: &str| line.split("  ").next().and_then(|id| id.parse().ok());
    ended.said.lines().filter_map(first).collect()
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

/// How many events are in each state: waiting, handled or stuck, completed, failed.
async fn counts(jobs: &Jobs) -> [u64; 4] {
    let counts = jobs.operations.counts().await.unwrap();
    [counts.pending.events, counts.processing.events, counts.completed.events, counts.failed.events]
}

backstop_testkit::suite! {
    over { sqlite: on_sqlite, postgres: on_postgres, mysql: on_mysql }

    /// Rules: Q-091.
    async fn events_are_listed_by_status_and_narrowed_by_each_flag(jobs) {
        jobs.fill().await;
        let listed = jobs.queue(&["list"]).with(0);
        assert_eq!(ids(&listed), [6, 7, 8]);
        let first = listed.said.lines().next().unwrap();
        assert_eq!(first, "6  2026-01-06T00:00:00.000Z  FAILED  InvoiceRequested  1 attempt  timeout: no answer");
        assert!(listed.complained.ends_with("3 FAILED events in queue jobs\n"), "{}", listed.complained);
        is_plain(&listed);
        for (flags, wanted) in [
            (&["--type", "InvoiceRequested"][..], &[6, 8][..]),
            (&["--error", "timeout"], &[6, 8]),
            (&["--error", "TIMEOUT"], &[]),
            (&["--since", "2026-01-07T00:00:00Z"], &[7, 8]),
            (&["--until", "2026-01-07T00:00:00Z"], &[6]),
            (&["--limit", "2"], &[6, 7]),
            (&["--status", "pending"], &[1, 4]),
            (&["--status", "PENDING", "--error", "503"], &[4]),
            (&["--status", "processing"], &[2, 3]),
            (&["--status", "completed"], &[5]),
            (&["--stuck"], &[3]),
            (&["--stuck", "--type", "ReminderDue"], &[]),
        ] {
            let listed = jobs.queue(&[&["list"], flags].concat()).with(0);
            assert_eq!(ids(&listed), wanted, "{flags:?}");
        }
        let stuck = jobs.queue(&["list", "--stuck", "--json"]).with(0);
        let told = summary(&stuck.said);
        assert_eq!((&told["id"], &told["status"], &told["attempts"]), (&3.into(), &"PROCESSING".into(), &2.into()));
        assert!(stuck.complained.ends_with("1 stuck event in queue jobs\n"), "{}", stuck.complained);

        let counted = jobs.queue(&["list", "--counts"]).with(0).said;
        for line in ["PENDING     2", "PROCESSING  2", "  stuck     1", "COMPLETED   1", "FAILED      3"] {
            assert!(counted.lines().any(|it| it == line), "{line}: {counted}");
        }
        let counted = summary(&jobs.queue(&["list", "--counts", "--json"]).with(0).said);
        assert_eq!((&counted["queue"], &counted["failed"]["events"]), (&"jobs".into(), &3.into()));
    }

    async fn an_event_is_shown_whole_and_says_why_it_is_where_it_is(jobs) {
        jobs.fill().await;
        let shown = jobs.queue(&["show", "7", "--json"]).with(0);
        let told = summary(&shown.said);
        assert_eq!((&told["status"], &told["error"]), (&"FAILED".into(), &"http-422: no total".into()));
        assert_eq!((&told["attempts"], &told["updated_at"]), (&1.into(), &"2026-01-07T00:00:00Z".into()));
        assert!(shown.said.contains("\"total\": 1.10") || shown.said.contains("\"total\":1.10"), "{}", shown.said);
        let shown = jobs.queue(&["show", "8"]).with(0);
        assert!(shown.said.starts_with("id: 8\nstatus: \"FAILED\"\nevent_type: \"InvoiceRequested\"\n"), "{}", shown.said);
        is_plain(&shown);

        for (id, word, told, advised) in [
            ("1", "waiting", "waits since 2026-01-01T00:00:00Z for a free worker", "`backstop serve` must run"),
            ("2", "handled", "is being handled, attempt 1; its worker last said so at ", "abandoned-timeout"),
            ("3", "stuck", "is stuck after 2 attempts: ", "backstop queue requeue 3 --queue jobs"),
            ("4", "delayed", "is tried again at 2100-01-01T00:00:00Z, after 1 attempt: http-503: closed", "comes by itself"),
            ("5", "completed", "completed at 2026-01-05T00:00:00Z, after 1 attempt", "answered done"),
            ("6", "failed", "failed at 2026-01-06T00:00:00Z, after 1 attempt: timeout: no answer", "queue requeue 6"),
            ("8", "failed", "failed at 2026-01-08T00:00:00Z", "remove the cause"),
        ] {
            let why = jobs.queue(&["why", id]).with(0);
            assert!(why.said.starts_with(&format!("{id} in queue jobs {told}")), "{}", why.said);
            assert!(why.said.contains(advised), "{}", why.said);
            is_plain(&why);
            let json = summary(&jobs.queue(&["why", id, "--json"]).with(0).said);
            assert_eq!((&json["state"], json["id"].to_string().as_str()), (&word.into(), id));
        }
        jobs.execute("insert into events (id, event) values (99, '{\"type\": \"Unknown\"}')").await;
        let why = jobs.queue(&["why", "99"]).with(0);
        assert!(why.said.contains("the settings file has no handler for event type Unknown"), "{}", why.said);
        for command in ["why", "show"] {
            let missing = jobs.queue(&[command, "404"]).with(1);
            assert!(missing.complained.contains("there is no event 404 in the tables events and event_log"), "{missing:?}");
        }
    }

    async fn nothing_is_changed_unless_it_is_named_and_confirmed(jobs) {
        jobs.fill().await;
        for (arguments, code, told) in [
            (&["requeue"][..], 1, "say which events to requeue: their ids, a filter such as --type, --stuck, or --all"),
            (&["requeue", "--all"], 1, "nobody can be asked whether to requeue 3 events of queue jobs"),
            (&["requeue", "6"], 1, "look with --dry-run, then say --yes"),
            (&["requeue", "--stuck"], 1, "nobody can be asked whether to requeue 1 event of queue jobs"),
            (&["requeue", "--all", "--dry-run"], 0, "would requeue 3 events of queue jobs"),
            (&["requeue", "--error", "timeout", "--limit", "1", "--dry-run"], 0, "would requeue 1 event of"),
            (&["requeue", "--type", "Nothing", "--yes"], 0, "requeued 0 events of queue jobs"),
            (&["requeue", "--all", "6"], 2, "cannot be used with"),
            (&["requeue", "--all", "--force"], 1, "--force is for events that you name by their ids"),
            (&["requeue", "--all", "--rate", "0"], 2, "--rate"),
            (&["purge"], 2, "--older-than"),
            (&["purge", "--older-than", "1d"], 1, "nobody can be asked whether to delete 4 events from the log of queue jobs"),
            (&["purge", "--older-than", "1d", "--dry-run"], 0, "would delete 4 events from the log of queue jobs"),
            (&["purge", "--older-than", "36500d", "--yes"], 0, "deleted 0 events"),
        ] {
            let ended = jobs.queue(arguments).with(code);
            assert!(ended.complained.contains(told), "{arguments:?}: {}", ended.complained);
        }
        assert_eq!(counts(&jobs).await, [2, 2, 1, 3]);
    }

    /// Rules.
    async fn a_requeue_sets_back_what_failed_or_is_stuck_and_says_who_did_it(jobs) {
        jobs.fill().await;
        let ended = jobs.queue(&["requeue", "--error", "timeout", "--yes", "--json"]).with(0);
        let told = summary(&ended.said);
        assert_eq!((&told["matched"], &told["changed"], &told["operation"]), (&2.into(), &2.into(), &"requeue".into()));
        assert!(ended.complained.contains("requeued 2 events of queue jobs"), "{}", ended.complained);
        let audited = |what: &str| ended.complained.lines().any(|line| line.contains("backstop::audit") && line.contains(what));
        assert!(audited("begins requeueing events") && audited("ended requeueing events"), "{}", ended.complained);
        assert!(audited("by=\"user ") && audited("queue=\"jobs\""), "{}", ended.complained);
        for (id, row) in [(6, (Status::Pending, 0)), (7, (Status::Failed, 1)), (8, (Status::Pending, 0))] {
            assert_eq!(jobs.row(id).await, Some(row), "{id}");
        }
        jobs.queue(&["requeue", "--stuck", "--yes"]).with(0);
        assert_eq!(jobs.row(3).await, Some((Status::Pending, 2)), "its attempts stay");
        assert_eq!(jobs.row(2).await, Some((Status::Processing, 1)), "it is being handled");

        let ended = jobs.queue(&["requeue", "1", "2", "5", "6", "7", "404", "--yes"]).with(1);
        for told in [
            "1 waits since",
            "2 is being handled, attempt 1",
            "requeued now, it would be handled twice: say --force to do it anyway",
            "5 completed at",
            "there is no event 404",
            "requeued 1 event of queue jobs",
            "5 of the 6 events named were not requeued",
        ] {
            assert!(ended.complained.contains(told), "{told}: {}", ended.complained);
        }
        assert_eq!(jobs.row(2).await, Some((Status::Processing, 1)));
        jobs.queue(&["requeue", "2", "--force", "--yes"]).with(0);
        assert_eq!(jobs.row(2).await, Some((Status::Pending, 1)));
        assert_eq!(counts(&jobs).await, [7, 0, 1, 0]);
    }

    async fn a_purge_deletes_what_ended_long_ago_and_nothing_else(jobs) {
        jobs.fill().await;
        let ended = jobs.queue(&["purge", "--older-than", "1d", "--limit", "1", "--yes", "--json"]).with(0);
        assert_eq!(summary(&ended.said)["changed"], 1);
        assert_eq!(jobs.row(5).await, None, "what ended first goes first");
        let ended = jobs.queue(&["purge", "--older-than", "1d", "--yes"]).with(0);
        assert!(ended.complained.contains("deleted 3 events from the log of queue jobs"), "{}", ended.complained);
        assert!(ended.complained.contains("backstop::audit"), "{}", ended.complained);
        assert_eq!(counts(&jobs).await, [2, 2, 0, 0]);
    }

    /// Rules: Q-093.
    async fn what_is_requeued_under_a_running_daemon_is_handled(jobs) {
        jobs.fill().await;
        let daemon = jobs.place.serve();
        jobs.queue(&["requeue", "6", "--yes"]).with(0);
        backstop_testkit::eventually("it is handled", async || {
            jobs.row(6).await == Some((Status::Completed, 1))
        })
        .await;
        daemon.end("-TERM").with(0);
    }
}

#[tokio::test]
async fn many_are_requeued_at_the_rate_that_is_asked_for_and_progress_is_told() {
    let jobs = on_sqlite().await.unwrap();
    let insert = "insert into event_log (id, payload, status, attempts, created_at, updated_at) \
                  with recursive n(i) as (select 1 union all select i + 1 from n where i < 30) \
                  select i, '{}', 'FAILED', 1, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000' from n";
    jobs.execute(insert).await;
    let ended = jobs.queue(&["requeue", "--all", "--yes", "--rate", "10"]).with(0);
    assert!(ended.complained.contains(" requeued …\n"), "{}", ended.complained);
    assert!(ended.complained.contains("requeued 30 events of queue jobs"), "{}", ended.complained);
    assert_eq!(counts(&jobs).await, [30, 0, 0, 0]);
}

#[test]
fn bad_input_is_told_in_a_sentence_and_makes_no_file() {
    let two = "\
queue:
  - {name: jobs, database: {url: 'sqlite:jobs.db'}, handlers: [{event-type: '*', log: }]}
  - {name: mail, database: {url: 'sqlite:mail.db'}, handlers: [{event-type: '*', log: }]}
";
    let place = Place::with(two);
    for (arguments, code, told) in [
        (&["list"][..], 1, "the settings file has several queues; name one with --queue: jobs, mail"),
        (
            &["list", "--queue", "post\x1b[2J"],
            1,
            "--queue names post\\u{1b}[2J, and the settings file has no such queue; it has: jobs, mail",
        ),
        (
            &["list", "--queue", "jobs"],
            1,
            "queue.jobs (backstop.yaml:2:5) cannot be reached: cannot open the database",
        ),
        (&["requeue", "--queue", "jobs", "--all", "--yes"], 1, "cannot open the database"),
        (&["list", "--config", "nowhere.yaml"], 1, "cannot read nowhere.yaml"),
        (&["list", "--status", "dead"], 2, "give one of pending, processing, completed and failed"),
        (&["list", "--stuck", "--status", "failed"], 2, "cannot be used with"),
        (&["list", "--since", "yesterday"], 2, "'--since <TIME>': give a moment like 2030-01-31T12:00:00Z"),
        (&["why"], 2, "<ID>"),
        (&["show", "first"], 2, "invalid value 'first'"),
    ] {
        let ended = place.run(&[&["queue"], arguments].concat()).with(code);
        assert!(ended.complained.contains(told), "{arguments:?}: {}", ended.complained);
        assert!(ended.said.is_empty(), "{arguments:?}: {}", ended.said);
    }
    assert!(!place.file("jobs.db").exists(), "looking at a database does not make one");
    std::fs::write(place.file("jobs.db"), "").unwrap();
    let ended = place.run(&["queue", "list", "--queue", "jobs"]).with(1);
    assert!(ended.complained.contains("there is no table events"), "{}", ended.complained);
    let ended = Place::with("outbox: {mode: writer-only, database: {url: 'sqlite:a.db'}}\n")
        .run(&["queue", "list"])
        .with(1);
    assert!(ended.complained.contains("the settings file has no queue"), "{}", ended.complained);
}
