//! Queues that are full for longer than claims last, and nodes that are closed under load.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::support::EVENTS;
use crate::support::node::Settings;
use crate::support::stage::Stage;

/// "This never waits and never fails: a full queue only means that the poller brings the event instead", "a node
/// that finds its hot queue full gives the row back at once", and "a handler may take longer than the time-out":
/// the handlers of a node stand still for 20 s, four times its claims' time-out, while it appends and appends.
/// For minutes with `BACKSTOP_FAULTS_STANDSTILL_SECONDS=180`.
#[tokio::test]
async fn full_queues_hold_up_no_commit_and_no_other_node() {
    let standstill = std::env::var("BACKSTOP_FAULTS_STANDSTILL_SECONDS").ok();
    let standstill = standstill.map_or(20, |seconds| seconds.parse().expect("a whole number of seconds"));
    let Some(stage) = Stage::shared().await else { return };
    let full = Settings { hot_queue: 500, cold_queue: 500, ..stage.node("full") };
    let (mut full, other) = tokio::join!(full.shut().start(), stage.node("other").start());
    let (settings, began) = (full.settings.clone(), Instant::now());
    let memory = full.resident_memory();
    full.append(EVENTS).await;
    assert_eq!(full.appended().await, EVENTS, "every commit was accepted");
    let grown = full.resident_memory().saturating_sub(memory);

    // All but what waits in the queues of the one that stands still is delivered by the other.
    let held = settings.workers + settings.hot_queue + settings.cold_queue;
    stage.until_done(EVENTS - held).await;
    let counted = full.counted().await;
    assert!(counted.hot_refused > 0 && counted.handled == 0, "{counted:?}");
    assert!(grown < 64 << 20, "its memory grew by {grown} bytes with the backlog");
    tokio::time::sleep_until(began + Duration::from_secs(standstill)).await;
    assert!(stage.count("status = 0").await > 0, "what it holds was taken from it");

    full.say("open").await;
    stage.until_drained().await;
    full.close().await.unwrap();
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(0);
    assert!(ledger.handled_by("full") >= settings.hot_queue, "it kept what was in its queue");
}

/// "`Outbox::close` gives the handlers their drain time … claims on what was not handled are given back … what was
/// not finished stays in the table for the next start or for another node": one node after another is closed
/// while all append and deliver, and a new one takes its place. Nothing is lost and nothing comes twice.
#[tokio::test]
async fn nodes_that_are_closed_under_load_hand_over_everything() {
    let Some(stage) = Stage::shared().await else { return };
    stage.backlog(EVENTS / 2).await;
    let mut nodes = Vec::new();
    for name in ["a1", "b1"] {
        nodes.push(stage.node(name).start().await);
    }
    for name in ["a2", "b2", "a3", "b3"] {
        for node in &mut nodes {
            node.append(EVENTS / 10).await;
        }
        let done = stage.count("status = 1").await;
        stage.until_done(done + EVENTS / 20).await;
        let mut closing = nodes.remove(0);
        let newer = stage.node(name).start();
        let closing = async move {
            let appending = closing.append(EVENTS / 10);
            appending.await;
            // Drained within its time-out of 5 s, plus what is left to write and to give back.
            timeout(Duration::from_secs(15), closing.close()).await.expect("a node that closes in time")
        };
        let (closed, newer) = tokio::join!(closing, newer);
        closed.unwrap();
        nodes.push(newer);
    }

    let missing = EVENTS.saturating_sub(stage.count("true").await);
    nodes[0].append(missing).await;
    stage.until_drained_for_good(EVENTS).await;
    for node in nodes {
        node.close().await.unwrap();
    }
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(0);
}
