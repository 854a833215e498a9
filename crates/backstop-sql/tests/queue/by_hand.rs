//! Polling and finalizing by hand: what is taken, in which order, by whom, and what becomes of it.

use std::sync::Arc;

use backstop_core::Event;
use backstop_sql::Error;
use backstop_sql::connection::Connection as _;
use tokio::task::JoinSet;

use crate::harness::*;

database_suite! {
    over empty

    /// Rules: Q-037, Q-038, Q-039, Q-043, Q-050, Q-072, Q-077.
    async fn a_poll_takes_the_event_and_counts_one_attempt(it) {
        let queue = it.started().await;
        let id = queue.publish(event(7)).await.unwrap();
        let before = it.queued(id).await.unwrap();
        let claimed = queue.poll_at(at(50)).await.unwrap().unwrap();
        assert_eq!((claimed.id(), claimed.attempts()), (id, 1), "the attempts are those after it was taken");
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts), ("PROCESSING", 1));
        assert_eq!((row.processing_started_at, row.updated_at), (Some(moment(50)), moment(50)));
        assert_eq!(row.created_at, before.created_at);
    }

    /// Rules: Q-036, Q-060, Q-075.
    async fn one_poll_takes_one_event_of_any_type_the_lowest_id_first(it) {
        let queue = it.started().await;
        let other = Event::of("Other").json(&9).unwrap();
        let ids = queue.publish_all(vec![event(1), other, event(3)]).await.unwrap();
        for (place, id) in ids.iter().enumerate() {
            assert_eq!(queue.poll().await.unwrap().unwrap().id(), *id, "{place}");
            let waiting = it.number("select count(*) from events where status = 'PENDING'").await;
            assert_eq!(waiting, 2 - i64::try_from(place).unwrap());
        }
    }

    /// Rules: Q-074.
    async fn a_poll_that_finds_nothing_says_so_at_once(it) {
        let queue = it.started().await;
        let began = std::time::Instant::now();
        assert!(queue.poll().await.unwrap().is_none());
        assert!(began.elapsed() < MINUTE / 6, "it waited for something");
    }

    /// Rules: Q-009, Q-017, Q-018, Q-019, Q-022, Q-023, Q-044, Q-046, Q-048, Q-051.
    async fn success_moves_the_event_to_the_log_as_completed(it) {
        let queue = it.started().await;
        let id = queue.publish(event(7)).await.unwrap();
        let created_at = it.queued(id).await.unwrap().created_at;
        let claimed = queue.poll().await.unwrap().unwrap();
        queue.finalize(&claimed, true).await.unwrap();
        assert!(it.queued(id).await.is_none());
        let logged = it.logged(id).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts, logged.error), ("COMPLETED", 1, None));
        assert_eq!(logged.created_at, created_at);
        assert!(logged.updated_at >= created_at);
        assert!(logged.payload.contains(r#""data":7"#) || logged.payload.contains(r#""data": 7"#), "{}", logged.payload);
        assert_eq!(it.rows().await, (0, 1));
    }

    /// Rules: Q-021, Q-045, Q-052, Q-073.
    async fn failure_moves_it_as_failed_with_the_reason_if_there_is_one(it) {
        let queue = it.started().await;
        let ids = queue.publish_all(vec![event(1), event(2)]).await.unwrap();
        let (one, two) = (queue.poll().await.unwrap().unwrap(), queue.poll().await.unwrap().unwrap());
        queue.finalize(&one, false).await.unwrap();
        queue.finalize_failed(&two, "out of paper").await.unwrap();
        let logged = it.logged(ids[0]).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts, logged.error.as_deref()), ("FAILED", 1, None));
        assert_eq!(it.logged(ids[1]).await.unwrap().error.as_deref(), Some("out of paper"));
    }

    /// Rules: Q-028, Q-029.
    async fn each_table_holds_its_own_two_statuses(it) {
        let queue = it.started().await;
        queue.publish_all((0..4).map(event).collect()).await.unwrap();
        let claimed = [queue.poll().await.unwrap().unwrap(), queue.poll().await.unwrap().unwrap(), queue.poll().await.unwrap().unwrap()];
        queue.finalize(&claimed[0], true).await.unwrap();
        queue.finalize(&claimed[1], false).await.unwrap();
        let names = |table: &str| format!("select distinct cast(status as char(16)) from {table} order by 1");
        let trimmed = |names: Vec<String>| names.into_iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(trimmed(it.texts(&names("events")).await), ["PENDING", "PROCESSING"]);
        assert_eq!(trimmed(it.texts(&names("event_log")).await), ["COMPLETED", "FAILED"]);
    }

    /// The reading of what the document leaves open: a second call has no effect, an unknown event is an error, and so is one
    /// that nobody has taken.
    async fn finalizing_twice_an_unknown_one_and_one_that_waits(it) {
        let queue = it.started().await;
        let ids = queue.publish_all(vec![event(1), event(2)]).await.unwrap();
        let claimed = queue.poll().await.unwrap().unwrap();
        queue.finalize(&claimed, true).await.unwrap();
        queue.finalize(&claimed, false).await.unwrap();
        queue.finalize_by_id(ids[0], false).await.unwrap();
        assert_eq!(it.logged(ids[0]).await.unwrap().status, "COMPLETED", "the first word counts");
        let unknown = queue.finalize_by_id(4_711, true).await.unwrap_err();
        assert!(matches!(unknown, Error::NotQueued { id: 4_711 }), "{unknown}");
        let waiting = queue.finalize_by_id(ids[1], true).await.unwrap_err();
        assert!(matches!(waiting, Error::NotProcessing { status: "PENDING", .. }), "{waiting}");
        assert_eq!(it.rows().await, (1, 1));
    }

    async fn by_its_number_an_event_is_finalized_whoever_holds_it(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        let claimed = queue.poll().await.unwrap().unwrap();
        queue.finalize_by_id(id, false).await.unwrap();
        assert_eq!(it.logged(id).await.unwrap().status, "FAILED");
        queue.finalize(&claimed, true).await.unwrap(); // the same attempt: it has ended already
        assert_eq!(it.logged(id).await.unwrap().status, "FAILED");
    }

    /// Rules: Q-047, Q-062.
    async fn a_finalize_that_fails_half_way_changes_nothing(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        let claimed = queue.poll().await.unwrap().unwrap();
        // The log has the number already, so the insert fails; the row must not be deleted without it.
        let now = it.sql_moment(0);
        it.run(&format!("insert into event_log (id, payload, status, attempts, created_at, updated_at) values ({id}, '{{}}', 'FAILED', 9, {now}, {now})")).await;
        queue.finalize(&claimed, true).await.unwrap_err();
        assert_eq!(it.queued(id).await.unwrap().status, "PROCESSING");
        it.run("delete from event_log").await;
        queue.finalize(&claimed, true).await.unwrap();
        assert_eq!(it.rows().await, (0, 1));
    }

    async fn an_event_that_is_given_back_was_never_taken(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        let claimed = queue.poll().await.unwrap().unwrap();
        queue.give_back(&claimed).await.unwrap();
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts, row.processing_started_at), ("PENDING", 0, None));
        let refused = queue.finalize(&claimed, true).await.unwrap_err();
        assert!(matches!(refused, Error::NotProcessing { .. }), "{refused}");
        let again = queue.poll().await.unwrap().unwrap();
        assert_eq!(again.attempts(), 1);
        assert!(queue.give_back(&claimed).await.is_err(), "the first claim is worth nothing");
        let refused = queue.finalize(&claimed, true).await.unwrap_err();
        assert!(matches!(refused, Error::TakenOver { attempt: 1, .. }), "though both are the first attempt: {refused}");
        queue.finalize(&again, true).await.unwrap();
    }

    /// Rules: Q-003, Q-008, Q-059, Q-061, Q-063.
    async fn many_who_poll_at_once_take_each_event_once(it) {
        let queue = Arc::new(it.started().await);
        let mut ids = queue.publish_all((0..60).map(event).collect()).await.unwrap();
        let mut polling = JoinSet::new();
        for _ in 0..4 {
            let queue = queue.clone();
            polling.spawn(async move {
                let mut taken = Vec::new();
                while let Some(claimed) = queue.poll().await.unwrap() {
                    taken.push(claimed.id());
                }
                taken
            });
        }
        let mut taken = polling.join_all().await.concat();
        taken.sort_unstable();
        ids.sort_unstable();
        assert_eq!(taken, ids);
    }

    /// Rules: Q-064.
    async fn nothing_is_locked_while_an_event_is_handled(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        let _claimed = queue.poll().await.unwrap().unwrap();
        assert_eq!(it.run(&format!("update events set last_error = 'seen' where id = {id}")).await, 1);
    }

    async fn an_event_that_is_no_json_fails_with_the_reason_and_the_next_is_taken(it) {
        let queue = it.started().await;
        let good = if it.kind.name() == "PostgreSQL" {
            // Its column holds nothing else than JSON.
            it.run("alter table events alter column event type text").await;
            it.run("insert into events (event) values ('no json')").await;
            it.run("insert into events (event) values ('{\"type\":\"Numbered\",\"data\":5}')").await;
            it.number("select max(id) from events").await
        } else {
            it.run("insert into events (event) values ('no json')").await;
            it.run("insert into events (event) values ('{\"type\":\"Numbered\",\"data\":5}')").await;
            it.number("select max(id) from events").await
        };
        let claimed = queue.poll().await.unwrap().unwrap();
        assert_eq!((claimed.id(), claimed.event().event_type()), (good, "Numbered"));
        let logged = it.logged(good - 1).await.unwrap();
        assert_eq!(logged.status, "FAILED");
        assert!(logged.error.unwrap().contains("does not hold JSON"));
    }
}

