//! Held routes: while what a handler needs is unavailable its events wait, at no cost, and others flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use backstop_core::inspect::Health;
use backstop_core::{Event, Failure};
use backstop_sql::queue::Worker;
use backstop_testkit::eventually;

use crate::harness::*;

/// A handler whose target is away until it is told to be back.
#[derive(Clone, Default)]
struct Away {
    back: Arc<AtomicBool>,
    calls: Arc<AtomicU32>,
}

impl Away {
    fn on(&self, worker: Worker, event_type: &'static str) -> Worker {
        let this = self.clone();
        worker.on(event_type, move |_: Event| {
            this.calls.fetch_add(1, Ordering::SeqCst);
            let back = this.back.load(Ordering::SeqCst);
            async move { if back { Ok(()) } else { Err(Failure::unavailable("connection refused")) } }
        })
    }
}

fn of(event_type: &str, number: u32) -> Event {
    Event::of(event_type).json(&number).unwrap()
}

database_suite! {
    over empty

    async fn an_outage_counts_no_attempt_and_ends_by_itself(it) {
        let away = Away::default();
        let queue = it.queue().max_attempts(1).worker(away.on(Worker::new(), "Away")).start().await.unwrap();
        let ids = queue.publish_all((0..1_000).map(|number| of("Away", number)).collect()).await.unwrap();
        eventually("probes", async || away.calls.load(Ordering::SeqCst) > 2).await;
        eventually("all events waiting", async || it.number("select count(*) from events where status = 'PENDING'").await >= 998).await;
        let health = queue.report().await.health;
        assert!(matches!(&health, Health::Degraded(why) if why.contains("Away since") && why.contains("connection refused")), "{health:?}");
        let calls = away.calls.load(Ordering::SeqCst);
        assert!(calls < 60, "only what was under way, and probes: {calls}");
        away.back.store(true, Ordering::SeqCst);
        it.until_logged(1_000).await;
        assert_eq!(it.number("select count(*) from event_log where status = 'COMPLETED' and attempts = 1").await, 1_000);
        assert_eq!(it.logged(ids[999]).await.unwrap().error, None);
        assert_eq!(queue.report().await.health, Health::Up);
        queue.close().await.unwrap();
    }

    async fn other_routes_flow_meanwhile_and_so_does_what_others_insert(it) {
        let (away, seen) = (Away::default(), Seen::default());
        let queue = it.queue().worker(away.on(seen.worker(), "Away")).start().await.unwrap();
        queue.publish_all((0..300).map(|number| of("Away", number)).collect()).await.unwrap();
        eventually("a held route", async || away.calls.load(Ordering::SeqCst) > 1).await;
        for number in 0..20 {
            queue.publish(event(number)).await.unwrap();
        }
        for _ in 0..10 {
            it.run(r#"insert into events (event) values ('{"type":"Numbered"}')"#).await;
            it.run(r#"insert into events (event) values ('{"type":"Away"}')"#).await;
        }
        it.until_logged(30).await;
        assert_eq!(seen.all().len(), 30);
        // Those of the held route have been read once, and name their type from then on.
        eventually("types that were learnt", async || it.number("select count(*) from events where event_type is null").await == 0).await;
        away.back.store(true, Ordering::SeqCst);
        it.until_logged(340).await;
        assert_eq!(it.rows().await, (0, 340));
        queue.close().await.unwrap();
    }

    async fn a_held_backlog_is_not_written_to(it) {
        let away = Away::default();
        let queue = it.queue().worker(away.on(Worker::new(), "Away")).start().await.unwrap();
        queue.publish_all((0..200).map(|number| of("Away", number)).collect()).await.unwrap();
        eventually("a held route", async || away.calls.load(Ordering::SeqCst) > 3).await;
        eventually("all events waiting", async || it.number("select count(*) from events where status = 'PENDING'").await >= 199).await;
        let claims = "select coalesce(sum(claim_seq), 0) from events";
        let claims = if it.kind.name() == "PostgreSQL" { claims.replace("sum(claim_seq)", "sum(claim_seq)::bigint") } else { claims.replace("sum(claim_seq)", "cast(sum(claim_seq) as signed)") };
        let claims = if it.kind.name() == "SQLite" { "select coalesce(sum(claim_seq), 0) from events".to_owned() } else { claims };
        let (before, calls) = (it.number(&claims).await, away.calls.load(Ordering::SeqCst));
        eventually("two more probes", async || away.calls.load(Ordering::SeqCst) >= calls + 2).await;
        let (written, probes) = (it.number(&claims).await - before, i64::from(away.calls.load(Ordering::SeqCst) - calls));
        assert!(written <= probes + 1, "{written} rows taken for {probes} probes");
        queue.close().await.unwrap();
    }

    async fn one_bad_event_does_not_keep_its_route_closed(it) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let worker = Worker::new().on("Picky", move |event: Event| {
            counted.fetch_add(1, Ordering::SeqCst);
            let bad = event.payload::<u32>().unwrap() == 0;
            async move { if bad { Err(Failure::unavailable("not for me")) } else { Ok(()) } }
        });
        let queue = it.queue().worker(worker).start().await.unwrap();
        let ids = queue.publish_all((0..50).map(|number| of("Picky", number)).collect()).await.unwrap();
        it.until_logged(50).await;
        assert_eq!(it.logged(ids[0]).await.unwrap().status, "FAILED", "it was its own trouble");
        assert_eq!(it.number("select count(*) from event_log where status = 'COMPLETED'").await, 49);
        queue.close().await.unwrap();
    }

    async fn the_report_names_the_held_route_and_how_many_wait(it) {
        let away = Away::default();
        let queue = it.queue().worker(away.on(Worker::new(), "Away")).start().await.unwrap();
        queue.publish_all((0..30).map(|number| of("Away", number)).collect()).await.unwrap();
        eventually("a held route", async || away.calls.load(Ordering::SeqCst) > 2).await;
        eventually("a report", async || {
            let routes = queue.report().await.routes;
            let route = routes.iter().find(|route| route.name == "Away").unwrap();
            route.paused.as_ref().is_some_and(|paused| paused.state == "held") && route.waiting.events >= 29
        }).await;
        tokio::time::timeout(Duration::from_secs(10), queue.close()).await.unwrap().unwrap();
    }
}
