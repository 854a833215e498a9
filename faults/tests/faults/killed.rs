//! Nodes that are killed with SIGKILL, each at another moment.

use std::time::Duration;

use backstop_testkit::eventually_within;
use backstop_testkit::proxy::Proxy;
use sqlx::query_scalar;

use crate::support::node::Settings;
use crate::support::stage::Stage;
use crate::support::{EVENTS, PATIENCE, SLACK};

/// "If the node dies between the commit and the delivery, the others take the row after `hot_grace` and one look
/// at the table": also where the claim's time-out is far longer.
#[tokio::test]
async fn a_node_killed_between_commit_and_dispatch_leaves_nothing_behind() {
    const QUEUED: usize = 2_000;
    let Some(stage) = Stage::shared().await else { return };
    let grace = Duration::from_secs(9);
    let node = |name| {
        let claim_timeout = Duration::from_secs(600);
        Settings { claim_timeout, hot_grace: grace, hot_queue: QUEUED, ..stage.node(name) }
    };
    let mut other = node("other").start().await;
    other.append(EVENTS - QUEUED).await;
    assert_eq!(other.appended().await, EVENTS - QUEUED);
    stage.until_drained().await;

    // Its handlers do not begin, so what it commits stays in its queue. Killed before a claim was renewed for
    // the first time, which is three seconds after its start.
    let mut dying = node("dying").shut().start().await;
    dying.append(QUEUED).await;
    assert_eq!(dying.appended().await, QUEUED);
    let killed_at = dying.kill().await;
    let left = stage.claimed_by("dying").await;
    assert_eq!(left.len(), QUEUED, "committed, claimed from birth, and handled by nobody");

    stage.until_drained().await;
    let interval = other.settings.interval;
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(0);
    ledger.assert_taken_over(&left, killed_at, grace + interval + SLACK);
}

/// "A claim that is older than the time-out counts for nothing, and any node may take the row. That is how the
/// events of a node that died are delivered."
#[tokio::test]
async fn what_a_killed_node_had_polled_is_taken_over_after_the_claims_time_out() {
    let Some(stage) = Stage::shared().await else { return };
    stage.backlog(EVENTS).await;
    let (dying, other) = tokio::join!(stage.node("dying").start(), stage.node("other").start());
    stage.until_done(EVENTS / 5).await;

    let settings = dying.settings.clone();
    let killed_at = dying.kill().await;
    let left = stage.claimed_by("dying").await;
    assert!(!left.is_empty(), "it died with nothing in hand");
    stage.until_drained().await;
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(settings.handled_in_flight());
    ledger.assert_taken_over(&left, killed_at, settings.claim_timeout + settings.interval + SLACK);
}

/// "What is not known to be settled is delivered again": events that were handled, whose settlement never reached
/// the database, come a second time, and no others do.
#[tokio::test]
async fn a_node_killed_between_handler_and_settlement_repeats_what_was_in_flight_and_no_more() {
    let Some(stage) = Stage::shared().await else { return };
    stage.backlog(EVENTS).await;
    let proxy = Proxy::in_front_of(stage.url()).await;
    let dying = stage.node_at("dying", &proxy.through(stage.url())).start();
    let (mut dying, other) = tokio::join!(dying, stage.node("other").start());
    stage.until_done(EVENTS / 5).await;
    dying.say("shut").await;
    stage.until_claimed("dying", dying.settings.polled_at_least()).await;

    // Its handlers go on, and nothing that they say arrives.
    proxy.black_hole();
    dying.say("open").await;
    let settings = dying.settings.clone();
    settings.until_handlers_stand_still().await;
    let killed_at = dying.kill().await;
    proxy.cut();
    let left = stage.claimed_by("dying").await;

    stage.until_drained().await;
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    assert!(ledger.duplicates() > settings.workers, "nothing was between its handler and its settlement");
    ledger.assert_duplicates_within(settings.handled_in_flight());
    ledger.assert_taken_over(&left, killed_at, settings.claim_timeout + settings.interval + SLACK);
}

/// "A settlement counts only under the claim it was made for": the statement of a dead node still runs in the
/// database, stuck in the middle of its batch, while another node takes over the rest of the batch. Set free, it
/// settles what nobody else has, and leaves alone what is another node's by then.
#[tokio::test]
async fn a_node_killed_in_the_middle_of_a_settlement_batch_settles_nothing_that_is_another_nodes() {
    let Some(stage) = Stage::shared().await else { return };
    stage.backlog(EVENTS).await;
    let (mut dying, other) = tokio::join!(stage.node("dying").start(), stage.node("other").start());
    stage.until_done(EVENTS / 5).await;
    dying.say("shut").await;
    stage.until_claimed("dying", dying.settings.polled_at_least()).await;

    // A row in the middle of what it is about to handle is locked by somebody else's transaction.
    let mut lock = stage.pool.begin().await.unwrap();
    let row = "select event_id from outbox_event where locked_by = 'dying' and status = 0 \
               order by event_id offset 400 limit 1 for update";
    let held: String = query_scalar(row).fetch_one(&mut *lock).await.unwrap();
    dying.say("open").await;
    let stuck = "select count(*) from pg_stat_activity where application_name = 'dying' \
                 and wait_event_type = 'Lock' and query like 'update%status = 1%'";
    eventually_within(PATIENCE, "a settlement that is stuck in its batch", async || {
        query_scalar::<_, i64>(stuck).fetch_one(&stage.pool).await.unwrap() > 0
    })
    .await;
    let settings = dying.settings.clone();
    dying.kill().await;

    // What the stuck statement has not reached yet is taken over when its claim is too old.
    let free = "select count(*) from (select 1 from outbox_event where status = 0 and locked_by = 'dying' \
                for update skip locked) as free";
    eventually_within(PATIENCE, "another node that takes over the rest of the batch", async || {
        query_scalar::<_, i64>(free).fetch_one(&stage.pool).await.unwrap() == 0
    })
    .await;
    assert!(stage.claimed_by("dying").await.contains(&held), "the stuck statement still has its part");
    lock.rollback().await.unwrap();

    stage.until_drained().await;
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(settings.handled_in_flight());
}
