//! What a store says when the table is not there or not ours: errors with the remedy, and no broken caller.

use std::time::Duration;

use backstop_core::delivery::Settlement::Done;
use backstop_sql::Error;
use backstop_sql::store::{DatabaseKind, DeadFilter, Purgeable, Rights, Settle, SqlStore, Store};

use crate::harness::*;

/// Every question to the store, with its answer.
async fn ask_all(it: &Fresh<impl Database>, store: &SqlStore) -> Vec<(&'static str, Option<Error>)> {
    let all = DeadFilter::default();
    let settles = [Done, retry(1, "x"), dead("x"), deferred(1)];
    let settles = settles.map(|settlement| Settle {
        id: "a".to_owned(),
        claim: None,
        attempts: None,
        generation: None,
        settlement,
    });
    let mut connection = it.connections.connection().await.unwrap();
    let mut answers = vec![
        ("poll", store.poll(due(0, 1)).await.err()),
        ("claim", store.claim(&"node-1".into(), MINUTE, due(0, 1)).await.err()),
        ("census", store.census(1).await.err()),
        ("troubled", store.troubled(1).await.err()),
        ("query_dead", store.query_dead(&all, None, 1).await.err()),
        ("count_dead", store.count_dead(&all).await.err()),
        ("replay_dead", store.replay_dead(at(0), &["a".to_owned()]).await.err()),
        ("check", store.check().await.err()),
    ];
    for settle in settles {
        answers.push(("settle", store.settle(at(0), &[settle]).await.err()));
    }
    let what = Purgeable::Ended;
    answers.push(("purge", store.purge(&mut *connection, what, at(0), Duration::ZERO, 1).await.err()));
    answers.push(("insert", store.insert(&mut *connection, &events("a"), None).await.err()));
    answers
}

/// The store as a user sees it who may read the table, or not even that, and how to take the user away again.
async fn with_few_rights(it: &Fresh<impl Database>, may_read: bool) -> (SqlStore, Option<String>) {
    let table = backstop_sql::TableName::default;
    match it.kind {
        DatabaseKind::Sqlite => {
            let url = it.url.replace("mode=rwc", "mode=ro");
            (SqlStore::connect(&url, table()).await.unwrap(), None)
        }
        DatabaseKind::Postgres => {
            // Roles that every server has.
            let role = if may_read { "pg_read_all_data" } else { "pg_monitor" };
            let url = format!("{}?options=-c%20role%3D{role}", it.url);
            (SqlStore::connect(&url, table()).await.unwrap(), None)
        }
        DatabaseKind::Mysql => {
            let (before, rest) = it.url.split_once("://").unwrap();
            let (_, place) = rest.split_once('@').unwrap();
            let database = it.texts("select database()").await.concat();
            let user = format!("'{database}'@'%'");
            it.run(&format!("create user {user} identified by 'guest'")).await;
            // The least of rights is enough to be let in.
            let right = if may_read { "select" } else { "create temporary tables" };
            it.run(&format!("grant {right} on {database}.* to {user}")).await;
            let url = format!("{before}://{database}:guest@{place}");
            (SqlStore::connect(&url, table()).await.unwrap(), Some(format!("drop user {user}")))
        }
    }
}

