//! A node that stands still for longer than its claims last, and wakes.

use backstop_testkit::eventually_within;

use crate::support::node::{Settings, now};
use crate::support::stage::Stage;
use crate::support::{EVENTS, PATIENCE, SLACK};

/// "A node that lost a row cannot overwrite what the next owner does", "an event whose claim ran out while it
/// waited is not handled any more by that node", and what came too late is counted: a node is stopped with
/// SIGSTOP in the middle of its handlers, another takes its rows over, and it is woken while the other has them
/// in hand.
///
/// What is taken over stands behind all the rest in the other's queue, so the bound on it counts how fast that node works off
/// the backlog.
#[tokio::test]
async fn a_node_that_sleeps_past_its_claims_settles_nothing_when_it_wakes() {
    let Some(stage) = Stage::alone().await else { return };
    stage.backlog(EVENTS).await;
    // Its handlers take a while, so that it has some in hand and a full queue when it is stopped. The other has
    // room for all that is left by then.
    let sleeper = stage.node("sleeper").flag("--handler-ms", 5).start();
    let other = Settings { cold_queue: 2 * EVENTS, ..stage.node("other") }.start();
    let (mut sleeper, mut other) = tokio::join!(sleeper, other);
    // Early, while there is something left to claim for it.
    stage.until_done(EVENTS / 20).await;

    sleeper.stop().await;
    let (stopped_at, left) = (now(), stage.claimed_by("sleeper").await);
    assert!(left.len() > sleeper.settings.workers, "it had nothing in hand");
    other.say("shut").await;
    eventually_within(PATIENCE, "another node that takes over", async || {
        stage.claimed_by("sleeper").await.is_empty()
    })
    .await;
    let (taken_over, woken_at) = (stage.claimed_by("other").await, now());
    assert!(left.iter().filter(|id| taken_over.contains(id)).count() > sleeper.settings.workers);
    sleeper.wake().await;
    eventually_within(PATIENCE, "settlements that come too late", async || sleeper.counted().await.late > 0)
        .await;

    // It goes on by itself, with what it appends now.
    sleeper.append(1_000).await;
    assert_eq!(sleeper.appended().await, 1_000);
    other.say("open").await;
    stage.until_drained().await;
    let settings = sleeper.settings.clone();
    sleeper.close().await.unwrap();
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS + 1_000);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(settings.handled_in_flight());
    ledger.assert_taken_over(&left, stopped_at, settings.claim_timeout + settings.interval + SLACK);
    let again = ledger.handled_after("sleeper", woken_at, &left);
    assert!(again <= settings.workers, "it handled {again} events whose claims it had lost");
}
