//! A program of ours whose clock differs from the database's: the framework takes none of its rows for broken.

use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Failure};
use backstop_sql::store::{At, Settle, SqlStore, Store};
use backstop_sql::{Outbox, Supported, TableName, TimeZone};
use backstop_testkit::eventually;
use chrono::TimeDelta;

use crate::audit;
use crate::framework::*;
use crate::place::*;

const SKEWS: [TimeDelta; 4] =
    [TimeDelta::milliseconds(50), TimeDelta::hours(1), TimeDelta::milliseconds(-50), TimeDelta::hours(-1)];

/// Events of a writer whose clock is so far ahead: due at once, on demand, and dated back.
fn written(number: usize, ahead: TimeDelta) -> Vec<Event> {
    let clock = now() + ahead;
    let event = |kind: &str| {
        let event = Event::of("OrderPlaced").id(format!("{number}-{kind}")).aggregate("Order", "1");
        event.occurred_at(clock)
    };
    vec![
        event("plain").json(&1).unwrap(),
        event("at-once").available_at(clock).json(&1).unwrap(),
        event("soon").deliver_after(Duration::from_micros(1)).json(&1).unwrap(),
        event("yesterday").occurred_at(clock - TimeDelta::days(1)).json(&1).unwrap(),
        event("since").occurred_at(clock - TimeDelta::days(1)).available_at(clock).json(&1).unwrap(),
    ]
}

/// Appends them without delivering any.
async fn append<DB: Supported>(place: &Place<DB>, zone: &str) -> Vec<String> {
    let outbox = Outbox::writer_only(place.pool.clone()).time_zone(zone).start().await.unwrap();
    let mut ids = Vec::new();
    for (number, ahead) in SKEWS.into_iter().enumerate() {
        let events = written(number, ahead);
        ids.extend(events.iter().map(|event| event.id().to_owned()));
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all(events).await.unwrap();
        tx.commit().await.unwrap();
    }
    outbox.close().await.unwrap();
    ids
}

/// What the framework claims in all, when nothing of it is locked; those it buries are not among it.
async fn claimed(java: &Framework) -> usize {
    java.run_text("UPDATE outbox_event SET locked_by = NULL, locked_at = NULL").await;
    let taken = java.claim_pending(1_000).await.len();
    let buried = java.texts("SELECT event_id FROM outbox_event WHERE status = 3").await;
    assert_eq!(buried, [""; 0], "buried by the framework");
    assert_eq!(audit::strange_rows(java).await, [""; 0]);
    taken
}

async fn through_all_that_becomes_of_them<DB: Supported>(place: &Place<DB>, hours: i64) {
    let (java, zone) =
        (Framework { ahead: TimeDelta::hours(hours), ..place.java.clone() }, format!("+{hours:02}:00"));
    let ids = append(place, &zone).await;
    let store =
        SqlStore::on(place.pool.clone(), TableName::default()).time_zone(TimeZone::new(&zone).unwrap());
    // Two moments that the application named itself lie an hour ahead, and stay there.
    let at_once = ids.len() - 2;
    eventually("those without such a moment are due", async || claimed(&java).await == at_once).await;

    let settled = async |settlement: Settlement| {
        java.run_text("UPDATE outbox_event SET locked_by = NULL, locked_at = NULL").await;
        let settle = |id: &String| Settle {
            id: id.clone(),
            claim: None,
            attempts: None,
            generation: None,
            settlement: settlement.clone(),
        };
        let settles: Vec<_> = ids.iter().map(settle).collect();
        assert_eq!(store.settle(At::Database, &settles).await.unwrap(), ids.len() as u64);
    };
    let due = async || eventually("all are due", async || claimed(&java).await == ids.len()).await;
    settled(Settlement::Retry { after: Duration::ZERO, error: "again".into() }).await;
    due().await;
    settled(Settlement::Deferred { after: Duration::ZERO }).await;
    due().await;
    settled(Settlement::Dead { error: "no".into() }).await;
    assert_eq!(store.replay_dead(At::Database, &ids).await.unwrap(), ids.len() as u64);
    due().await;
}

backstop_testkit::suite! {
    over { mysql: java_on_mysql, postgres: java_on_postgres, postgres_zoned: java_on_postgres_zoned }

    async fn no_row_of_a_writer_whose_clock_is_off_is_buried_by_the_framework(place) {
        through_all_that_becomes_of_them(&place, 0).await;
    }

    async fn what_the_framework_wrote_an_hour_ahead_is_tried_again_soon_and_not_buried(place) {
        let java = &place.java;
        let hasty = Envelope { occurred_at: now() + TimeDelta::hours(1), ..envelope("a") };
        place.store().migrate().await.unwrap();
        java.insert_new(&hasty).await;
        let settlement = Settlement::Retry { after: Duration::ZERO, error: "again".into() };
        let settle = Settle { id: "a".into(), claim: None, attempts: None, generation: None, settlement };
        assert_eq!(place.store().settle(At::Database, &[settle]).await.unwrap(), 1);
        eventually("it is due", async || claimed(java).await == 1).await;
    }

    async fn a_node_whose_clock_is_ahead_leaves_its_retries_to_either_side(place) {
        let node = place.node()
            .retry_policy(|_, _| Duration::ZERO)
            .on("Order", "OrderPlaced", |_: Event| async { Err::<(), _>(Failure::transient("test", "no")) })
            .start().await.unwrap();
        let mut tx = node.begin().await.unwrap();
        let at_once = |event: &Event| ["0-plain", "0-at-once"].contains(&event.id());
        tx.append_all(written(0, TimeDelta::hours(1)).into_iter().filter(at_once).collect()).await.unwrap();
        tx.commit().await.unwrap();
        let tried = "SELECT COUNT(*) FROM outbox_event WHERE status = 2";
        eventually("both have failed once", async || place.java.number(tried).await == 2).await;
        node.close().await.unwrap();
        assert_eq!(claimed(&place.java).await, 2);
    }
}

mod in_another_zone {
    use super::*;

    backstop_testkit::suite! {
        over { mysql: java_on_mysql, postgres: java_on_postgres }

        async fn no_row_of_a_writer_whose_clock_is_off_is_buried_by_the_framework(place) {
            through_all_that_becomes_of_them(&place, 2).await;
        }
    }
}