/// A renewal, or anybody else, changes the row while a finalize waits for it: the finalize must go by what the row is then, and
/// neither leave it behind in both tables nor lose it.
async fn a_finalize_waits_for_who_has_locked_the_row<DB: Database>() {
    let Some(it) = DB::make().await else { return };
    let queue = it.started().await;
    let ids = queue.publish_all((0..2).map(event).collect()).await.unwrap();
    let claimed = [queue.poll().await.unwrap().unwrap(), queue.poll().await.unwrap().unwrap()];
    let mut transaction = it.connections.transaction("begin").await.unwrap();
    let change =
        |assignment: &str, id: i64| it.statement(&format!("update events set {assignment} where id = {id}"));
    transaction.execute(&change("last_error = 'touched'", ids[0])).await.unwrap();
    transaction.execute(&change("claim_seq = claim_seq + 1, attempts = attempts + 1", ids[1])).await.unwrap();
    let (first, second) = (queue.finalize(&claimed[0], true), queue.finalize(&claimed[1], true));
    let (first, second) = tokio::join!(first, async {
        let finalized = second;
        tokio::pin!(finalized);
        // Both wait by now; the change commits under them.
        let waited = tokio::time::timeout(std::time::Duration::from_millis(300), &mut finalized).await;
        assert!(waited.is_err(), "it did not wait");
        transaction.commit().await.unwrap();
        finalized.await
    });
    first.unwrap();
    assert!(matches!(second, Err(Error::TakenOver { .. })), "{second:?}");
    assert_eq!(it.rows().await, (1, 1), "each in one table");
    assert!(it.logged(ids[0]).await.is_some() && it.queued(ids[1]).await.is_some());
}

#[tokio::test]
async fn a_finalize_goes_by_what_a_row_is_after_it_has_waited_for_it_on_postgres() {
    a_finalize_waits_for_who_has_locked_the_row::<sqlx::Postgres>().await;
}

#[tokio::test]
async fn a_finalize_goes_by_what_a_row_is_after_it_has_waited_for_it_on_mysql() {
    a_finalize_waits_for_who_has_locked_the_row::<sqlx::MySql>().await;
}
