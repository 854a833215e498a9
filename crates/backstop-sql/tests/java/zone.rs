//! A framework whose clocks on the wall are two hours ahead of UTC, and whose columns do not say so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::{Event, Failure, Outcome, Timestamp};
use backstop_sql::outbox::{Builder, MultiNode};
use backstop_sql::store::{At, DeadFilter, Due, Order, Purgeable, SqlStore, Store};
use backstop_sql::{Supported, TableName, TimeZone};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use chrono::TimeDelta;

use crate::audit;
use crate::framework::*;
use crate::place::*;

const MINUTE: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(3_600);

fn east(java: &Framework) -> Framework {
    Framework { ahead: TimeDelta::hours(2), ..java.clone() }
}

fn node<DB: Supported>(place: &Place<DB>) -> Builder<DB, MultiNode> {
    place.node().time_zone("+02:00").skip_recent(Duration::from_millis(1))
}

fn store<DB: Supported>(place: &Place<DB>) -> SqlStore {
    SqlStore::on(place.pool.clone(), TableName::default()).time_zone(TimeZone::new("+02:00").unwrap())
}

/// Whether a moment is one of the last minute.
fn just_now(moment: Option<Timestamp>) -> bool {
    moment.is_some_and(|moment| moment > now() - MINUTE && moment <= now())
}

fn due() -> Due<'static> {
    Due {
        at: At::Database,
        skip_recent: Duration::ZERO,
        limit: 10,
        order: Order::Due,
        after: None,
        pair: None,
    }
}

/// Rows that are due, that are not yet, and that are locked.
async fn fill(java: &Framework) {
    java.insert_new(&Envelope { occurred_at: now(), ..envelope("due-now") }).await;
    java.insert_new(&Envelope { occurred_at: now() - 30 * MINUTE, ..envelope("due-since") }).await;
    for id in ["in-30-minutes", "in-3-hours"] {
        let ahead = if id == "in-30-minutes" { 30 } else { 180 };
        java.insert_new(&Envelope { available_at: Some(now() + ahead * MINUTE), ..envelope(id) }).await;
    }
    for id in ["retry", "locked-live", "locked-dead"] {
        java.insert_new(&envelope(id)).await;
    }
    java.mark_retry("retry", now() + 90 * MINUTE, "timeout").await;
    java.named("java-alive").lock("locked-live", now()).await;
    java.named("java-dead").lock("locked-dead", now() - 10 * MINUTE).await;
}

