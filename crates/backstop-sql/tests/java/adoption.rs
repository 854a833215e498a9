//! Taking over a table that is full: what is added, what stays, and what becomes of rows in every state.

use std::collections::BTreeSet;
use std::time::Duration;

use backstop_core::event::GLOBAL;
use backstop_core::{Event, Failure};
use backstop_sql::store::{DatabaseKind, Store};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Recording;

use crate::audit;
use crate::framework::*;
use crate::place::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Rows of every status, as the framework's statements write them. All that is due is due for a while.
async fn fill(java: &Framework) {
    let uuid = "0b5c6a0e-8f4e-4c7e-9a53-6f1f6f2f7a11";
    let (global, none) = (Some(GLOBAL), None);
    java.insert_new(&Envelope {
        aggregate_type: global,
        aggregate_id: none,
        headers: none,
        ..envelope(uuid)
    })
    .await;
    java.insert_new(&Envelope { aggregate_type: none, ..envelope("01JZ0000000000000000000000") }).await;
    let headers = Some(r#"{"k": "v"}"#);
    java.insert_new(&Envelope { headers, tenant_id: Some("acme"), ..envelope("headers") }).await;
    for id in ["retry", "retry-later", "lost", "deferred", "done", "dead", "locked-dead", "locked-live"] {
        let event_type = if id == "lost" { "OrderLost" } else { "OrderPlaced" };
        java.insert_new(&Envelope { event_type, ..envelope(id) }).await;
    }
    java.insert_new(&Envelope { available_at: Some(now() + 30 * MINUTE), ..envelope("scheduled") }).await;
    let long = "é".repeat(4_000);
    java.mark_retry("retry", now() - MINUTE, &long).await;
    java.mark_retry("retry-later", now() + 30 * MINUTE, "timeout").await;
    for _ in 0..2 {
        java.mark_retry("lost", now() - MINUTE, "timeout").await;
    }
    java.mark_deferred("deferred", now() - MINUTE).await;
    java.mark_done("done").await;
    java.mark_dead("dead", "no listener").await;
    java.named("java-dead").lock("locked-dead", now() - 10 * MINUTE).await;
    java.named("java-alive").lock("locked-live", now()).await;
}

/// What is due and locked by nobody who lives.
const DUE: [&str; 7] = [
    "01JZ0000000000000000000000",
    "0b5c6a0e-8f4e-4c7e-9a53-6f1f6f2f7a11",
    "deferred",
    "headers",
    "locked-dead",
    "lost",
    "retry",
];

/// Each column that the framework does not know: whether it may be left out of an insert.
async fn added_columns(java: &Framework) -> Vec<String> {
    let schema = if java.kind == DatabaseKind::Postgres { "current_schema()" } else { "database()" };
    let known = COLUMNS.map(|column| format!("'{column}'")).join(", ");
    java.texts(&format!(
        "SELECT CONCAT(column_name, CASE WHEN is_nullable = 'YES' OR column_default IS NOT NULL THEN ' may be left out'
         ELSE ' is required' END) FROM information_schema.columns
         WHERE table_schema = {schema} AND table_name = 'outbox_event' AND column_name NOT IN ({known})"
    ))
    .await
}

/// The framework's own columns, with their types.
async fn known_columns(java: &Framework) -> Vec<String> {
    let schema = if java.kind == DatabaseKind::Postgres { "current_schema()" } else { "database()" };
    let known = COLUMNS.map(|column| format!("'{column}'")).join(", ");
    java.texts(&format!(
        "SELECT CONCAT(column_name, ' ', data_type, ' ', COALESCE(CAST(character_maximum_length AS CHAR(20)), '-'), ' ', \
         is_nullable, ' ', COALESCE(CAST(column_default AS CHAR(20)), '-')) FROM information_schema.columns \
         WHERE table_schema = {schema} AND table_name = 'outbox_event' AND column_name IN ({known}) \
         ORDER BY column_name"
    ))
    .await
}

/// Runs every statement of the framework once, on a row of its own.
async fn run_each_statement(java: &Framework) {
    for id in ["its-done", "its-dead", "its-retry"] {
        let long_ago = now() - 1_000 * MINUTE;
        java.insert_new(&Envelope { occurred_at: long_ago, ..envelope(id) }).await;
    }
    let polled: Vec<_> = java.poll_pending(3).await.into_iter().map(|taken| taken.id).collect();
    let claimed: Vec<_> = java.claim_pending(3).await.into_iter().map(|taken| taken.id).collect();
    for mut ids in [polled, claimed] {
        ids.sort();
        assert_eq!(ids, ["its-dead", "its-done", "its-retry"]);
    }
    assert_eq!(java.state("its-done").await.locked_by.as_deref(), Some("java-1"));
    assert_eq!(java.mark_deferred("its-done", now()).await, 1);
    assert_eq!(java.mark_done("its-done").await, 1);
    assert_eq!(java.mark_done("its-done").await, 0);
    assert_eq!(java.mark_retry("its-retry", now() + 30 * MINUTE, "again").await, 1);
    assert_eq!(java.mark_dead("its-dead", "no").await, 1);
    // As versions before 0.7.1 left it: without the time of its end.
    java.run_text("UPDATE outbox_event SET done_at = NULL WHERE event_id = 'its-dead'").await;
    assert_eq!(java.purge(now() - 999 * MINUTE, 10).await, 1);
    assert_eq!((java.state("its-done").await.status, java.state("its-retry").await.attempts), (1, 1));
    java.run_text("DELETE FROM outbox_event WHERE event_id IN ('its-done', 'its-retry')").await;
}

