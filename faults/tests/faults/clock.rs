//! Wall clocks that are wrong and that jump: those of nodes, and the database's, which decides how old a claim is.

use std::time::Duration;

use backstop_testkit::servers::private_postgres;
use tokio::time::Instant;

use crate::support::clock::Clocks;
use crate::support::node::Settings;
use crate::support::stage::Stage;
use crate::support::{EVENTS, SLACK};

const HOUR: i64 = 3_600;

/// "What is due and how old a claim is, the database's clock says, for every node alike": one node is an hour
/// behind and one an hour ahead, and in the middle of the load they change places. Nobody takes a row of
/// another, and what a node left behind that died is taken over in the usual time.
#[tokio::test]
async fn nodes_whose_clocks_are_wrong_and_jump_deliver_everything_once() {
    const QUEUED: usize = 500;
    let Some(stage) = Stage::shared().await else { return };
    let Some(clocks) = Clocks::make() else { return };
    let (fast, slow) = (clocks.off_by("fast", HOUR), clocks.off_by("slow", -HOUR));
    let (one, two) = (fast.of(stage.node("one")).start(), slow.of(stage.node("two")).start());
    let (mut one, mut two) = tokio::join!(one, two);
    let half = (EVENTS - QUEUED) / 2;
    for node in [&mut one, &mut two] {
        node.append(half).await;
    }
    stage.until_done(EVENTS / 4).await;
    fast.set(-HOUR);
    slow.set(HOUR);
    for node in [&mut one, &mut two] {
        assert_eq!(node.appended().await, half);
    }
    stage.until_drained().await;

    let clock = clocks.off_by("dying", HOUR);
    let mut dying = clock.of(stage.node("dying").shut()).start().await;
    dying.append(QUEUED).await;
    assert_eq!(dying.appended().await, QUEUED);
    let settings = dying.settings.clone();
    dying.kill().await;
    // Not by the recordings, whose moments are those of clocks that are wrong.
    let killed = Instant::now();
    stage.until_drained().await;
    let (waited, within) = (killed.elapsed(), settings.claim_timeout + settings.interval + SLACK);
    assert!(waited <= within, "taken over after {waited:?}, not within {within:?}");
    one.close().await.unwrap();
    two.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(0);
}

/// The same clause from its other side: when the database's clock jumps an hour ahead, every claim is too old at
/// once. Nodes take each other's rows, settlements are fenced, and no more is repeated than was in flight. When
/// it jumps back, what was written in between is due when the clock has come that far again.
#[tokio::test]
async fn a_database_whose_clock_jumps_repeats_what_was_in_flight_and_loses_nothing() {
    const BACK: i64 = 3;
    let Some(clocks) = Clocks::make() else { return };
    let Some(mut server) = private_postgres().await else { return };
    let clock = clocks.off_by("database", 0);
    for (name, value) in clock.environment() {
        server.set_environment(name, value);
    }
    server.restart().await;
    let stage = Stage::on(server.url()).await;
    stage.backlog(EVENTS / 2).await;
    // Handlers that take a while, so that both nodes have rows in hand when the clock jumps.
    let node = |name| Settings { workers: 32, ..stage.node(name) }.flag("--handler-ms", 2).start();
    let (mut one, mut two) = tokio::join!(node("one"), node("two"));
    for node in [&mut one, &mut two] {
        node.append(EVENTS / 4).await;
    }

    let before = stage.database_now().await;
    stage.until_done(EVENTS / 5).await;
    clock.set(HOUR);
    let ahead = stage.database_now().await - before;
    assert!(ahead > Duration::from_secs(3_500).as_micros().try_into().unwrap(), "it did not jump: {ahead}");
    stage.until_done(EVENTS / 2).await;
    clock.set(HOUR - BACK);

    for node in [&mut one, &mut two] {
        assert_eq!(node.appended().await, EVENTS / 4);
    }
    stage.until_drained().await;
    let in_flight = one.settings.handled_in_flight() + two.settings.handled_in_flight();
    one.close().await.unwrap();
    two.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(2 * in_flight);
}
