//! A network between node and database that cuts, swallows and loses answers, and a pool that has no connection.

use std::collections::HashSet;

use backstop_testkit::eventually_within;
use backstop_testkit::proxy::Proxy;
use sqlx::{query, query_scalar, raw_sql};

use crate::support::node::now;
use crate::support::stage::Stage;
use crate::support::{EVENTS, PATIENCE, SLACK};

/// "A crash, a lost connection or a failed write repeats an event and never drops it": every connection of both
/// nodes is reset, again and again. Nothing is repeated while their claims last.
#[tokio::test]
async fn connections_that_are_cut_again_and_again_lose_nothing() {
    const TIMES: usize = 8;
    let Some(stage) = Stage::shared().await else { return };
    let proxy = Proxy::in_front_of(stage.url()).await;
    let node = |name| stage.node_at(name, &proxy.through(stage.url())).patient().start();
    let (mut one, mut two) = tokio::join!(node("one"), node("two"));
    for node in [&mut one, &mut two] {
        node.append(EVENTS * 6 / 10).await;
    }
    let mut cut_at = 0;
    for time in 1..=TIMES {
        stage.until_done(EVENTS * time / 10).await;
        proxy.cut();
        cut_at = now();
    }

    let accepted = one.appended().await + two.appended().await;
    assert!(accepted >= EVENTS, "only {accepted} were accepted");
    stage.until_drained().await;
    one.close().await.unwrap();
    two.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(0);
    ledger.assert_resumed(cut_at, SLACK);
}

/// "The time-out says how long a living node may be without the database before it loses its claims", and "what
/// the first node then says changes nothing": a node is cut off without a word until the others have taken over,
/// and what it had sent arrives after that.
#[tokio::test]
async fn a_node_whose_network_swallows_everything_loses_its_claims_and_settles_nothing_late() {
    let Some(stage) = Stage::shared().await else { return };
    stage.backlog(EVENTS).await;
    let proxy = Proxy::in_front_of(stage.url()).await;
    let far = stage.node_at("far", &proxy.through(stage.url())).start();
    let (mut far, near) = tokio::join!(far, stage.node("near").start());
    stage.until_done(EVENTS / 5).await;
    far.say("shut").await;
    stage.until_claimed("far", far.settings.polled_at_least()).await;

    proxy.black_hole();
    far.say("open").await;
    let settings = far.settings.clone();
    settings.until_handlers_stand_still().await;
    let (silent_at, left) = (now(), stage.claimed_by("far").await);
    stage.until_drained().await;
    assert!(stage.claimed_by("far").await.is_empty(), "what it had claimed is done without it");

    proxy.restore();
    // It goes on by itself: with what it appends now, and with what it had to say.
    far.append(1_000).await;
    assert_eq!(far.appended().await, 1_000);
    stage.until_drained().await;
    let late = far.counted().await.late;
    assert!(late > 0, "nothing that it had handled came too late");
    far.close().await.unwrap();
    near.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS + 1_000);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(settings.handled_in_flight());
    ledger.assert_taken_over(&left, silent_at, settings.claim_timeout + settings.interval + SLACK);
}

