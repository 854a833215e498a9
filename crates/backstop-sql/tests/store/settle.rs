//! Settling: what done, retry, dead and deferred write, and which rows they leave alone.

use backstop_core::delivery::Settlement::Done;
use backstop_core::{Clock, Event, SystemClock};
use backstop_sql::store::{At, Claim, Row, Settle, Store};

use crate::harness::*;

database_suite! {
    over migrated

    /// Rules: O-135, O-223, O-236, O-237, O-238.
    async fn done_sets_status_and_end_and_lets_go_of_the_row(it) {
        it.insert(&events("ab")).await;
        it.claim("node-1", 10, 1).await;
        assert_eq!(it.settle("a", 20, Done).await, 1);
        let a = it.state("a").await;
        assert_eq!((a.status, a.done_at), (1, Some(moment(20))));
        assert_eq!((a.locked_by, a.locked_at), (None, None));
        assert_eq!(a.attempts, 0);
        assert_eq!(it.state("b").await.status, 0);
    }

    /// Rules: O-239.
    async fn done_twice_changes_nothing_the_second_time(it) {
        it.insert(&events("a")).await;
        assert_eq!(it.settle("a", 20, Done).await, 1);
        assert_eq!(it.settle("a", 30, Done).await, 0);
        assert_eq!(it.state("a").await.done_at, Some(moment(20)));
    }

    /// Rules: O-136, O-224, O-240, O-241, O-242, O-243, O-244.
    async fn retry_counts_in_the_database_and_says_when_and_why(it) {
        it.insert(&events("a")).await;
        it.set("a", "attempts = 6").await;
        it.claim("node-1", 10, 1).await;
        assert_eq!(it.settle("a", 20, retry(5, "no answer")).await, 1);
        let a = it.state("a").await;
        assert_eq!((a.status, a.attempts, a.available_at), (2, 7, Some(moment(25))));
        assert_eq!(a.last_error.as_deref(), Some("no answer"));
        assert_eq!((a.locked_by, a.locked_at, a.done_at), (None, None, None));
    }

    /// Rules: O-137, O-225, O-246, O-247, O-248, O-250, O-251.
    async fn dead_keeps_the_attempts_and_records_when_and_why(it) {
        it.insert(&events("a")).await;
        it.set("a", "attempts = 9").await;
        it.claim("node-1", 10, 1).await;
        assert_eq!(it.settle("a", 20, dead("schema: no total")).await, 1);
        let a = it.state("a").await;
        assert_eq!((a.status, a.attempts, a.done_at), (3, 9, Some(moment(20))));
        assert_eq!(a.last_error.as_deref(), Some("schema: no total"));
        assert_eq!((a.locked_by, a.locked_at), (None, None));
    }

    /// Rules: O-226, O-229, O-231, O-252, O-253, O-254, O-255, O-256.
    async fn deferred_is_new_again_and_keeps_attempts_and_error(it) {
        it.insert(&events("a")).await;
        it.settle("a", 5, retry(0, "first trouble")).await;
        it.claim("node-1", 10, 1).await;
        assert_eq!(it.settle("a", 20, deferred(30)).await, 1);
        let a = it.state("a").await;
        assert_eq!((a.status, a.attempts, a.available_at), (0, 1, Some(moment(50))));
        assert_eq!(a.last_error.as_deref(), Some("first trouble"));
        assert_eq!((a.locked_by, a.locked_at), (None, None));
    }

    /// Rules: O-239, O-245, O-249, O-257, O-258.
    async fn terminal_rows_are_final_whatever_is_settled_late(it) {
        it.insert(&events("ab")).await;
        it.settle("a", 10, Done).await;
        it.settle("b", 10, dead("given up")).await;
        let before = (it.state("a").await, it.state("b").await);
        for settlement in [Done, retry(1, "late"), dead("late"), deferred(1)] {
            for id in ["a", "b"] {
                assert_eq!(it.settle(id, 20, settlement.clone()).await, 0, "{id} {settlement:?}");
            }
        }
        assert_eq!((it.state("a").await, it.state("b").await), before);
    }

    /// Rules: O-258.
    async fn a_settlement_under_a_lost_claim_changes_nothing(it) {
        it.insert(&events("a")).await;
        let first = it.claim("node-1", 10, 1).await[0].claim.clone().unwrap();
        // Its time is up, and the very same node takes the row again.
        let second = it.claim("node-1", 200, 1).await[0].claim.clone().unwrap();
        let stranger = Claim { owner: "node-2".into(), seq: second.seq };
        let before = it.state("a").await;
        for settlement in [Done, retry(1, "late"), dead("late"), deferred(1)] {
            for lost in [&first, &stranger] {
                assert_eq!(it.settle_under(Some(lost), "a", 210, settlement.clone()).await, 0);
            }
        }
        assert_eq!(it.state("a").await, before);
        assert_eq!(it.settle_under(Some(&second), "a", 220, Done).await, 1);
    }

    async fn many_settlements_under_different_claims_are_told_apart(it) {
        it.insert(&events("abcd")).await;
        it.claim("node-1", 10, 1).await; // a, once
        let rows = it.claim("node-2", 100, 3).await; // a again; b and c for the first time
        assert_eq!(ids(&rows), "abc");
        let settle = |row: &Row| Settle {
            id: row.id.clone(),
            claim: row.claim.clone(),
            attempts: None,
            generation: None,
            settlement: Done,
        };
        let mut settles: Vec<_> = rows.iter().map(settle).collect();
        settles[2].claim = Some(Claim { owner: "node-1".into(), seq: 1 }); // not the owner of c
        settles.push(Settle { id: "d".to_owned(), claim: None, attempts: None, generation: None, settlement: Done });
        assert_eq!(it.store.settle(at(110), &settles).await.unwrap(), 3);
        let mut status = Vec::new();
        for id in ["a", "b", "c", "d"] {
            status.push(it.state(id).await.status);
        }
        assert_eq!(status, [1, 1, 0, 1]);
    }

    async fn a_thousand_rows_are_settled_at_once(it) {
        let events: Vec<_> = (0..1_203).map(|number| event(&format!("{number:05}"), number)).collect();
        it.insert(&events).await;
        let done = |event: &Event| Settle {
            id: event.id().to_owned(),
            claim: None,
            attempts: None,
            generation: None,
            settlement: Done,
        };
        let settles: Vec<_> = events.iter().map(done).collect();
        assert_eq!(it.store.settle(at(5_000), &settles).await.unwrap(), 1_203);
        assert_eq!(it.store.settle(at(5_000), &[]).await.unwrap(), 0);
    }

    async fn what_ends_alike_is_written_together_each_row_with_its_own_moment_and_error(it) {
        let events: Vec<_> = (0..250).map(|number| event(&format!("{number:05}"), number)).collect();
        it.insert(&events).await;
        let settle = |(number, event): (i64, &Event)| Settle {
            id: event.id().to_owned(),
            claim: None,
            attempts: Some(0),
            generation: None,
            settlement: match number % 3 {
                0 => retry(number.unsigned_abs(), &format!("error {number}")),
                1 => dead(&format!("error {number}")),
                _ => deferred(number.unsigned_abs()),
            },
        };
        let settles: Vec<_> = (0..).zip(&events).map(settle).collect();
        assert_eq!(it.store.settle(at(1_000), &settles).await.unwrap(), 250);
        for number in [0, 1, 2, 99, 100, 101, 247, 248, 249] {
            let row = it.state(&format!("{number:05}")).await;
            let due = row.available_at.map(|due| due - moment(1_000)).map(|ahead| ahead.num_seconds());
            let error = row.last_error.clone();
            match number % 3 {
                0 => assert_eq!((row.status, row.attempts, due), (2, 1, Some(number)), "{row:?}"),
                1 => assert_eq!((row.status, row.done_at), (3, Some(moment(1_000))), "{row:?}"),
                _ => assert_eq!((row.status, row.attempts, due), (0, 0, Some(number)), "{row:?}"),
            }
            assert_eq!(error, (number % 3 != 2).then(|| format!("error {number}")));
        }
    }

    async fn a_retry_that_is_written_again_because_its_answer_was_lost_counts_once(it) {
        it.insert(&events("ab")).await;
        let settle = |id: &str| Settle {
            id: id.to_owned(),
            claim: None,
            attempts: Some(0),
            generation: None,
            settlement: retry(5, "no answer"),
        };
        assert_eq!(it.store.settle(at(10), &[settle("a")]).await.unwrap(), 1);
        assert_eq!(it.store.settle(at(11), &[settle("a"), settle("b")]).await.unwrap(), 1);
        assert_eq!((it.state("a").await.attempts, it.state("b").await.attempts), (1, 1));
        assert_eq!(it.state("a").await.available_at, Some(moment(15)));
    }

    /// Rules: O-268.
    async fn long_errors_are_cut_to_4000_characters_and_nul_is_made_visible(it) {
        it.insert(&events("ab")).await;
        it.settle("a", 10, retry(1, &"😀".repeat(5_000))).await;
        it.settle("b", 10, dead("a\0b")).await;
        let stored = it.state("a").await.last_error.unwrap();
        assert_eq!(stored.chars().count(), 4_000);
        assert!(stored.ends_with("😀..."));
        assert_eq!(it.state("b").await.last_error.as_deref(), Some("a␀b"));
    }

    async fn settlements_by_the_databases_own_clock_are_counted_from_now_on(it) {
        it.insert(&events("a")).await;
        let before = SystemClock.now();
        let settle = Settle { id: "a".to_owned(), claim: None, attempts: None, generation: None, settlement: retry(3_600, "later") };
        assert_eq!(it.store.settle(At::Database, &[settle]).await.unwrap(), 1);
        let wait = it.state("a").await.available_at.unwrap() - before;
        // The servers run here, so the clocks agree; a time zone gone wrong would be hours off.
        assert!((3_599..3_700).contains(&wait.num_seconds()), "{wait}");
    }

    async fn what_was_replayed_is_not_buried_by_a_settlement_that_is_written_again(it) {
        it.insert(&events("ab")).await;
        let rows = it.poll(10, 10).await;
        let bury = |row: &Row| Settle {
            id: row.id.clone(),
            claim: None,
            attempts: Some(row.attempts),
            generation: Some(row.generation),
            settlement: dead("no"),
        };
        let buried: Vec<_> = rows.iter().map(bury).collect();
        assert_eq!(it.store.settle(at(10), &buried).await.unwrap(), 2);
        // Its answer is lost, and somebody replays one of them before it is written again.
        assert_eq!(it.store.replay_dead(at(11), &["a".to_owned()]).await.unwrap(), 1);
        assert_eq!(it.store.settle(at(12), &buried).await.unwrap(), 0);
        assert_eq!(it.store.unsettled(&buried).await.unwrap(), [""; 0]);
        assert_eq!((it.state("a").await.status, it.state("b").await.status), (0, 3));
        let again: Vec<_> = it.poll(12, 10).await.iter().map(bury).collect();
        assert_eq!(it.store.settle(at(13), &again).await.unwrap(), 1, "in its next life it may die");
    }

    async fn what_a_settlement_did_not_change_and_should_have_is_told(it) {
        it.insert(&events("abc")).await;
        let rows = it.claim("node-1", 10, 3).await;
        let settle = |row: &Row, settlement| Settle {
            id: row.id.clone(),
            claim: row.claim.clone(),
            attempts: Some(0),
            generation: None,
            settlement,
        };
        let settles = [settle(&rows[0], Done), settle(&rows[1], retry(1, "no")), settle(&rows[2], deferred(1))];
        assert_eq!(it.store.unsettled(&settles).await.unwrap().concat().len(), 3);
        it.store.settle(at(10), &settles[..2]).await.unwrap();
        assert_eq!(it.store.unsettled(&settles).await.unwrap(), ["c"]);
        it.store.release(&[("c".to_owned(), rows[2].claim.clone().unwrap())]).await.unwrap();
        assert_eq!(it.store.unsettled(&settles).await.unwrap(), [""; 0], "it is nobody's any more");
    }
}
