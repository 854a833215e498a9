//! Migrating: many nodes at once, tables that others made, texts run by hand, versions too old and too new.

use std::sync::Arc;
use std::time::Duration;

use backstop_sql::connection::Connection as _;
use backstop_sql::store::{DatabaseKind, Store};
use backstop_sql::{Error, TableName};

use crate::harness::*;

/// The table as another program makes it, in the database's nearest types.
fn foreign_table(kind: DatabaseKind) -> String {
    let (json, small, time) = match kind {
        DatabaseKind::Postgres => ("JSONB", "SMALLINT", "TIMESTAMP(6)"),
        DatabaseKind::Mysql | DatabaseKind::Sqlite => ("JSON", "TINYINT", "DATETIME(6)"),
    };
    backstop_testkit::java::table(json, small, time)
}

/// A row as another program inserts it, knowing nothing of our columns.
fn foreign_row(id: &str) -> String {
    format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
         status, attempts, available_at, created_at) VALUES ('{id}', 'OrderPlaced', 'Order', '42', NULL, \
         '{{\"total\": 1}}', '{{\"k\": \"v\"}}', 0, 0, '2020-01-01 00:00:00.000001', '2020-01-01 00:00:00.000001')"
    )
}

/// How somebody who migrates begins, and what keeps others from doing so meanwhile.
fn migrates(kind: DatabaseKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        DatabaseKind::Sqlite => ("begin immediate", "select 1", "select 1"),
        DatabaseKind::Postgres => {
            ("begin", "select pg_advisory_xact_lock(hashtextextended('backstop.migration', 0))", "select 1")
        }
        DatabaseKind::Mysql => (
            "start transaction",
            "do get_lock(concat('backstop.migration.', left(sha2(database(), 256), 32)), 10)",
            "do release_lock(concat('backstop.migration.', left(sha2(database(), 256), 32)))",
        ),
    }
}

