//! Events whose worker died or stood still: when they count as abandoned, who takes them over, and what the late worker may do.

use std::time::Duration;

use backstop_sql::Error;

use crate::harness::*;

/// Five minutes, as the document has it.
const TIMEOUT: i64 = 300;

database_suite! {
    over empty

    /// Rules.
    async fn an_event_that_was_taken_longer_than_five_minutes_ago_is_taken_over(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        queue.poll_at(at(0)).await.unwrap().unwrap();
        for seconds in [0, TIMEOUT - 1, TIMEOUT] {
            assert!(queue.poll_at(at(seconds)).await.unwrap().is_none(), "exactly as old is not older: {seconds}");
        }
        let again = queue.poll_at(at(TIMEOUT + 1)).await.unwrap().unwrap();
        assert_eq!((again.id(), again.attempts()), (id, 2));
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts), ("PROCESSING", 2));
        assert_eq!((row.processing_started_at, row.updated_at), (Some(moment(TIMEOUT + 1)), moment(TIMEOUT + 1)));
        assert!(queue.poll_at(at(2 * TIMEOUT)).await.unwrap().is_none(), "its time begins anew");
    }

    /// Rules: Q-058.
    async fn what_was_taken_over_is_finalized_like_any_other(it) {
        let queue = it.started().await;
        let ids = queue.publish_all(vec![event(1), event(2)]).await.unwrap();
        for _ in 0..2 {
            queue.poll_at(at(0)).await.unwrap().unwrap();
        }
        for success in [true, false] {
            let again = queue.poll_at(at(TIMEOUT + 1)).await.unwrap().unwrap();
            queue.finalize(&again, success).await.unwrap();
        }
        let (one, two) = (it.logged(ids[0]).await.unwrap(), it.logged(ids[1]).await.unwrap());
        assert_eq!((one.status.as_str(), one.attempts), ("COMPLETED", 2));
        assert_eq!((two.status.as_str(), two.attempts), ("FAILED", 2));
    }

    /// Rules: Q-042.
    async fn abandoned_and_waiting_events_compete_by_their_numbers(it) {
        let queue = it.started().await;
        let ids = queue.publish_all((0..4).map(event).collect()).await.unwrap();
        for (place, seconds) in [(1, 5), (2, 0)] {
            it.set_row(ids[place], &format!("status = 'PROCESSING', attempts = 1, processing_started_at = {}", it.sql_moment(seconds))).await;
        }
        for id in ids {
            assert_eq!(queue.poll_at(at(TIMEOUT + 60)).await.unwrap().unwrap().id(), id);
        }
    }

    /// Rules.
    async fn the_start_of_the_processing_decides_and_the_last_change_only_where_it_is_missing(it) {
        let queue = it.started().await;
        let ids = queue.publish_all((0..2).map(event).collect()).await.unwrap();
        let (long_ago, now) = (it.sql_moment(0), it.sql_moment(TIMEOUT + 1));
        it.set_row(ids[0], &format!("status = 'PROCESSING', processing_started_at = {long_ago}, updated_at = {now}")).await;
        it.set_row(ids[1], &format!("status = 'PROCESSING', processing_started_at = null, updated_at = {now}")).await;
        assert_eq!(queue.poll_at(at(TIMEOUT + 1)).await.unwrap().unwrap().id(), ids[0]);
        assert!(queue.poll_at(at(TIMEOUT + 1)).await.unwrap().is_none());
        it.set_row(ids[1], &format!("updated_at = {long_ago}")).await;
        assert_eq!(queue.poll_at(at(TIMEOUT + 1)).await.unwrap().unwrap().id(), ids[1]);
    }

    /// Rules: Q-065.
    async fn who_was_too_slow_changes_nothing_and_is_told(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        let slow = queue.poll_at(at(0)).await.unwrap().unwrap();
        let quick = queue.poll_at(at(TIMEOUT + 1)).await.unwrap().unwrap();
        let refused = queue.finalize(&slow, true).await.unwrap_err();
        assert!(matches!(refused, Error::TakenOver { attempt: 1, .. }), "{refused}");
        assert_eq!(it.queued(id).await.unwrap().status, "PROCESSING");
        queue.finalize(&quick, false).await.unwrap();
        let refused = queue.finalize(&slow, true).await.unwrap_err();
        assert!(matches!(refused, Error::TakenOver { .. }), "{refused}");
        assert_eq!(it.logged(id).await.unwrap().status, "FAILED");
        assert_eq!(queue.metrics().late.total(), 2);
    }

    /// Rules: Q-069.
    async fn each_queue_on_a_table_judges_by_its_own_timeout(it) {
        let patient = it.started().await;
        let hasty = it.queue().abandoned_timeout(Duration::from_secs(10)).start().await.unwrap();
        let id = patient.publish(event(1)).await.unwrap();
        let slow = patient.poll_at(at(0)).await.unwrap().unwrap();
        assert!(patient.poll_at(at(11)).await.unwrap().is_none());
        let quick = hasty.poll_at(at(11)).await.unwrap().unwrap();
        assert_eq!((quick.id(), quick.attempts()), (id, 2));
        assert!(patient.finalize(&slow, true).await.is_err());
        hasty.finalize(&quick, true).await.unwrap();
        assert_eq!(it.rows().await, (0, 1));
    }

    /// Rules: Q-089.
    async fn past_its_attempts_an_event_fails_without_being_handled_again(it) {
        let queue = it.queue().max_attempts(2).start().await.unwrap();
        let ids = queue.publish_all((0..2).map(event).collect()).await.unwrap();
        for attempt in 1..=2 {
            let claimed = queue.poll_at(at((TIMEOUT + 1) * attempt)).await.unwrap().unwrap();
            assert_eq!((claimed.id(), i64::from(claimed.attempts())), (ids[0], attempt));
        }
        let next = queue.poll_at(at((TIMEOUT + 1) * 3)).await.unwrap().unwrap();
        assert_eq!((next.id(), next.attempts()), (ids[1], 1), "the first is not handed out any more");
        let logged = it.logged(ids[0]).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts), ("FAILED", 2));
        assert!(logged.error.unwrap().contains("given up after 2 attempts"));
    }
}