database_suite! {
    over empty

    /// Rules: O-058.
    async fn a_missing_table_is_named_with_the_remedy_by_every_question(it) {
        for (question, error) in ask_all(&it, &it.store).await {
            let error = error.unwrap_or_else(|| panic!("{question} found a table"));
            assert!(matches!(&error, Error::NoTable { table } if table == "outbox_event"), "{question}: {error}");
            assert!(error.to_string().contains("migrate"), "{error}");
        }
    }

    async fn a_table_without_rights_to_it_is_named_with_the_remedy(it) {
        it.store.migrate().await.unwrap();
        it.insert(&events("a")).await;
        let (store, afterwards) = with_few_rights(&it, false).await;
        let mut refused = vec![
            ("claim", store.claim(&"node-1".into(), MINUTE, due(0, 1)).await.err()),
            ("replay_dead", store.replay_dead(at(0), &["a".to_owned()]).await.err()),
        ];
        if it.kind != DatabaseKind::Sqlite {
            refused.push(("poll", store.poll(due(0, 1)).await.err()));
            refused.push(("check", store.check().await.err()));
        }
        if it.kind != DatabaseKind::Sqlite {
            refused.push(("migrate", store.migrate().await.err()));
        }
        if let Some(afterwards) = afterwards {
            it.run(&afterwards).await;
        }
        for (question, error) in refused {
            let error = error.unwrap_or_else(|| panic!("{question} was permitted"));
            assert!(matches!(error, Error::NotPermitted { .. }), "{question}: {error}");
            assert!(error.to_string().contains("grant it select, insert, update and delete"), "{error}");
        }
    }

    async fn who_may_only_read_can_migrate_where_there_is_nothing_to_do(it) {
        it.store.migrate().await.unwrap();
        it.insert(&events("a")).await;
        let (store, afterwards) = with_few_rights(&it, true).await;
        let migrated = store.migrate().await;
        let claimed = store.claim(&"node-1".into(), MINUTE, due(0, 1)).await;
        if let Some(afterwards) = afterwards {
            it.run(&afterwards).await;
        }
        migrated.unwrap();
        assert!(matches!(claimed, Err(Error::NotPermitted { .. })), "{claimed:?}");
    }

    /// Rules: O-058.
    async fn other_failures_of_the_database_keep_the_drivers_words(it) {
        it.store.migrate().await.unwrap();
        it.run("alter table outbox_event rename column last_error to the_last_error").await;
        it.insert(&events("a")).await;
        let settle = Settle { id: "a".to_owned(), claim: None, attempts: None, generation: None, settlement: dead("x") };
        let error = it.store.settle(at(0), &[settle]).await.unwrap_err();
        assert!(matches!(error, Error::Database { .. }), "{error}");
        assert!(error.to_string().contains("last_error"), "{error}");
    }

    /// What the migration of another program may do to it.
    async fn a_column_that_is_missing_is_told_before_anything_starts_and_one_more_is_no_matter(it) {
        it.store.migrate().await.unwrap();
        it.insert(&events("a")).await;
        it.run("alter table outbox_event add column region varchar(10)").await;
        it.store.check().await.unwrap();
        it.store.migrate().await.unwrap();
        it.insert(&[event("b", 1)]).await;

        it.run("alter table outbox_event rename column last_error to the_last_error").await;
        for (question, error) in [("check", it.store.check().await), ("migrate", it.store.migrate().await)] {
            let error = error.expect_err(question);
            assert!(matches!(&error, Error::ChangedTable { table, .. } if table == "outbox_event"), "{question}: {error}");
            assert!(error.to_string().contains("last_error"), "{error}");
        }
        it.run("alter table outbox_event rename column the_last_error to last_error").await;
        it.store.check().await.unwrap();
        assert_eq!(ids(&it.poll(10, 10).await), "ab");
    }

    async fn rights_that_are_missing_are_known_before_they_are_needed(it) {
        it.store.migrate().await.unwrap();
        it.insert(&events("a")).await;
        let all = Rights { update: true, delete: true };
        it.store.check_rights(all).await.unwrap();
        assert_eq!(it.state("a").await.status, 0, "asking changes nothing");
        let (store, afterwards) = with_few_rights(&it, true).await;
        let (to_update, to_delete) = (Rights { update: true, delete: false }, Rights { update: false, delete: true });
        let answers = [store.check_rights(to_update).await, store.check_rights(to_delete).await];
        let none = store.check_rights(Rights::default()).await;
        if let Some(afterwards) = afterwards {
            it.run(&afterwards).await;
        }
        for answer in answers {
            assert!(matches!(answer, Err(Error::NotPermitted { .. })), "{answer:?}");
        }
        none.unwrap();
    }
}