backstop_testkit::suite! {
    over { mysql: java_on_mysql, postgres: java_on_postgres }

    async fn what_is_due_there_is_taken_now_and_what_is_not_is_not(place) {
        let java = east(&place.java);
        let written = now();
        fill(&java).await;
        let recorder = Recording::new();
        let node = node(&place).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let events = recorder.until(3).await;
        let rest = node.store().claim(&"node-2".into(), 5 * MINUTE, due()).await.unwrap();
        assert!(rest.is_empty(), "{rest:?}");
        let ids: BTreeSet<_> = recorder.ids().into_iter().collect();
        assert_eq!(ids, ["due-now", "due-since", "locked-dead"].map(str::to_owned).into());
        for event in &events {
            assert_eq!(Some(event.occurred_at()), java.state(event.id()).await.created_at, "{event:?}");
        }
        let due_now = events.iter().find(|event| event.id() == "due-now").unwrap();
        assert!((due_now.occurred_at() - written).abs() < TimeDelta::minutes(1), "{due_now:?}");
        node.close().await.unwrap();

        for id in ids {
            let state = java.state(&id).await;
            assert!(state.status == 1 && just_now(state.done_at), "{id}: {state:?}");
        }
        for id in ["in-30-minutes", "in-3-hours", "retry", "locked-live"] {
            assert!(matches!(java.state(id).await.status, 0 | 2), "{id}");
        }
        assert_eq!(audit::strange_rows(&java).await, Vec::<String>::new());
    }

    async fn taken_for_utc_the_same_rows_seem_two_hours_away(place) {
        let java = east(&place.java);
        fill(&java).await;
        place.store().migrate().await.unwrap();
        assert!(place.store().poll(due()).await.unwrap().is_empty());
        assert_eq!(store(&place).poll(due()).await.unwrap().len(), 4, "whoever holds them");
        let wait = store(&place).next_due(At::Database, None).await.unwrap().unwrap().after.unwrap();
        assert!(wait > 29 * MINUTE && wait <= 30 * MINUTE, "{wait:?}");
    }

    async fn what_is_written_back_is_in_that_zone(place) {
        let java = east(&place.java);
        let gate = Slow::gated();
        let node = node(&place)
            .interval(NEVER)
            .max_attempts(2)
            .retry_policy(|_, _| 30 * MINUTE)
            .on("Order", "Held", |_: Event| async { Outcome::RetryAfter(40 * MINUTE) })
            .on("Order", "Failing", |_: Event| async { Err::<(), _>(Failure::transient("test", "no")) })
            .on("Order", "Dying", |_: Event| async { Outcome::dead_because("no") })
            .on("Order", "Slow", Recording::of(gate.clone()))
            .on("Order", "Soon", Recording::new())
            .start().await.unwrap();
        let mut tx = node.begin().await.unwrap();
        let appended = now();
        for event_type in ["Held", "Failing", "Dying", "Slow"] {
            tx.append(Event::of(event_type).id(event_type).aggregate("Order", "1").json(&1).unwrap()).await.unwrap();
        }
        let soon = Event::of("Soon").id("Soon").aggregate("Order", "1").deliver_after(Duration::from_millis(300));
        let soon = soon.json(&1).unwrap();
        let due_at = soon.available_at().unwrap();
        tx.append(soon).await.unwrap();
        tx.commit().await.unwrap();
        let status = async |id: &str| java.state(id).await.status;
        eventually("all are settled", async || {
            status("Failing").await == 2 && status("Dying").await == 3 && status("Soon").await == 1
                && java.state("Held").await.locked_by.is_none()
        }).await;

        for id in ["Held", "Failing", "Dying", "Slow", "Soon"] {
            let created_at = java.state(id).await.created_at.unwrap();
            assert!(created_at >= appended - TimeDelta::milliseconds(1) && created_at <= now(), "{id}: {created_at}");
        }
        let ahead = async |id: &str| (java.state(id).await.available_at.unwrap() - now()).num_minutes();
        assert_eq!((ahead("Held").await, ahead("Failing").await), (39, 29));
        assert!(just_now(java.state("Dying").await.done_at));
        assert!(just_now(java.state("Slow").await.locked_at), "a born claim");
        assert!(java.state("Soon").await.done_at.unwrap() >= due_at, "not before it was due, nor at the next interval");
        assert!(java.claim_pending(10).await.is_empty(), "nothing is due to the other side either");
        gate.open();
        node.close().await.unwrap();
        assert_eq!(status("Slow").await, 1);
    }

    async fn claims_are_as_old_as_the_other_side_thinks(place) {
        let (java, store) = (east(&place.java), store(&place));
        store.migrate().await.unwrap();
        for id in ["a", "b"] {
            java.insert_new(&envelope(id)).await;
        }
        let owner: Arc<str> = "node-1".into();
        let claim = async |timeout| store.claim(&owner, timeout, Due { limit: 1, ..due() }).await.unwrap();
        let ours = claim(5 * MINUTE).await;
        assert!(just_now(java.state(&ours[0].id).await.locked_at));
        let theirs = java.claim_pending(10).await;
        assert_eq!((ours.len(), theirs.len()), (1, 1));
        assert!(claim(5 * MINUTE).await.is_empty(), "what they hold is theirs");
        let held = [(ours[0].id.clone(), ours[0].claim.clone().unwrap())];
        java.named("node-1").lock(&ours[0].id, now() - 10 * MINUTE).await;
        assert_eq!(store.renew(At::Database, &held).await.unwrap().len(), 1);
        assert!(just_now(java.state(&ours[0].id).await.locked_at), "renewed");
        java.lock(&theirs[0].id, now() - 10 * MINUTE).await;
        assert_eq!(claim(5 * MINUTE).await[0].id, theirs[0].id, "and old when it is");
    }

    async fn age_and_death_are_counted_in_that_zone(place) {
        let (java, store) = (east(&place.java), store(&place));
        store.migrate().await.unwrap();
        for (id, minutes) in [("dead-90", 90), ("dead-30", 30), ("dead-200", 200)] {
            java.insert_new(&Envelope { occurred_at: now() - minutes * MINUTE, ..envelope(id) }).await;
            java.mark_dead(id, "no").await;
        }
        java.run_text("UPDATE outbox_event SET done_at = created_at").await;
        let between = DeadFilter {
            created_from: Some(now() - 120 * MINUTE),
            created_before: Some(now() - 60 * MINUTE),
            ..DeadFilter::default()
        };
        let dead = store.query_dead(&between, None, 10).await.unwrap();
        assert_eq!(dead.iter().map(|dead| dead.id.as_str()).collect::<Vec<_>>(), ["dead-90"]);
        assert_eq!(Some(dead[0].created_at), java.state("dead-90").await.created_at);
        let mut connection = java.connections.connection().await.unwrap();
        let purged = store.purge(&mut *connection, Purgeable::Ended, At::Database, 60 * MINUTE, 10).await;
        assert_eq!(purged.unwrap(), 2);
        drop(connection);
        let left = java.texts("SELECT event_id FROM outbox_event").await;
        assert_eq!(left, ["dead-30"], "those that died more than an hour ago are gone");
        assert_eq!(store.replay_dead(At::Database, &left).await.unwrap(), 1);
        assert!(just_now(java.state("dead-30").await.available_at));
    }

    async fn rows_inserted_by_plain_sql_get_moments_of_that_zone(place) {
        let (java, store) = (east(&place.java), store(&place));
        store.migrate().await.unwrap();
        store.allow_plain_inserts().await.unwrap();
        java.run_text("INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('a', 'OrderPlaced', '{}')").await;
        let state = java.state("a").await;
        assert!(just_now(state.created_at) && just_now(state.available_at), "{state:?}");
        assert_eq!(store.poll(due()).await.unwrap().len(), 1);
    }
}