backstop_testkit::suite! {
    over { mysql: java_on_mysql, postgres: java_on_postgres, postgres_zoned: java_on_postgres_zoned }

    /// Rules: O-109, O-110, O-111, O-115, O-116, O-134, O-135, O-136, O-137.
    async fn the_migration_is_not_noticed_by_the_other_side(place) {
        let java = &place.java;
        fill(java).await;
        let (columns, before) = (known_columns(java).await, java.rows().await);
        assert_eq!((columns.len(), before.len()), (15, 12));
        place.store().migrate().await.unwrap();
        assert_eq!(added_columns(java).await, ["claim_seq may be left out"]);
        assert_eq!(known_columns(java).await, columns);
        run_each_statement(java).await;
        assert_eq!(java.rows().await, before, "no row has changed");
    }

    /// As the guide says it.
    async fn what_was_added_can_be_removed_and_added_again(place) {
        let java = &place.java;
        fill(java).await;
        let before = java.rows().await;
        place.store().migrate().await.unwrap();
        let indexes = match java.kind {
            DatabaseKind::Postgres => "DROP INDEX idx_due, idx_due_created, idx_ended, idx_dead",
            _ => "DROP INDEX idx_status_created ON outbox_event; DROP INDEX idx_created ON outbox_event",
        };
        java.run_text("ALTER TABLE outbox_event DROP COLUMN claim_seq; DROP TABLE backstop_migration").await;
        java.run_text(indexes).await;
        assert!(added_columns(java).await.is_empty());
        run_each_statement(java).await;
        place.store().migrate().await.unwrap();
        place.store().check().await.unwrap();
        assert_eq!(java.rows().await, before);
    }

    /// Rules: O-109, O-116, O-358, O-359.
    async fn a_full_table_is_drained_and_what_is_not_due_stays_as_it_is(place) {
        let java = &place.java;
        fill(java).await;
        let before = java.rows().await;
        let (recorder, failing) = (Recording::new(), |_: Event| async { Err::<(), _>(Failure::transient("lost", "again")) });
        let node = place.node()
            .skip_recent(Duration::from_secs(1))
            .on("Order", "OrderPlaced", recorder.clone())
            .on("Order", "OrderLost", Recording::of(failing))
            .on_global("OrderPlaced", recorder.clone())
            .start().await.unwrap();
        let pending = async || java.number("SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)").await;
        eventually("all that is due is settled", async || pending().await == 3).await;
        node.close().await.unwrap();

        let mut due: BTreeSet<_> = DUE.into();
        due.remove("lost");
        let events = recorder.events();
        assert_eq!(events.len(), due.len());
        assert_eq!(events.iter().map(Event::id).collect::<BTreeSet<_>>(), due);
        let by_id = |id: &str| events.iter().find(|event| event.id() == id).unwrap();
        let (global, named) = (by_id(DUE[1]), by_id("headers"));
        assert_eq!((global.aggregate_type(), global.aggregate_id(), global.headers().len()), (GLOBAL, None, 0));
        assert_eq!((named.header("k"), named.tenant_id(), named.payload_json()), (Some("v"), Some("acme"), r#"{"total": 1}"#));
        assert_eq!(Some(named.occurred_at()), java.state("headers").await.created_at);

        let after = java.rows().await;
        for (was, is) in before.iter().zip(&after) {
            let backstop_sql::statement::Value::Text(Some(id)) = &was[0] else { panic!("{was:?}") };
            if DUE.contains(&id.as_str()) {
                assert_eq!(is[..7], was[..7], "what happened stays: {id}");
                let state = java.state(id).await;
                assert_eq!(state.status, if id == "lost" { 3 } else { 1 }, "{id}");
                assert!(state.locked_by.is_none() && state.locked_at.is_none(), "{id}");
                assert!(state.done_at.is_some_and(|at| at > now() - MINUTE && at <= now() + MINUTE), "{id}");
            } else {
                assert_eq!(is, was, "{id}");
            }
        }
        let lost = java.state("lost").await;
        assert_eq!((lost.attempts, lost.last_error.as_deref()), (2, Some("lost: again")));
        assert_eq!(audit::strange_rows(java).await, Vec::<String>::new());
        assert!(java.purge(now() + MINUTE, 100).await == 9, "what Backstop ended is purged by the framework");
    }
}