database_suite! {
    over empty

    async fn eight_nodes_migrate_at_once_and_each_migration_runs_once(it) {
        let it = Arc::new(it);
        let nodes: Vec<_> = (0..8)
            .map(|_| {
                let it = it.clone();
                tokio::spawn(async move { it.store.migrate().await })
            })
            .collect();
        for node in nodes {
            node.await.unwrap().unwrap();
        }
        assert_eq!(it.number("select count(*) from backstop_migration").await, 2);
        it.store.check().await.unwrap();
    }

    /// What a node saw before it waited for another one's migration is not what it acts upon.
    async fn a_table_that_was_made_while_a_node_waited_to_migrate_is_taken_as_it_is_then(it) {
        let it = Arc::new(it);
        let (begin, lock, unlock) = migrates(it.kind);
        let mut other = it.connections.transaction(begin).await.unwrap();
        other.execute(&it.statement(lock)).await.unwrap();
        let waiting = {
            let it = it.clone();
            tokio::spawn(async move { it.store.migrate().await })
        };
        tokio::time::sleep(Duration::from_millis(500)).await; // by then it has looked, and found nothing
        other.execute(&it.statement(&foreign_table(it.kind))).await.unwrap();
        let history = "create table backstop_migration \
             (table_name varchar(63) not null, version bigint not null, primary key (table_name, version))";
        other.execute(&it.statement(history)).await.unwrap();
        for version in 1..=2 {
            let noted = format!("insert into backstop_migration values ('outbox_event', {version})");
            other.execute(&it.statement(&noted)).await.unwrap();
        }
        other.execute(&it.statement(unlock)).await.unwrap();
        other.commit().await.unwrap();
        waiting.await.unwrap().unwrap();
        assert!(it.try_run("select claim_seq from outbox_event").await.is_err(), "it was up to date already");
    }

    /// On MySQL a statement that changes a table is committed by itself.
    async fn a_table_of_something_else_is_not_touched(it) {
        it.run("create table outbox_event (id varchar(10), status int)").await;
        it.store.migrate().await.unwrap_err();
        it.store.check().await.unwrap_err();
        assert!(it.try_run("select claim_seq from outbox_event").await.is_err(), "it is as it was");
    }

    async fn a_migration_whose_caller_gave_up_keeps_nobody_waiting(it) {
        let _ = tokio::time::timeout(Duration::from_millis(1), it.store.migrate()).await;
        let again = tokio::time::timeout(backstop_testkit::PATIENCE, it.store.migrate()).await;
        again.expect("no lock is left behind").unwrap();
        it.store.check().await.unwrap();
    }

    /// Rules: O-109, O-110, O-116, O-354.
    async fn a_table_that_another_program_made_and_goes_on_writing_to_is_drained(it) {
        it.run(&foreign_table(it.kind)).await;
        it.run(&foreign_row("old")).await;
        let old = it.store.check().await.unwrap_err();
        assert!(matches!(&old, Error::OldSchema { found: 0, wanted: 2, .. }), "{old}");

        it.store.migrate().await.unwrap();
        it.store.migrate().await.unwrap();
        it.store.check().await.unwrap();
        it.run(&foreign_row("young")).await;
        it.insert(&[event("ours", 5)]).await;

        let rows = it.claim("node-1", 10, 10).await;
        assert_eq!(ids(&rows), "oldyoungours");
        let event = rows[0].event.as_ref().unwrap();
        assert_eq!(event.occurred_at(), moment(0) + chrono::TimeDelta::microseconds(1));
        assert_eq!((event.header("k"), event.payload_json()), (Some("v"), r#"{"total": 1}"#));
        for row in &rows {
            let settlement = retry(5, "again");
            assert_eq!(it.settle_under(row.claim.as_ref(), &row.id, 20, settlement).await, 1);
            let state = it.state(&row.id).await;
            assert_eq!((state.status, state.available_at), (2, Some(moment(25))));
        }
        assert_eq!(ids(&it.poll(25, 10).await), "oldyoungours");
    }

    async fn the_text_of_the_migrations_can_be_run_by_hand_before_and_after(it) {
        let table = TableName::new("orders_outbox").unwrap();
        let text = it.kind.migrations(&table).unwrap();
        it.run(&text).await;
        let store = it.store_on("orders_outbox");
        store.check().await.unwrap();
        store.migrate().await.unwrap();
        if it.kind != DatabaseKind::Sqlite {
            it.run(&text).await; // SQLite cannot ask whether a column is there
        }
        assert_eq!(it.number("select count(*) from backstop_migration").await, 2);
        assert!(store.poll(due(0, 1)).await.unwrap().is_empty());
    }

    async fn a_table_that_a_newer_version_migrated_is_left_alone(it) {
        it.store.migrate().await.unwrap();
        it.run("insert into backstop_migration (table_name, version) values ('outbox_event', 99)").await;
        for refused in [it.store.check().await, it.store.migrate().await] {
            let error = refused.unwrap_err();
            assert!(matches!(&error, Error::NewSchema { found: 99, known: 2, .. }), "{error}");
            assert!(error.to_string().contains("update Backstop"), "{error}");
        }
    }

    async fn a_table_that_was_never_migrated_is_told_from_one_that_is_missing(it) {
        let missing = it.store.check().await.unwrap_err();
        assert!(matches!(&missing, Error::NoTable { table } if table == "outbox_event"), "{missing}");
        it.store.migrate().await.unwrap();
        it.run("delete from backstop_migration").await;
        let old = it.store.check().await.unwrap_err();
        assert!(matches!(&old, Error::OldSchema { found: 0, .. }), "{old}");
        it.store.migrate().await.unwrap();
        it.store.check().await.unwrap();
    }

    async fn a_table_that_was_dropped_is_made_again_or_missed(it) {
        it.store.migrate().await.unwrap();
        it.run("drop table outbox_event").await;
        let missed = it.store.check().await;
        assert!(matches!(missed, Err(backstop_sql::Error::NoTable { .. })), "{missed:?}");
        it.store.migrate().await.unwrap();
        it.insert(&events("a")).await;
        assert_eq!(ids(&it.poll(10, 1).await), "a");
    }
}
