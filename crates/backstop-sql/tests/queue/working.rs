//! The worker: routing, results, retries, limits, and an orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_core::{Delivery, Event, Failure, Outcome};
use backstop_sql::queue::{OnFailure, Worker};
use backstop_testkit::eventually;
use tokio::sync::Notify;

use crate::harness::*;

fn always_failing() -> Worker {
    Worker::new()
        .on("Numbered", |_: Event| async { Err::<(), _>(Failure::transient("timeout", "no answer")) })
}

database_suite! {
    over empty

    /// Rules: Q-004, Q-078, Q-081, Q-097.
    async fn a_worker_handles_what_is_published_and_moves_it_to_the_log(it) {
        let seen = Seen::default();
        let queue = it.queue().worker(seen.worker()).start().await.unwrap();
        queue.publish_all((0..300).map(event).collect()).await.unwrap();
        it.until_logged(300).await;
        assert_eq!(seen.numbers(), (0..300).collect::<Vec<_>>());
        assert!(seen.all().iter().all(|(_, attempt)| *attempt == 1));
        assert_eq!(it.number("select count(*) from event_log where status = 'COMPLETED'").await, 300);
        queue.close().await.unwrap();
        assert_eq!(it.rows().await, (0, 300));
        let metrics = queue.metrics();
        assert_eq!((metrics.taken.total(), metrics.completed.total(), queue.in_hand()), (300, 300, 0));
    }

    async fn what_was_there_before_the_worker_is_handled_too(it) {
        let producer = it.started().await;
        producer.publish_all((0..20).map(event).collect()).await.unwrap();
        let seen = Seen::default();
        let queue = it.queue().worker(seen.worker()).start().await.unwrap();
        it.until_logged(20).await;
        queue.close().await.unwrap();
    }

    async fn events_go_to_the_handler_of_their_type_and_the_others_to_the_fallback(it) {
        let (one, rest) = (Seen::default(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let noted = rest.clone();
        let worker = one.worker().otherwise(move |event: Event| {
            noted.lock().unwrap().push(event.event_type().to_owned());
            async {}
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        let with_aggregate = Event::of("Numbered").aggregate("Order", "42").json(&2).unwrap();
        queue.publish_all(vec![event(1), with_aggregate, Event::of("Other").json(&1).unwrap()]).await.unwrap();
        it.run(r#"insert into events (event) values ('{"kind":"typeless"}')"#).await;
        it.until_logged(4).await;
        queue.close().await.unwrap();
        assert_eq!(one.numbers(), [1, 2], "the type alone decides");
        let mut rest = rest.lock().unwrap().clone();
        rest.sort();
        assert_eq!(rest, ["", "Other"]);
    }

    async fn an_event_without_a_handler_fails_with_the_reason(it) {
        let queue = it.queue().worker(Seen::default().worker()).start().await.unwrap();
        let id = queue.publish(Event::of("Other").json(&1).unwrap()).await.unwrap();
        it.until_logged(1).await;
        let logged = it.logged(id).await.unwrap();
        assert_eq!(logged.status, "FAILED");
        assert_eq!(logged.error.unwrap(), "unroutable: no handler is registered for event type Other");
        queue.close().await.unwrap();
    }

    async fn a_worker_without_handlers_and_two_handlers_for_one_type_are_refused(it) {
        let refused = it.queue().worker(Worker::new()).start().await.unwrap_err();
        assert!(refused.to_string().contains("has no handler"), "{refused}");
        let twice = Seen::default().worker().on("Numbered", |_: Event| async {});
        let refused = it.queue().worker(twice).start().await.unwrap_err();
        assert!(refused.to_string().contains("already registered"), "{refused}");
    }

    /// Rules: Q-053, Q-083, Q-084.
    async fn any_error_of_a_handler_is_final_and_the_worker_goes_on(it) {
        let worker = Worker::new()
            .on("Fails", |_: Event| async { Err::<(), _>(Failure::transient("timeout", "no answer")) })
            .on("Panics", |_: Event| async { panic!("no ink") as Outcome })
            .on("Refuses", |_: Event| async { Outcome::dead_because("cancelled") })
            .on("Numbered", |_: Event| async {});
        let queue = it.queue().worker(worker).start().await.unwrap();
        let of = |name: &str| Event::of(name).json(&0).unwrap();
        let ids = queue.publish_all(vec![of("Fails"), of("Panics"), of("Refuses"), event(1)]).await.unwrap();
        it.until_logged(4).await;
        let mut errors = Vec::new();
        for id in &ids {
            let logged = it.logged(*id).await.unwrap();
            assert_eq!(logged.attempts, 1);
            errors.push((logged.status, logged.error));
        }
        let failed = |text: &str| ("FAILED".to_owned(), Some(text.to_owned()));
        assert_eq!(errors, [
            failed("timeout: no answer"),
            failed("panic: the handler panicked: no ink"),
            failed("cancelled"),
            ("COMPLETED".to_owned(), None),
        ]);
        queue.close().await.unwrap();
    }

    /// Rules: Q-053.
    async fn failures_are_tried_again_if_the_worker_is_told_to(it) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let worker = Worker::new()
            .on_failure(OnFailure::Retry)
            .retry_policy(|_, _| Duration::from_millis(20))
            .on("Numbered", move |_: Event| {
                let call = counted.fetch_add(1, Ordering::SeqCst) + 1;
                async move { if call < 3 { Err(Failure::transient("timeout", "no answer")) } else { Ok(()) } }
            });
        let queue = it.queue().worker(worker).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        it.until_logged(1).await;
        let logged = it.logged(id).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts), ("COMPLETED", 3));
        assert_eq!(queue.metrics().retried.total(), 2);
        queue.close().await.unwrap();
    }

    /// Rules: Q-089.
    async fn retries_end_at_the_limit_with_the_last_error(it) {
        let worker = always_failing().on_failure(OnFailure::Retry).retry_policy(|_, _| Duration::from_millis(5));
        let queue = it.queue().worker(worker).max_attempts(3).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        it.until_logged(1).await;
        let logged = it.logged(id).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts), ("FAILED", 3));
        assert_eq!(logged.error.as_deref(), Some("timeout: no answer"));
        queue.close().await.unwrap();
    }

    async fn while_it_waits_for_its_retry_an_event_shows_its_error(it) {
        let worker = always_failing().on_failure(OnFailure::Retry).retry_policy(|_, _| Duration::from_secs(3_600));
        let queue = it.queue().worker(worker).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        eventually("a retry", async || it.queued(id).await.is_some_and(|row| row.last_error.is_some())).await;
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts), ("PENDING", 1));
        assert!(row.available_at.is_some() && row.processing_started_at.is_none());
        let why = queue.operations().why(id).await.unwrap().unwrap().to_string();
        assert!(why.contains("is tried again at") && why.ends_with("after 1 attempt: timeout: no answer"), "{why}");
        queue.close().await.unwrap();
    }

    async fn a_deferral_counts_no_attempt(it) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let worker = Worker::new().on("Numbered", move |delivery: Delivery| {
            assert_eq!(delivery.attempt, 1);
            let call = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move { if call < 4 { Outcome::retry_after(Duration::from_millis(10)) } else { Outcome::done() } }
        });
        let queue = it.queue().worker(worker).max_attempts(1).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        it.until_logged(1).await;
        let logged = it.logged(id).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts, calls.load(Ordering::SeqCst)), ("COMPLETED", 1, 4));
        queue.close().await.unwrap();
    }

    /// Rules: Q-080, Q-088.
    async fn an_idle_worker_rests_and_finds_what_others_insert(it) {
        let seen = Seen::default();
        let worker = seen.worker().idle_wait(Duration::from_millis(200));
        let queue = it.queue().worker(worker).start().await.unwrap();
        assert_eq!(backstop_sql::queue::Config::default().worker.idle_wait, Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(300)).await;
        it.run(r#"insert into events (event) values ('{"type":"Numbered"}')"#).await;
        it.until_logged(1).await;
        queue.close().await.unwrap();
    }

    /// Rules: Q-082.
    async fn no_more_events_are_handled_at_once_than_the_concurrency_allows(it) {
        let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (now, high) = (running.clone(), most.clone());
        let worker = Worker::new().concurrency(3).on("Numbered", move |_: Event| {
            let (now, high) = (now.clone(), high.clone());
            async move {
                high.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        queue.publish_all((0..40).map(event).collect()).await.unwrap();
        it.until_logged(40).await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
        queue.close().await.unwrap();
    }

    async fn slow_handlers_leave_most_events_to_others(it) {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (told, waits) = (begun.clone(), go_on.clone());
        let worker = Worker::new().concurrency(2).on("Numbered", move |_: Event| {
            told.notify_one();
            let waits = waits.clone();
            async move { waits.notified().await }
        });
        let queue = it.queue().worker(worker.drain_timeout(Duration::from_millis(50))).start().await.unwrap();
        queue.publish_all((0..200).map(event).collect()).await.unwrap();
        begun.notified().await;
        eventually("a look", async || it.number("select count(*) from events where status = 'PROCESSING'").await > 2).await;
        let taken = it.number("select count(*) from events where status = 'PROCESSING'").await;
        assert!(taken <= 6, "two in the hands of handlers, four ahead: {taken}");
        queue.close().await.unwrap();
    }

    /// A shutdown is no failure: what was not handled goes back as if nobody had taken it.
    async fn an_orderly_end_sets_back_what_was_not_handled_and_what_was_cancelled(it) {
        let begun = Arc::new(Notify::new());
        let told = begun.clone();
        let worker = Worker::new().concurrency(2).drain_timeout(Duration::from_millis(50)).on("Numbered", move |_: Event| {
            told.notify_one();
            async { std::future::pending::<()>().await }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        let ids = queue.publish_all((0..10).map(event).collect()).await.unwrap();
        begun.notified().await;
        queue.close().await.unwrap();
        for id in ids {
            let row = it.queued(id).await.unwrap();
            assert_eq!((row.status.as_str(), row.attempts, row.processing_started_at), ("PENDING", 0, None), "{id}");
        }
        assert_eq!(it.rows().await, (10, 0));
        assert_eq!(queue.in_hand(), 0);
        queue.close().await.unwrap();
    }

    async fn an_orderly_end_waits_for_handlers_that_are_about_to_finish(it) {
        let begun = Arc::new(Notify::new());
        let told = begun.clone();
        let worker = Worker::new().on("Numbered", move |_: Event| {
            told.notify_one();
            async { tokio::time::sleep(Duration::from_millis(100)).await }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        begun.notified().await;
        queue.close().await.unwrap();
        assert_eq!(it.logged(id).await.unwrap().status, "COMPLETED");
    }

    /// Renewal keeps a slow handler's event from others.
    async fn a_handler_slower_than_the_timeout_keeps_its_event(it) {
        let seen = Seen::default();
        let noted = seen.clone();
        let worker = Worker::new().on("Numbered", move |delivery: Delivery| {
            noted.note(&delivery);
            async { tokio::time::sleep(Duration::from_millis(2_500)).await }
        });
        let timeout = Duration::from_millis(900);
        let queue = it.queue().abandoned_timeout(timeout).worker(worker).start().await.unwrap();
        let other = it.queue().abandoned_timeout(timeout).worker(seen.worker()).start().await.unwrap();
        let id = queue.publish(event(1)).await.unwrap();
        it.until_logged(1).await;
        let logged = it.logged(id).await.unwrap();
        assert_eq!((logged.attempts, seen.all().len()), (1, 1));
        queue.close().await.unwrap();
        other.close().await.unwrap();
    }

    async fn what_a_dead_worker_held_is_taken_over_and_finished(it) {
        let dead = it.queue().abandoned_timeout(Duration::from_millis(300)).start().await.unwrap();
        let ids = dead.publish_all((0..30).map(event).collect()).await.unwrap();
        for _ in 0..30 {
            dead.poll().await.unwrap().unwrap(); // and then it never says anything again
        }
        let seen = Seen::default();
        let queue = it.queue().abandoned_timeout(Duration::from_millis(300)).worker(seen.worker()).start().await.unwrap();
        it.until_logged(30).await;
        assert_eq!(seen.numbers(), (0..30).collect::<Vec<_>>());
        assert!(seen.all().iter().all(|(_, attempt)| *attempt == 2));
        assert_eq!(queue.metrics().taken_over.total(), 30);
        assert_eq!(it.logged(ids[0]).await.unwrap().status, "COMPLETED");
        queue.close().await.unwrap();
    }

    /// One that kills its worker must not use up the attempts of its neighbours, so they are taken over one at a time.
    async fn abandoned_events_are_taken_over_one_at_a_time(it) {
        let timeout = Duration::from_millis(300);
        let dead = it.queue().abandoned_timeout(timeout).start().await.unwrap();
        dead.publish_all((0..20).map(event).collect()).await.unwrap();
        for _ in 0..20 {
            dead.poll().await.unwrap().unwrap();
        }
        let most = Arc::new(AtomicU32::new(0));
        let (high, running) = (most.clone(), Arc::new(AtomicU32::new(0)));
        let worker = Worker::new().concurrency(8).on("Numbered", move |_: Event| {
            let (high, running) = (high.clone(), running.clone());
            async move {
                high.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(3)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let queue = it.queue().abandoned_timeout(timeout).worker(worker).start().await.unwrap();
        it.until_logged(20).await;
        assert_eq!(most.load(Ordering::SeqCst), 1);
        queue.close().await.unwrap();
    }

    async fn past_its_attempts_an_abandoned_event_is_not_handled_again(it) {
        let timeout = Duration::from_millis(200);
        let dead = it.queue().abandoned_timeout(timeout).start().await.unwrap();
        let id = dead.publish(event(1)).await.unwrap();
        dead.poll().await.unwrap().unwrap();
        it.set_row(id, "attempts = 3").await;
        let seen = Seen::default();
        let queue = it.queue().abandoned_timeout(timeout).max_attempts(3).worker(seen.worker()).start().await.unwrap();
        it.until_logged(1).await;
        assert!(seen.all().is_empty());
        let logged = it.logged(id).await.unwrap();
        assert_eq!((logged.status.as_str(), logged.attempts), ("FAILED", 3));
        assert!(logged.error.unwrap().contains("given up after 3 attempts"));
        queue.close().await.unwrap();
    }

    async fn a_failed_event_is_copied_to_the_dead_letters_before_it_is_recorded(it) {
        let letters = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = letters.clone();
        let worker = always_failing().dead_letters(move |letter: backstop_core::CloudEvent, cause: backstop_core::burial::Cause| {
            kept.lock().unwrap().push((letter.source().to_owned(), cause.error));
            async { Ok::<(), Failure>(()) }
        });
        let queue = it.queue().name("shop").worker(worker).start().await.unwrap();
        queue.publish(event(1)).await.unwrap();
        it.until_logged(1).await;
        let letters = letters.lock().unwrap().clone();
        assert_eq!(letters.len(), 1);
        assert!(letters[0].0 == "/queue/shop" && letters[0].1 == "timeout: no answer", "{letters:?}");
        queue.close().await.unwrap();
    }
}
