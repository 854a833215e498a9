//! What a transaction holds when it is to be committed: not what a driver says, but what the table does.

use backstop_sql::Error;
use backstop_sql::connection::Connection as _;
use backstop_sql::store::Store;

use crate::harness::*;

fn named(ids: &str) -> Vec<String> {
    ids.chars().map(String::from).collect()
}

fn sorted(found: Result<Vec<String>, Error>) -> String {
    let mut found = found.unwrap();
    found.sort();
    found.concat()
}

database_suite! {
    over migrated

    async fn a_transaction_holds_what_was_inserted_less_what_a_savepoint_has_undone(it) {
        let mut transaction = it.begin_to_append().await;
        it.store.insert(&mut *transaction, &events("a"), None).await.unwrap();
        transaction.execute(&it.statement("savepoint mine")).await.unwrap();
        it.store.insert(&mut *transaction, &[event("b", 1), event("c", 2)], None).await.unwrap();
        transaction.execute(&it.statement("rollback to savepoint mine")).await.unwrap();
        assert_eq!(sorted(it.store.present(Some(&mut *transaction), &named("abc")).await), "a");
        assert_eq!(sorted(it.store.present(None, &named("abc")).await), "", "nobody else sees it yet");
        transaction.commit().await.unwrap();
        assert_eq!(sorted(it.store.present(None, &named("abcd")).await), "a");
    }
}

backstop_testkit::suite! {
    over { postgres: migrated::<sqlx::Postgres> }

    async fn a_transaction_that_has_failed_is_known_before_its_commit_says_ok(it) {
        let mut transaction = it.begin_to_append().await;
        it.store.insert(&mut *transaction, &events("a"), None).await.unwrap();
        transaction.execute(&it.statement("select no_such_column from outbox_event")).await.unwrap_err();
        let error = it.store.present(Some(&mut *transaction), &named("a")).await.unwrap_err();
        assert!(matches!(error, Error::RolledBack { .. }), "{error}");
        transaction.commit().await.expect("so says the driver");
        assert_eq!(sorted(it.store.present(None, &named("a")).await), "");
    }

    async fn a_transaction_that_was_ended_by_hand_is_known_too(it) {
        let mut transaction = it.begin_to_append().await;
        it.store.insert(&mut *transaction, &events("a"), None).await.unwrap();
        transaction.execute(&it.statement("rollback")).await.unwrap();
        let error = it.store.present(Some(&mut *transaction), &named("a")).await.unwrap_err();
        assert!(matches!(error, Error::RolledBack { .. }), "{error}");
    }
}

backstop_testkit::suite! {
    over { sqlite: migrated::<sqlx::Sqlite> }

    async fn a_transaction_that_the_database_rolled_back_by_itself_is_known_and_leaves_its_connection_usable(it) {
        it.insert(&events("z")).await;
        for _ in 0..20 {
            let mut transaction = it.begin_to_append().await;
            it.store.insert(&mut *transaction, &[event("a", 0)], None).await.unwrap();
            let taken = "insert or rollback into outbox_event select * from outbox_event where event_id = 'z'";
            transaction.execute(&it.statement(taken)).await.unwrap_err();
            // By itself, in no transaction.
            let error = it.store.insert(&mut *transaction, &[event("a", 0)], None).await.unwrap_err();
            assert!(matches!(error, Error::RolledBack { .. }), "{error}");
            let error = it.store.present(Some(&mut *transaction), &named("a")).await.unwrap_err();
            assert!(matches!(error, Error::RolledBack { .. }), "{error}");
            drop(transaction);
            assert_eq!(sorted(it.store.present(None, &named("a")).await), "");
        }
    }
}
