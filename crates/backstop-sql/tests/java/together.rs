//! Both at once: the framework and two nodes of Backstop write to one table and deliver from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::{Outbox, Supported};
use backstop_testkit::eventually_within;
use chrono::TimeDelta;

use crate::audit;
use crate::framework::*;
use crate::place::*;

/// How young rows are left to whoever has just written them, on both sides: far longer than the framework's own
/// delivery of them takes here.
const RECENT: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// Every call of a handler, of whichever side: who is at which event now, and who was before.
#[derive(Default)]
struct Floor {
    at_work: Mutex<HashMap<String, &'static str>>,
    calls: Mutex<BTreeMap<String, Vec<&'static str>>>,
    overlaps: Mutex<Vec<String>>,
}

enum Answer {
    Done,
    Later,
    Failed,
}

impl Floor {
    async fn handle(&self, id: &str, event_type: &str, who: &'static str) -> Answer {
        if let Some(other) = lock(&self.at_work).insert(id.to_owned(), who) {
            lock(&self.overlaps).push(format!("{id}: {other} and {who}"));
        }
        let before = {
            let mut calls = lock(&self.calls);
            let callers = calls.entry(id.to_owned()).or_default();
            callers.push(who);
            callers.len() - 1
        };
        tokio::time::sleep(Duration::from_millis(2)).await;
        lock(&self.at_work).remove(id);
        match event_type {
            "OrderHeld" if before == 0 => Answer::Later,
            "OrderLost" => Answer::Failed,
            _ => Answer::Done,
        }
    }

    /// Who was called for an event, in order.
    fn calls(&self, id: &str) -> Vec<&'static str> {
        lock(&self.calls).get(id).cloned().unwrap_or_default()
    }

    fn calls_of(&self, who: &str) -> usize {
        lock(&self.calls).values().flatten().filter(|caller| **caller == who).count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a node of Backstop does with an event.
fn handler(floor: &Arc<Floor>, who: &'static str) -> impl Handler + Clone + use<> {
    let floor = floor.clone();
    move |event: Event| {
        let floor = floor.clone();
        async move {
            match floor.handle(event.id(), event.event_type(), who).await {
                Answer::Done => Ok(Outcome::Done),
                Answer::Later => Ok(Outcome::RetryAfter(SOON)),
                Answer::Failed => Err(Failure::transient("test", "failed on purpose")),
            }
        }
    }
}

/// What the framework's dispatcher does with one, after so many failed tries.
async fn dispatch(java: &Framework, floor: &Floor, row: &Taken, who: &'static str) {
    let changed = match floor.handle(&row.id, &row.event_type, who).await {
        Answer::Done => java.mark_done(&row.id).await,
        Answer::Later => java.mark_deferred(&row.id, now() + SOON).await,
        Answer::Failed if row.attempts + 1 >= 3 => java.mark_dead(&row.id, "failed on purpose").await,
        Answer::Failed => java.mark_retry(&row.id, now() + SOON, "failed on purpose").await,
    };
    assert_eq!(changed, 1, "{row:?} was somebody else's");
}

/// The framework's poller and its worker, until they are told to stop; what is claimed is still handled.
async fn poll_and_dispatch(java: Framework, floor: Arc<Floor>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let taken = java.claim_pending(20).await;
        if taken.is_empty() {
            tokio::time::sleep(SOON).await;
        }
        for row in &taken {
            dispatch(&java, &floor, row, "java").await;
        }
    }
}

/// One of ten is lost, one is held, one is scheduled ahead.
fn kind_of(n: usize) -> &'static str {
    match n % 10 {
        3 => "OrderLost",
        6 => "OrderHeld",
        _ => "OrderPlaced",
    }
}

fn is_scheduled(n: usize) -> bool {
    n % 10 == 9
}

/// The framework's writer: ten rows to a transaction. Most of them are delivered from memory right after the commit,
/// unclaimed as its hot rows are; for some there was no room.
async fn write_as_java(java: Framework, floor: Arc<Floor>, transactions: usize) {
    for tx in 0..transactions {
        let event = |n: usize| {
            let occurred_at = now();
            let available_at = is_scheduled(n).then_some(occurred_at + Duration::from_secs(1));
            let id = format!("java-{tx:04}-{n}");
            Envelope { event_type: kind_of(n), occurred_at, available_at, ..envelope(id) }
        };
        let events = java.insert_all(|| (0..10).map(event).collect()).await;
        for (n, event) in events.iter().enumerate().filter(|(n, _)| !is_scheduled(*n) && n % 4 != 0) {
            // On a machine that stood still it is no longer this side's alone: then the pollers see to it.
            if now() > event.occurred_at + RECENT / 2 {
                continue;
            }
            let (id, event_type) = (event.id.clone(), kind_of(n).to_owned());
            let (created_at, available_at) = (event.occurred_at, event.occurred_at);
            let row = Taken { id, event_type, attempts: 0, created_at, available_at };
            dispatch(&java, &floor, &row, "java-hot").await;
        }
    }
}

