//! What operators see and do: counts, lists, single events, requeues, purges, and the report.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_core::inspect::Health;
use backstop_core::operate::Operation;
use backstop_sql::queue::{Filter, Operations, Requeued, Status, Worker};
use backstop_sql::{Error, TableName, Tls};
use backstop_testkit::eventually;
use tokio::sync::Notify;

use crate::harness::*;

database_suite! {
    over empty

    async fn counts_tell_where_events_are(it) {
        let queue = it.started().await;
        queue.publish_all((0..6).map(event).collect()).await.unwrap();
        let mut claimed = Vec::new();
        for _ in 0..3 {
            claimed.push(queue.poll().await.unwrap().unwrap());
        }
        claimed.push(queue.poll_at(at(0)).await.unwrap().unwrap()); // long ago
        queue.finalize(&claimed[1], true).await.unwrap();
        queue.finalize(&claimed[2], false).await.unwrap();
        let counts = queue.operations().counts().await.unwrap();
        let numbers = [counts.pending, counts.processing, counts.stuck, counts.completed, counts.failed].map(|count| count.events);
        assert_eq!(numbers, [2, 2, 1, 1, 1]);
        assert!(counts.oldest.unwrap() < MINUTE);
        let stuck = queue.operations().stuck(10).await.unwrap();
        assert_eq!(stuck.iter().map(|listed| listed.id).collect::<Vec<_>>(), [claimed[3].id()]);
    }

    async fn lists_are_filtered_and_go_on_behind_an_event(it) {
        let queue = it.started().await;
        let ids = queue.publish_all((0..5).map(event).collect()).await.unwrap();
        let other = queue.publish(Event::of("Other").json(&1).unwrap()).await.unwrap();
        let operations = queue.operations();
        let listed = async |status, filter: Filter| -> Vec<i64> {
            operations.list(status, &filter, 3).await.unwrap().into_iter().map(|listed| listed.id).collect()
        };
        assert_eq!(listed(Status::Pending, Filter::default()).await, ids[..3]);
        let mut behind = Filter::default();
        behind.after = Some(ids[2]);
        assert_eq!(listed(Status::Pending, behind).await, [ids[3], ids[4], other]);
        let mut typed = Filter::default();
        typed.event_type = Some("Other".to_owned());
        assert_eq!(listed(Status::Pending, typed).await, [other]);
        for reason in ["out of paper", "out of ink"] {
            let claimed = queue.poll().await.unwrap().unwrap();
            queue.finalize_failed(&claimed, reason).await.unwrap();
        }
        let mut failed = Filter::default();
        failed.error_contains = Some("ink".to_owned());
        assert_eq!(listed(Status::Failed, failed).await, [ids[1]]);
        assert!(listed(Status::Completed, Filter::default()).await.is_empty());
    }

    async fn one_event_is_found_in_whichever_table_it_is(it) {
        let queue = it.started().await;
        let id = queue.publish(event(7)).await.unwrap();
        let operations = queue.operations();
        assert!(operations.find(id + 1).await.unwrap().is_none());
        assert!(operations.why(id).await.unwrap().unwrap().to_string().starts_with("waits since"));
        let claimed = queue.poll().await.unwrap().unwrap();
        let why = operations.why(id).await.unwrap().unwrap().to_string();
        assert!(why.starts_with("is being handled, attempt 1"), "{why}");
        let found = operations.find(id).await.unwrap().unwrap();
        assert_eq!((found.listed.status, found.event.unwrap().payload::<u32>().unwrap()), (Status::Processing, 7));
        queue.finalize_failed(&claimed, "out of paper").await.unwrap();
        let found = operations.find(id).await.unwrap().unwrap();
        assert_eq!((found.listed.status, found.listed.error.as_deref()), (Status::Failed, Some("out of paper")));
        let why = operations.why(id).await.unwrap().unwrap().to_string();
        assert!(why.ends_with("after 1 attempt: out of paper"), "{why}");
    }

    /// Rules.
    async fn a_stuck_event_is_requeued_at_once_and_one_that_is_handled_only_by_force(it) {
        let queue = it.started().await;
        let ids = queue.publish_all((0..2).map(event).collect()).await.unwrap();
        queue.poll().await.unwrap().unwrap();
        let young = queue.poll().await.unwrap().unwrap();
        let long_ago = it.sql_moment(0);
        it.set_row(ids[0], &format!("processing_started_at = {long_ago}")).await;
        let operations = queue.operations();
        let created_at = it.queued(ids[0]).await.unwrap().created_at;
        assert_eq!(operations.requeue(&ids, false).await.unwrap(), Requeued { processing: 1, failed: 0 });
        let row = it.queued(ids[0]).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts, row.processing_started_at), ("PENDING", 1, None));
        assert_eq!(row.created_at, created_at);
        assert_eq!(it.queued(ids[1]).await.unwrap().status, "PROCESSING");
        assert_eq!(queue.poll().await.unwrap().unwrap().id(), ids[0]);

        assert_eq!(operations.requeue(&ids[1..], true).await.unwrap().processing, 1);
        let again = queue.poll().await.unwrap().unwrap();
        assert_eq!((again.id(), again.attempts()), (ids[1], 2));
        let refused = queue.finalize(&young, true).await.unwrap_err();
        assert!(matches!(refused, Error::TakenOver { .. }), "{refused}");
        queue.finalize(&again, true).await.unwrap();
        assert_eq!(operations.requeue(&ids[1..], true).await.unwrap(), Requeued::default(), "what completed stays");
    }

    async fn a_failed_event_comes_back_from_the_log_as_if_new(it) {
        let queue = it.started().await;
        let id = queue.publish(event(7)).await.unwrap();
        let claimed = queue.poll().await.unwrap().unwrap();
        queue.finalize_failed(&claimed, "out of paper").await.unwrap();
        assert_eq!(queue.operations().requeue(&[id], false).await.unwrap(), Requeued { processing: 0, failed: 1 });
        assert_eq!(it.rows().await, (1, 0));
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts, row.last_error.as_deref()), ("PENDING", 0, Some("out of paper")));
        let again = queue.poll().await.unwrap().unwrap();
        assert_eq!((again.id(), again.attempts(), again.event().payload::<u32>().unwrap()), (id, 1, 7));
        queue.finalize(&again, true).await.unwrap();
        assert_eq!(it.logged(id).await.unwrap().status, "COMPLETED");
    }

    async fn a_requeue_wakes_the_worker(it) {
        let (seen, first) = (Seen::default(), Arc::new(std::sync::atomic::AtomicBool::new(true)));
        let noted = seen.clone();
        let worker = Worker::new().on("Numbered", move |delivery: backstop_core::Delivery| {
            noted.note(&delivery);
            let fails = first.swap(false, std::sync::atomic::Ordering::SeqCst);
            async move { if fails { Err(backstop_core::Failure::transient("timeout", "no answer")) } else { Ok(()) } }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        it.until_logged(1).await;
        let changed = queue.inspect().operable().unwrap().operate(&Operation::Replay { ids: vec![id.to_string()] }).await.unwrap();
        assert_eq!(changed.changed, 1);
        eventually("the event handled again", async || it.logged(id).await.is_some_and(|logged| logged.status == "COMPLETED")).await;
        queue.close().await.unwrap();
    }

    async fn the_log_is_purged_by_age_in_batches(it) {
        let queue = it.started().await;
        let ids = queue.publish_all((0..10).map(event).collect()).await.unwrap();
        while let Some(claimed) = queue.poll().await.unwrap() {
            queue.finalize(&claimed, true).await.unwrap();
        }
        for id in &ids[..7] {
            it.run(&format!("update event_log set updated_at = {} where id = {id}", it.sql_moment(0))).await;
        }
        let operations = queue.operations();
        assert_eq!(operations.purge(Duration::from_secs(3_600), 5).await.unwrap(), 5);
        assert_eq!(operations.purge(Duration::from_secs(3_600), 5).await.unwrap(), 2);
        assert_eq!(operations.purge(Duration::from_secs(3_600), 5).await.unwrap(), 0);
        assert_eq!(it.rows().await, (0, 3));
    }

    async fn a_purge_that_is_switched_on_runs_by_itself(it) {
        let first = it.started().await;
        first.publish_all((0..12).map(event).collect()).await.unwrap();
        while let Some(claimed) = first.poll().await.unwrap() {
            first.finalize(&claimed, true).await.unwrap();
        }
        let settings = backstop_sql::outbox::purge::Settings::default().retention(Duration::ZERO).batch_size(5);
        let queue = it.queue().purge(settings).start().await.unwrap();
        eventually("an empty log", async || it.rows().await == (0, 0)).await;
        assert_eq!(queue.metrics().purge.total(), 12);
        queue.close().await.unwrap();
    }

    async fn the_report_shows_places_flows_trouble_and_routes(it) {
        let go_on = Arc::new(Notify::new());
        let waits = go_on.clone();
        let worker = Worker::new()
            .concurrency(1)
            .on("Slow", move |_: Event| { let waits = waits.clone(); async move { waits.notified().await } })
            .on("Fails", |_: Event| async { Err::<(), _>(backstop_core::Failure::permanent("schema", "no such order")) });
        let queue = it.queue().name("jobs").worker(worker).start().await.unwrap();
        let id = queue.publish(Event::of("Fails").json(&1).unwrap()).await.unwrap();
        it.until_logged(1).await;
        queue.publish_all((0..8).map(|number| Event::of("Slow").json(&number).unwrap()).collect()).await.unwrap();
        eventually("a report", async || {
            let report = queue.report().await;
            let place = |name: &str| report.places.iter().find(|place| place.name == name).unwrap().count.events;
            place("waiting") + place("processing") == 8 && place("failed") == 1
        }).await;
        let report = queue.report().await;
        assert_eq!((report.kind, report.name.as_str(), &report.health), ("queue", "jobs", &Health::Up));
        assert_eq!(report.troubled[0].id, id.to_string());
        assert_eq!((report.troubled[0].place, report.troubled[0].error.as_deref()), ("failed", Some("schema: no such order")));
        let names: Vec<_> = report.routes.iter().map(|route| route.name.as_str()).collect();
        assert_eq!(names, ["Fails", "Slow"]);
        let flow = |name: &str| report.flows.iter().find(|flow| flow.name == name).unwrap().total;
        assert_eq!((flow("published"), flow("failed")), (9, 1));
        for _ in 0..20 {
            go_on.notify_one();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        queue.close().await.unwrap();
    }

    async fn operators_reach_the_tables_by_a_url_without_a_queue(it) {
        let queue = it.started().await;
        queue.publish(event(1)).await.unwrap();
        let (events, log) = (TableName::new("events").unwrap(), TableName::new("event_log").unwrap());
        let operations = Operations::connect(&it.url, &Tls::default(), events, log).await.unwrap();
        operations.check().await.unwrap();
        assert_eq!(operations.counts().await.unwrap().pending.events, 1);
        let missing = Operations::connect(&it.url, &Tls::default(), TableName::new("jobs").unwrap(), TableName::new("jobs_done").unwrap()).await.unwrap();
        assert!(matches!(missing.check().await.unwrap_err(), Error::NoTable { .. }));
        missing.migrate().await.unwrap();
        missing.check().await.unwrap();
    }

    /// Accepted = completed + failed + waiting + in hand, whatever happens to the events.
    async fn every_published_event_is_accounted_for(it) {
        let worker = Worker::new().on("Numbered", |event: Event| async move {
            match event.payload::<u32>().unwrap() % 5 {
                0 => Err(backstop_core::Failure::permanent("schema", "no")),
                1 => Ok(backstop_core::Outcome::retry_after(Duration::from_secs(3_600))),
                _ => Ok(backstop_core::Outcome::done()),
            }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        queue.publish_all((0..100).map(event).collect()).await.unwrap();
        it.until_logged(80).await;
        eventually("all deferred", async || queue.metrics().deferred.total() == 20).await;
        queue.close().await.unwrap();
        let counts = queue.operations().counts().await.unwrap();
        assert_eq!([counts.pending, counts.processing, counts.completed, counts.failed].map(|count| count.events), [20, 0, 60, 20]);
        let metrics = queue.metrics();
        let ended = metrics.completed.total() + metrics.failed.total();
        assert_eq!(metrics.published.total(), ended + counts.pending.events);
        assert_eq!(metrics.taken.total(), ended + metrics.deferred.total() + metrics.given_back.total());
    }
}
