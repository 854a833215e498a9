//! A database that is restarted, that crashes, and that ends sessions, all under load.

use std::time::Duration;

use backstop_testkit::servers::private_postgres;
use sqlx::query_scalar;

use crate::support::EVENTS;
use crate::support::node::{Settings, now};
use crate::support::stage::Stage;

/// How soon the nodes deliver again when the database is back: a settlement or a look that failed is tried again
/// within a second or an interval, and a connection within the pool's patience.
const RESUMED: Duration = Duration::from_secs(15);

/// "A crash, a lost connection or a failed write repeats an event and never drops it": the server is stopped as
/// an administrator would, and then killed, while two nodes append and deliver. They keep what their handlers
/// finished until they can write it. A crash may take back the claims of the last moments, which do not wait for the
/// disk, so what was in flight then may be repeated.
#[tokio::test]
async fn a_database_restarted_and_killed_under_load_loses_nothing_and_delivery_goes_on() {
    let Some(mut server) = private_postgres().await else { return };
    let stage = Stage::on(server.url()).await;
    let (mut one, mut two) =
        tokio::join!(stage.node("one").patient().start(), stage.node("two").patient().start());
    for node in [&mut one, &mut two] {
        node.append(EVENTS * 6 / 10).await;
    }

    stage.until_done(EVENTS / 10).await;
    server.restart().await;
    let restarted_at = now();
    stage.until_done(EVENTS / 3).await;
    server.kill().await;
    server.start().await;
    let recovered_at = now();

    let accepted = one.appended().await + two.appended().await;
    assert!(accepted >= EVENTS, "only {accepted} were accepted");
    stage.until_drained().await;
    let held = |settings: &Settings| settings.cold_queue + settings.handled_in_flight();
    let in_flight = held(&one.settings) + held(&two.settings);
    one.close().await.unwrap();
    two.close().await.unwrap();
    let ledger = stage.ledger().await;
    ledger.assert_conserved(EVENTS);
    ledger.assert_settled_by_owners();
    ledger.assert_duplicates_within(in_flight);
    for back in [restarted_at, recovered_at] {
        ledger.assert_resumed(back, RESUMED);
    }
}

/// The same where only sessions are ended, again and again, as an administrator or a failover does: what is cut
/// off in the middle of a statement was either done or was not, and is delivered.
#[tokio::test]
async fn backends_that_are_terminated_again_and_again_lose_nothing() {
    const TIMES: usize = 8;
    let Some(stage) = Stage::shared().await else { return };
    let (mut one, mut two) =
        tokio::join!(stage.node("one").patient().start(), stage.node("two").patient().start());
    for node in [&mut one, &mut two] {
        node.append(EVENTS * 6 / 10).await;
    }
    let mut last = 0;
    for time in 1..=TIMES {
        stage.until_done(EVENTS * time / 10).await;
        let terminated: Vec<bool> = query_scalar(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name in ('one', 'two') \
             and datname = current_database()",
        )
        .fetch_all(&stage.pool)
        .await
        .unwrap();
        assert!(terminated.len() > 1, "the nodes had no sessions");
        last = now();
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
    ledger.assert_resumed(last, RESUMED);
}
