//! Rows that cannot be decoded: each is buried by what it is known by, and no other in its place.

use backstop_sql::store::{DatabaseKind, Row, Store, Unreadable};

use crate::harness::*;

fn unreadable(row: Row) -> Unreadable {
    Unreadable { id: row.id, key: row.key, claim: row.claim, problem: row.event.unwrap_err() }
}

/// Inserts a row by hand.
async fn insert(it: &Fresh<impl Database>, id: &str, available_at: &str, created_at: &str) {
    let mut connection = it.connections.connection().await.unwrap();
    if it.kind == DatabaseKind::Mysql {
        // Such moments are for those who are not strict.
        connection.execute(&it.statement("set session sql_mode = ''")).await.unwrap();
    }
    let text = format!(
        "insert into outbox_event (event_id, event_type, payload, status, available_at, created_at) \
         values ({id}, 'OrderPlaced', '{{}}', 0, {available_at}, {created_at})"
    );
    connection.execute(&it.statement(&text)).await.unwrap();
}

const THEN: &str = "'2019-12-31 12:00:00'";

backstop_testkit::suite! {
    over { sqlite: migrated::<sqlx::Sqlite> }

    async fn a_row_whose_id_is_no_text_is_buried_and_the_one_without_a_name_lives(it) {
        for id in ["''", "x'0102'", "x'6162'", "cast(x'ff61' as text)"] {
            insert(&it, id, THEN, THEN).await;
        }
        for claimed in [false, true] {
            let rows = if claimed { it.claim("node-1", 0, 10).await } else { it.poll(0, 10).await };
            let (good, bad): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.event.is_ok());
            assert_eq!((ids(&good).as_str(), bad.len()), ("", 3), "{bad:?}");
            assert!(bad.iter().any(|row| row.id == "x'0102'"), "{bad:?}");
            let bad: Vec<_> = bad.into_iter().map(unreadable).collect();
            assert_eq!(it.store.bury_unreadable(at(1), &bad).await.unwrap(), 3);
            assert_eq!(it.number("select count(*) from outbox_event where status = 3").await, 3);
            assert_eq!(it.state("").await.status, 0);
            assert_eq!(it.store.bury_unreadable(at(1), &bad).await.unwrap(), 0, "they are dead already");
            it.run("update outbox_event set status = 0, locked_by = null, locked_at = null").await;
        }
        let dead = it.store.query_dead(&backstop_sql::store::DeadFilter::default(), None, 10).await.unwrap();
        assert_eq!(dead, []);
    }

    async fn a_row_whose_id_is_no_text_is_not_buried_under_a_claim_that_another_node_has_by_now(it) {
        insert(&it, "x'0102'", THEN, THEN).await;
        let lost = it.claim("node-1", 0, 10).await.into_iter().map(unreadable).collect::<Vec<_>>();
        let taken = it.claim("node-2", 3_600, 10).await.into_iter().map(unreadable).collect::<Vec<_>>();
        assert_eq!((lost.len(), taken.len()), (1, 1));
        assert_eq!(it.store.bury_unreadable(at(3_601), &lost).await.unwrap(), 0);
        assert_eq!(it.store.bury_unreadable(at(3_601), &taken).await.unwrap(), 1);
    }

    async fn a_moment_that_never_comes_is_found(it) {
        insert(&it, "'a'", "'tomorrow'", THEN).await;
        insert(&it, "'b'", "x'00'", THEN).await;
        insert(&it, "'c'", "'2030-01-01 00:00:00'", THEN).await;
        insert(&it, "'d'", THEN, THEN).await;
        assert_eq!(ids(&it.poll(0, 10).await), "d");
        let rows = it.store.never_due(10).await.unwrap();
        assert_eq!(ids(&rows), "ab");
        assert!(rows.iter().all(|row| row.event.is_err()), "{rows:?}");
    }
}

database_suite! {
    over migrated

    async fn a_row_with_moments_that_cannot_be_read_is_buried(it) {
        let (available, created) = match it.kind {
            DatabaseKind::Sqlite => ("'1'", "'yesterday'"),
            DatabaseKind::Postgres => ("'-infinity'", "'infinity'"),
            DatabaseKind::Mysql => ("'0000-00-00 00:00:00'", "'0000-00-00 00:00:00'"),
        };
        insert(&it, "'a'", available, THEN).await;
        insert(&it, "'b'", THEN, created).await;
        insert(&it, "'c'", THEN, THEN).await;
        let (good, bad): (Vec<_>, Vec<_>) = it.poll(0, 10).await.into_iter().partition(|row| row.event.is_ok());
        // MySQL's zero is none at all: nobody misses when the row was due.
        let readable = if it.kind == DatabaseKind::Mysql { "ac" } else { "c" };
        assert_eq!((ids(&good).as_str(), bad.len() + good.len()), (readable, 3), "{bad:?}");
        let bad: Vec<_> = bad.into_iter().map(unreadable).collect();
        assert_eq!(it.store.bury_unreadable(at(1), &bad).await.unwrap(), bad.len() as u64);
        assert_eq!(ids(&it.poll(1, 10).await), readable);
    }
}
