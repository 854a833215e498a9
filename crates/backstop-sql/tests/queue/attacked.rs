//! What other programs, operators and unlucky moments do to a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::retry::{Jitter, Policy};
use backstop_core::{Delivery, Event, Failure};
use backstop_sql::Error;
use backstop_sql::connection::Connection as _;
use backstop_sql::queue::{OnFailure, Worker};
use backstop_sql::store::DatabaseKind;
use backstop_testkit::eventually;

use crate::harness::*;

const SECOND: Duration = Duration::from_secs(1);

/// A policy that panics.
struct Panics;

impl Policy for Panics {
    fn delay(&self, _: u32, _: Jitter) -> Duration {
        panic!("no idea")
    }
}

database_suite! {
    over empty

    async fn attempts_that_another_program_left_behind_keep_nobody_from_being_taken(it) {
        let producer = it.started().await;
        let ids = producer.publish_all((0..5).map(event).collect()).await.unwrap();
        it.set_row(ids[1], "attempts = 2147483647").await;
        it.set_row(ids[2], "attempts = -5").await;
        let queue = it.queue().worker(Seen::default().worker()).start().await.unwrap();
        it.until_logged(5).await;
        queue.close().await.unwrap();
    }

    async fn a_stale_result_is_refused_also_after_its_event_came_back_from_the_log(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        let stale = queue.poll_at(at(0)).await.unwrap().unwrap();
        let second = queue.poll_at(at(301)).await.unwrap().unwrap();
        queue.finalize(&second, false).await.unwrap();
        assert_eq!(queue.operations().requeue(&[id], false).await.unwrap().failed, 1);
        let third = queue.poll().await.unwrap().unwrap();
        assert_eq!((stale.attempts(), third.attempts()), (1, 1), "the same by their attempts");
        assert!(matches!(queue.finalize(&stale, true).await, Err(Error::TakenOver { .. })));
        queue.finalize(&third, true).await.unwrap();
    }

    async fn a_handler_that_never_ends_holds_up_the_take_over_of_others_for_no_longer_than_the_timeout(it) {
        let producer = it.started().await;
        let ids = producer.publish_all((0..5).map(event).collect()).await.unwrap();
        let long_ago = it.sql_moment(0);
        for id in &ids {
            it.set_row(*id, &format!("status = 'PROCESSING', attempts = 1, processing_started_at = {long_ago}")).await;
        }
        let worker = Worker::new().drain_timeout(Duration::from_millis(100)).on("Numbered", |event: Event| async move {
            if event.payload::<u32>().unwrap() == 0 {
                std::future::pending::<()>().await;
            }
        });
        let queue = it.queue().abandoned_timeout(SECOND).worker(worker).start().await.unwrap();
        it.until_logged(4).await;
        queue.close().await.unwrap();
        assert_eq!(it.queued(ids[0]).await.unwrap().status, "PENDING");
    }

    async fn a_type_too_long_for_its_column_is_held_and_handled_like_any_other(it) {
        let producer = it.started().await;
        it.run(&format!(r#"insert into events (event) values ('{{"type": "{}"}}')"#, "x".repeat(5_000))).await;
        let back = Arc::new(AtomicBool::new(false));
        let is_back = back.clone();
        let worker = Worker::new().otherwise(move |_: Event| {
            let back = is_back.load(Ordering::SeqCst);
            async move { if back { Ok(()) } else { Err(Failure::unavailable("connection refused")) } }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        eventually("the event set back", async || queue.metrics().held.total() > 0).await;
        back.store(true, Ordering::SeqCst);
        it.until_logged(1).await;
        queue.close().await.unwrap();
        producer.close().await.unwrap();
    }

    async fn a_retry_policy_that_panics_ends_no_worker(it) {
        let worker = Worker::new()
            .concurrency(1)
            .on_failure(OnFailure::Retry)
            .retry_policy(Panics)
            .on("Numbered", |_: Event| async { Err::<(), _>(Failure::transient("timeout", "no answer")) })
            .on("Good", |_: Event| async {});
        let queue = it.queue().max_attempts(3).worker(worker).start().await.unwrap();
        queue.publish(event(1)).await.unwrap();
        queue.publish(Event::of("Good").json(&1).unwrap()).await.unwrap();
        it.until_logged(1).await;
        queue.close().await.unwrap();
    }

    async fn hostile_rows_fail_or_are_handled_and_keep_nobody_from_being_taken(it) {
        let producer = it.started().await;
        let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
        for json in [
            r#"{"type":"a","type":"b"}"#,
            r#""x""#,
            "null",
            r#"{"type":null}"#,
            r#"{"specversion":"1.0","id":"","source":"/s","type":"","data":1}"#,
            r#"{"type":"\u0000"}"#,
            r#"{"a":"\ud800"}"#,
            "1e999999",
            r#"{"specversion":"1.0","id":"1","source":"/s","type":"T","time":"9999-12-31T23:59:59Z","data":1}"#,
            deep.as_str(),
        ] {
            let json = if it.kind == DatabaseKind::Mysql { json.replace('\\', "\\\\") } else { json.to_owned() };
            // PostgreSQL refuses the deepest itself.
            let _ = it.try_run(&format!("insert into events (event) values ('{json}')")).await;
        }
        if it.kind == DatabaseKind::Sqlite {
            it.run("insert into events (event) values (cast(x'ff00' as text))").await;
            it.run("insert into events (event) values (x'ff00')").await;
            it.run("insert into events (event, event_type) values ('{}', x'ff00')").await;
            it.run("insert into events (event, created_at) values ('{}', 17)").await;
            it.run("insert into events (event, attempts) values ('{}', 'abc')").await;
        }
        it.run("insert into events (id, event) values (-7, '{}')").await;
        producer.publish(Event::of("Numbered").json(&"x".repeat(1_000_000)).unwrap()).await.unwrap();
        let all = it.rows().await.0;
        let queue = it.queue().worker(Worker::new().otherwise(|_: Delivery| async {})).start().await.unwrap();
        it.until_logged(all).await;
        assert_eq!(it.rows().await, (0, all));
        queue.close().await.unwrap();
    }

    async fn tables_of_other_types_are_adopted_or_refused(it) {
        let (events, log) = match it.kind {
            DatabaseKind::Mysql => (
                "create table events (id bigint unsigned auto_increment primary key, event json, \
                 status enum('PENDING','PROCESSING','COMPLETED','FAILED') default 'PENDING', attempts int unsigned default 0, \
                 created_at datetime default (utc_timestamp()), updated_at datetime default (utc_timestamp()))",
                "create table event_log (id bigint unsigned primary key, payload text, \
                 status enum('PENDING','PROCESSING','COMPLETED','FAILED'), attempts int unsigned, created_at datetime, \
                 updated_at datetime)",
            ),
            DatabaseKind::Postgres => (
                "create table events (id serial primary key, event jsonb, status text default 'PENDING', attempts smallint, \
                 created_at timestamptz default now(), updated_at timestamptz default now())",
                "create table event_log (id integer primary key, payload text, status text, attempts smallint, \
                 created_at timestamptz, updated_at timestamptz)",
            ),
            DatabaseKind::Sqlite => (
                "create table events (id integer primary key, event text, status text default 'PENDING', attempts int, \
                 created_at text, updated_at text)",
                "create table event_log (id integer primary key, payload text, status text, attempts int, created_at text, \
                 updated_at text)",
            ),
        };
        it.run(events).await;
        it.run(log).await;
        let seen = Seen::default();
        let started = it.queue().worker(seen.worker()).start().await;
        if it.kind == DatabaseKind::Sqlite {
            // The id of an event that has ended would come back.
            assert!(matches!(started, Err(Error::ReusedIds { .. })));
            return;
        }
        let queue = started.unwrap();
        it.run(r#"insert into events (event) values ('{"type": "Numbered"}')"#).await;
        queue.publish_all((0..5).map(event).collect()).await.unwrap();
        it.until_logged(6).await;
        assert_eq!(seen.all().len(), 6, "each once");
        queue.close().await.unwrap();
    }

    /// What waits in memory then is more than there is room for among the results.
    async fn closing_ends_in_time_while_nothing_can_be_recorded(it) {
        let open = Arc::new(tokio::sync::Semaphore::new(0));
        let gate = open.clone();
        let worker = Worker::new().concurrency(1_200).batch_size(2_000).drain_timeout(Duration::ZERO);
        let worker = worker.on("Numbered", move |_: Event| {
            let gate = gate.clone();
            async move { gate.acquire().await.unwrap().forget() }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        queue.publish_all((0..6_000).map(event).collect()).await.unwrap();
        eventually("many events in hand", async || queue.in_hand() >= 2_400).await;
        let begin = if it.kind == DatabaseKind::Sqlite { "begin immediate" } else { "begin" };
        let mut locking = it.connections.transaction(begin).await.unwrap();
        match it.kind {
            DatabaseKind::Postgres => _ = locking.execute(&it.statement("lock table event_log in exclusive mode")).await.unwrap(),
            DatabaseKind::Mysql => _ = locking.execute(&it.statement("lock tables event_log write")).await.unwrap(),
            DatabaseKind::Sqlite => {}
        }
        // The first is being written, and those behind it fill the room that there is.
        for results in [1, 1_000] {
            open.add_permits(results);
            eventually("as many results", async || open.available_permits() == 0).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let closed = tokio::time::timeout(Duration::from_secs(20), queue.close()).await;
        assert!(matches!(closed, Ok(Err(Error::Drain(_)))), "{closed:?}");
        drop(locking);
    }
}