/// "If the database's answer is lost nobody knows whether the commit happened. It then counts as failed here; if
/// it did happen, the poller delivers the events." They are born claimed, so it does after `hot_grace`.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_delivered_although_nobody_was_told() {
    const ROUNDS: usize = 4;
    let Some(stage) = Stage::shared().await else { return };
    // Each commit passes a lock that the test can hold, so that it can be caught in the middle.
    let slow_commit = "create function pass() returns trigger language plpgsql as $$ begin
           perform pg_advisory_xact_lock_shared(42); return null; end $$;
         create constraint trigger pass after insert on outbox_event deferrable initially deferred
           for each row when (new.aggregate_id = '0' and new.locked_by = 'unlucky') execute function pass()";
    raw_sql(slow_commit).execute(&stage.pool).await.unwrap();
    let proxy = Proxy::in_front_of(stage.url()).await;
    let node = stage.node_at("unlucky", &proxy.through(stage.url())).start();
    let (mut unlucky, mut other) = tokio::join!(node, stage.node("other").start());
    other.append(EVENTS - ROUNDS * 500).await;

    let settings = unlucky.settings.clone();
    let mut unanswered: Vec<(Vec<String>, i64)> = Vec::new();
    for _ in 0..ROUNDS {
        let mut gate = stage.pool.acquire().await.unwrap();
        query("select pg_advisory_lock(42)").execute(&mut *gate).await.unwrap();
        unlucky.append(500).await;
        eventually_within(PATIENCE, "a commit that is under way", async || {
            let committing = "select count(*) from pg_stat_activity where application_name = 'unlucky' \
                              and wait_event = 'advisory' and query ilike 'commit%'";
            query_scalar::<_, i64>(committing).fetch_one(&stage.pool).await.unwrap() > 0
        })
        .await;
        proxy.hold_answers();
        query("select pg_advisory_unlock(42)").execute(&mut *gate).await.unwrap();
        let known: HashSet<String> = unanswered.iter().flat_map(|(ids, _)| ids.clone()).collect();
        let mut committed = Vec::new();
        eventually_within(PATIENCE, "a commit that nobody was told of", async || {
            committed = stage.claimed_by("unlucky").await;
            committed.retain(|id| !known.contains(id));
            !committed.is_empty()
        })
        .await;
        assert_eq!(committed.len(), 500);
        unanswered.push((committed, now()));
        proxy.cut();
        assert_eq!(unlucky.appended().await, 0, "its caller was told of a failure");
        proxy.restore();
    }

    assert_eq!(other.appended().await, EVENTS - ROUNDS * 500);
    stage.until_drained().await;
    unlucky.close().await.unwrap();
    other.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    assert_eq!(ledger.unsure(), (ROUNDS * 500, 0), "all were committed, and none was acknowledged");
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(settings.handled_in_flight());
    for (ids, committed_at) in unanswered {
        ledger.assert_taken_over(&ids, committed_at, settings.hot_grace + settings.interval + SLACK);
    }
}

/// A node whose application keeps every connection of the pool cannot look for more. It keeps its claims for as long as
/// that takes, delivers what it holds and writes that down, on connections beside the pool. So nothing is repeated, and
/// nothing waits for the application.
#[tokio::test]
async fn a_node_without_a_free_connection_settles_what_it_holds_and_looks_again_when_there_is_one() {
    let Some(stage) = Stage::shared().await else { return };
    stage.backlog(EVENTS / 2).await;
    let starved = stage.node("starved").flag("--pool", 3).flag("--acquire-timeout-ms", 1_000);
    let (mut starved, other) = tokio::join!(starved.start(), stage.node("other").start());
    let settings = starved.settings.clone();
    stage.until_drained().await;
    starved.say("shut").await;
    starved.append(EVENTS / 4).await;
    assert_eq!(starved.appended().await, EVENTS / 4);
    stage.until_claimed("starved", settings.hot_queue).await;

    starved.say("hog 3").await;
    starved.hear("hogged").await;
    let (starved_at, held) = (now(), stage.claimed_by("starved").await);
    tokio::time::sleep(settings.claim_timeout + settings.interval).await;
    assert_eq!(stage.claimed_by("starved").await, held, "its claims are renewed");
    starved.append(500).await;
    assert_eq!(starved.appended().await, 0, "a caller found a connection");
    starved.say("open").await;
    eventually_within(PATIENCE, "a starved node that settles what it holds", async || {
        stage.claimed_by("starved").await.is_empty()
    })
    .await;
    starved.say("free").await;

    // The other one is gone, and its own hot queue does not hold them all: it looks for the rest.
    other.close().await.unwrap();
    starved.append(EVENTS / 4).await;
    assert_eq!(starved.appended().await, EVENTS / 4);
    stage.until_drained().await;
    starved.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    assert_eq!(ledger.unsure().0, 0, "a transaction that never began was committed");
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(0);
    assert_eq!(ledger.handled_after("starved", starved_at, &held), held.len(), "it handled what it held");
}
