//! Inserting: within the caller's transaction, as NEW rows, with everything an event has.

use std::time::Duration;

use backstop_core::event::{AggregateType, EventType};
use backstop_core::{Clock, Event, SystemClock};
use backstop_sql::connection::{Column, Connection as _};
use backstop_sql::statement::Value;
use backstop_sql::store::{At, Born, DatabaseKind, Due, Store};

use crate::harness::*;

database_suite! {
    over migrated

    /// Rules: O-004, O-010, O-011, O-222, O-267.
    async fn an_insert_belongs_to_the_callers_transaction(it) {
        let mut transaction = it.connections.transaction("BEGIN").await.unwrap();
        it.store.insert(&mut transaction, &events("a"), None).await.unwrap();
        // Still the caller's, and still open.
        assert!(transaction.in_transaction());
        transaction.execute(&it.statement("update outbox_event set attempts = 1")).await.unwrap();
        drop(transaction);
        assert_eq!(it.number("select count(*) from outbox_event").await, 0);

        let mut transaction = it.connections.transaction("BEGIN").await.unwrap();
        it.store.insert(&mut transaction, &events("ab"), None).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(it.number("select count(*) from outbox_event").await, 2);
    }

    /// Rules: O-134, O-149, O-175, O-232, O-233, O-234, O-235.
    async fn a_row_holds_the_event_and_nothing_else(it) {
        let whole = Event::of("OrderPlaced")
            .id("whole")
            .aggregate("Order", "42")
            .tenant_id("acme")
            .header("source", "checkout")
            .occurred_at(moment(1))
            .available_at(moment(9))
            .payload_json(r#"{"total":1.10}"#)
            .build()
            .unwrap();
        let bare = Event::of("Tick").id("bare").occurred_at(moment(2)).payload_json("null").build().unwrap();
        it.insert(&[whole, bare]).await;

        let (payload, headers) = match it.kind {
            DatabaseKind::Postgres => ("payload::text", "headers::text"),
            // A JSON column of MySQL writes a space behind each colon.
            DatabaseKind::Mysql => ("payload", r#"replace(headers, '": "', '":"')"#),
            DatabaseKind::Sqlite => ("payload", "headers"),
        };
        let columns = format!(
            "select event_id, event_type, aggregate_type, aggregate_id, tenant_id, {payload}, {headers} \
             from outbox_event order by created_at"
        );
        let rows = it.read(&it.statement(&columns), &[Column::Text; 7]).await;
        let text = |text: &str| Value::Text(Some(text.to_owned()));
        let null = || Value::Text(None);
        let whole = ["whole", "OrderPlaced", "Order", "42", "acme", r#"{"total":1.10}"#, r#"{"source":"checkout"}"#];
        assert_eq!(rows[0], whole.map(text));
        let bare = [text("bare"), text("Tick"), text("__GLOBAL__"), null(), null(), text("null"), null()];
        assert_eq!(rows[1], bare);

        let expected = |available: i64, created: i64| State {
            status: 0,
            attempts: 0,
            available_at: Some(moment(available)),
            created_at: Some(moment(created)),
            done_at: None,
            last_error: None,
            locked_by: None,
            locked_at: None,
            claim_seq: 0,
        };
        assert_eq!(it.state("whole").await, expected(9, 1));
        assert_eq!(it.state("bare").await, expected(2, 2));
    }

    /// Rules: O-187, O-189.
    async fn types_are_stored_by_their_names(it) {
        struct Placed;
        impl EventType for Placed {
            fn name(&self) -> &'static str {
                "OrderPlaced.v2"
            }
        }
        struct Order;
        impl AggregateType for Order {
            fn name(&self) -> &'static str {
                "Order.v2"
            }
        }
        let event = Event::of(Placed).aggregate(Order, "42").json(&()).unwrap();
        it.insert(&[event]).await;
        assert_eq!(it.texts("select event_type from outbox_event").await, ["OrderPlaced.v2"]);
        assert_eq!(it.texts("select aggregate_type from outbox_event").await, ["Order.v2"]);
    }

    /// Rules: O-235.
    async fn a_row_is_born_claimed_for_as_long_as_its_age_leaves(it) {
        let born = Born::by("node-1", Duration::from_secs(40));
        let now = SystemClock.now();
        let delayed = Event::of("Later").id("later").deliver_after(MINUTE).json(&()).unwrap();
        it.insert_born(&[Event::of("Now").id("now").json(&()).unwrap(), delayed], Some(&born)).await;

        let row = it.state("now").await;
        assert_eq!((row.locked_by.as_deref(), row.claim_seq), (Some("node-1"), born.claim().seq));
        let age = now - row.locked_at.unwrap();
        assert!((30..=40).contains(&age.num_seconds()), "{age}");
        // Nobody delivers it from memory, so it is nobody's.
        assert_eq!(it.state("later").await.locked_by, None);

        // A claim of the poller's would have lasted a minute; this one has 20 seconds left.
        let claim = async |seconds: i64| {
            let now = backstop_sql::store::At::Instant(now + chrono::TimeDelta::seconds(seconds));
            let due = backstop_sql::store::Due { at: now, ..due(0, 10) };
            ids(&it.store.claim(&"node-2".into(), MINUTE, due).await.unwrap())
        };
        assert_eq!(claim(10).await, "");
        assert_eq!(claim(25).await, "now");
        let settled = it.settle_under(Some(&born.claim()), "now", 0, backstop_core::delivery::Settlement::Done).await;
        assert_eq!(settled, 0);
    }

    async fn a_node_whose_clock_is_ahead_does_not_put_its_events_off_unless_it_says_so(it) {
        let ahead = SystemClock.now() + chrono::TimeDelta::hours(1);
        let event = |id: &str| Event::of("T").id(id).occurred_at(ahead);
        let told = event("told").available_at(ahead + chrono::TimeDelta::hours(1)).json(&()).unwrap();
        it.insert(&[event("hasty").json(&()).unwrap(), told]).await;
        let due = Due { at: At::Database, ..due(0, 10) };
        assert_eq!(ids(&it.store.poll(due).await.unwrap()), "hasty");
        let hasty = it.state("hasty").await;
        assert_eq!(hasty.created_at, hasty.available_at);
    }

    async fn a_thousand_events_are_inserted_at_once_and_none_is_no_statement(it) {
        it.insert(&[]).await;
        let events: Vec<_> = (0..1_203).map(|number| event(&format!("{number:05}"), number)).collect();
        it.insert(&events).await;
        assert_eq!(it.number("select count(*) from outbox_event").await, 1_203);
    }

    async fn the_same_id_twice_is_refused_by_the_database(it) {
        it.insert(&events("a")).await;
        let mut connection = it.connections.connection().await.unwrap();
        let refused = it.store.insert(&mut *connection, &events("a"), None).await.unwrap_err();
        assert!(matches!(refused, backstop_sql::Error::Database { .. }), "{refused}");
    }

    async fn ids_that_differ_only_in_case_are_two_ids(it) {
        it.insert(&[event("a", 0), event("A", 1)]).await;
        assert_eq!(it.settle("A", 10, backstop_core::delivery::Settlement::Done).await, 1);
        assert_eq!((it.state("a").await.status, it.state("A").await.status), (0, 1));
    }
}