/// A program that writes with Backstop. A transaction that lost against another session is tried again, as by anybody.
async fn write_as_backstop<DB: Supported>(node: Outbox<DB>, name: &'static str, transactions: usize) {
    for tx in 0..transactions {
        let event = |n: usize| {
            let event = Event::of(kind_of(n)).id(format!("{name}-{tx:04}-{n}")).aggregate("Order", "42");
            let event = if is_scheduled(n) { event.deliver_after(Duration::from_secs(1)) } else { event };
            event.json(&n).unwrap()
        };
        let events: Vec<_> = (0..10).map(event).collect();
        while let Err(error) = append(&node, &events).await {
            assert!(error.to_string().to_lowercase().contains("deadlock"), "{error}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn append<DB: Supported>(node: &Outbox<DB>, events: &[Event]) -> Result<(), backstop_sql::Error> {
    let mut tx = node.begin().await?;
    tx.append_all(events.to_vec()).await?;
    tx.commit().await
}

/// What was in the table before Backstop came: due rows, tries that failed, and locks of the living and the dead.
async fn fill(java: &Framework) {
    let old = |n: usize| Envelope { event_type: kind_of(n), ..envelope(format!("old-{n:04}")) };
    java.insert_all(|| (0..300).map(old).collect()).await;
    for n in (0..300).filter(|n| kind_of(*n) == "OrderLost") {
        java.mark_retry(&format!("old-{n:04}"), now() - MINUTE, "failed on purpose").await;
    }
    let (dead, alive) = (java.named("java-dead"), java.named("java-alive"));
    for n in 0..20 {
        java.insert_new(&envelope(format!("dead-{n:02}"))).await;
        dead.lock(&format!("dead-{n:02}"), now() - 10 * MINUTE).await;
        java.insert_new(&envelope(format!("alive-{n:02}"))).await;
        alive.lock(&format!("alive-{n:02}"), now()).await;
    }
}

/// The framework, whose clocks on the wall are so many hours ahead of UTC, and two nodes.
async fn both_at_once<DB: Supported>(place: Place<DB>, hours: i64) {
    let zone = format!("+{hours:02}:00");
    let (floor, stop) = (Arc::new(Floor::default()), Arc::new(AtomicBool::new(false)));
    let java = Framework { skip_recent: RECENT, ahead: TimeDelta::hours(hours), ..place.java.clone() };
    fill(&java).await;
    audit::watch(&java).await;
    let first = java.claim_pending(20).await;
    assert_eq!(first.len(), 20);
    let mut nodes = Vec::new();
    for who in ["node-a", "node-b"] {
        let handler = handler(&floor, who);
        let node = place
            .node()
            .skip_recent(RECENT)
            .time_zone(&zone)
            .worker_count(8)
            .hot_queue_capacity(20) // some find it full and are given back, for either side to take
            .on("Order", "OrderPlaced", handler.clone())
            .on("Order", "OrderHeld", handler.clone())
            .on("Order", "OrderLost", handler)
            .start()
            .await
            .unwrap();
        nodes.push(node);
    }
    let poller = tokio::spawn(poll_and_dispatch(java.clone(), floor.clone(), stop.clone()));
    let writers = [
        tokio::spawn(write_as_java(java.named("java-2"), floor.clone(), 100)),
        tokio::spawn(write_as_backstop(nodes[0].clone(), "node-a", 60)),
        tokio::spawn(write_as_backstop(nodes[1].clone(), "node-b", 60)),
    ];
    for row in &first {
        dispatch(&java, &floor, row, "java").await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let pending = async || java.number("SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)").await;
    eventually_within(MINUTE, "only what java-alive holds is left", async || pending().await == 20).await;
    stop.store(true, Ordering::Relaxed);
    poller.await.unwrap();
    for node in &nodes {
        node.close().await.unwrap();
    }

    for n in 0..20 {
        let id = format!("alive-{n:02}");
        assert_eq!(java.state(&id).await.locked_by.as_deref(), Some("java-alive"), "{id}");
        let (created_at, available_at) = (now(), now());
        let row = Taken { id, event_type: "OrderPlaced".into(), attempts: 0, created_at, available_at };
        dispatch(&java, &floor, &row, "java-alive").await;
    }
    assert_eq!(audit::faults(&java).await, Vec::<String>::new());
    assert_eq!(audit::strange_rows(&java).await, Vec::<String>::new());
    assert_eq!(*lock(&floor.overlaps), Vec::<String>::new());

    let ended = java
        .texts("SELECT CONCAT(event_id, ' ', event_type, ' ', status, ' ', attempts) FROM outbox_event")
        .await;
    assert_eq!(ended.len(), 300 + 40 + 1_000 + 1_200);
    for row in &ended {
        let [id, event_type, status, attempts] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let calls = floor.calls(id);
        let expected = match event_type {
            // Two failed tries are counted; the one that killed it is not. One of the old ones had failed before.
            "OrderLost" => ("3", "2", if id.starts_with("old") { 2 } else { 3 }),
            "OrderHeld" => ("1", "0", 2),
            _ => ("1", "0", 1),
        };
        assert_eq!((status, attempts, calls.len()), expected, "{row}: {calls:?}");
    }
    let shares = ["java", "java-hot", "node-a", "node-b"].map(|who| floor.calls_of(who));
    assert!(shares.iter().all(|calls| *calls > 0), "{shares:?}");
}

backstop_testkit::suite! {
    over { mysql: java_on_mysql, postgres: java_on_postgres }

    /// Rules: O-357, O-358, O-359.
    async fn nothing_is_lost_and_nothing_is_taken_from_its_owner(place) {
        both_at_once(place, 0).await;
    }

    async fn nothing_is_lost_where_the_clocks_on_the_wall_are_two_hours_ahead(place) {
        both_at_once(place, 2).await;
    }

    async fn the_audit_sees_a_row_that_is_taken_from_its_owner(place) {
        let java = &place.java;
        audit::watch(java).await;
        java.insert_new(&envelope("a")).await;
        java.named("java-1").lock("a", now()).await;
        assert!(audit::faults(java).await.is_empty());
        java.named("java-2").lock("a", now()).await;
        assert_eq!(audit::faults(java).await, ["a: 0 java-1 > 0 java-2"]);
        java.mark_dead("a", "no").await;
        java.run_text("UPDATE outbox_event SET status = 2 WHERE event_id = 'a'").await;
        assert_eq!(audit::faults(java).await.len(), 2);
    }
}
