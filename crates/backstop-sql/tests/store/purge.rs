//! Purging: which rows are deleted, how many, in which order, on whose connection.

use std::time::Duration;

use backstop_core::delivery::Settlement::Done;
use backstop_sql::connection::{Column, Connection};
use backstop_sql::statement::{Statement, Value};
use backstop_sql::store::{Purgeable, Store};
use backstop_sql::{BoxFuture, Error};
use tokio::time::timeout;

use crate::harness::*;

/// Purges what is older than a minute.
async fn purge(it: &Fresh<impl Database>, seconds: i64, limit: u32) -> u64 {
    purge_what(it, Purgeable::Ended, seconds, limit).await
}

async fn purge_what(it: &Fresh<impl Database>, what: Purgeable, seconds: i64, limit: u32) -> u64 {
    let mut connection = it.connections.connection().await.unwrap();
    it.store.purge(&mut *connection, what, at(seconds), MINUTE, limit).await.unwrap()
}

async fn left(it: &Fresh<impl Database>) -> String {
    it.texts("select event_id from outbox_event order by event_id").await.concat()
}

/// A connection on which somebody else comes between the first choice of rows and what is done with them.
struct Meddled<'a> {
    inner: Box<dyn Connection + 'a>,
    it: &'a Fresh<sqlx::MySql>,
    meanwhile: Option<&'static str>,
}

impl Connection for Meddled<'_> {
    fn give_up(&mut self) {}

    fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.execute(statement)
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let rows = self.inner.fetch(statement, columns).await;
            if let Some(meanwhile) = self.meanwhile.take() {
                self.it.run(meanwhile).await;
            }
            rows
        })
    }
}

database_suite! {
    over migrated

    /// Rules: O-454, O-455, O-459.
    async fn only_ended_rows_are_purged_and_they_are_counted(it) {
        it.insert(&events("abcd")).await;
        it.settle("a", 10, Done).await;
        it.settle("b", 10, dead("given up")).await;
        it.settle("c", 10, retry(1, "again")).await;
        assert_eq!(purge(&it, 1_000_000, 100).await, 2);
        assert_eq!(left(&it).await, "cd");
        assert_eq!(purge(&it, 1_000_000, 100).await, 0);
    }

    /// Rules: O-456.
    async fn age_is_counted_from_the_end_of_a_row(it) {
        it.insert(&events("ab")).await;
        it.settle("a", 100, Done).await;
        it.settle("b", 101, dead("given up")).await;
        assert_eq!(purge(&it, 160, 100).await, 0, "exactly as old is not older");
        assert_eq!(purge(&it, 161, 100).await, 1);
        assert_eq!(left(&it).await, "b");
    }

    /// Rules: O-457.
    async fn where_the_end_was_not_recorded_age_is_counted_from_creation(it) {
        it.insert(&events("ab")).await; // created at 0 and 1
        for id in ["a", "b"] {
            it.settle(id, 100, dead("given up")).await;
            it.set(id, "done_at = null").await;
        }
        assert_eq!(purge(&it, 61, 100).await, 1);
        assert_eq!(left(&it).await, "b");
    }

    /// Rules: O-460, O-461.
    async fn one_call_deletes_the_oldest_up_to_its_limit(it) {
        it.insert(&[event("d", 1), event("c", 2), event("b", 2), event("a", 3), event("e", 0)]).await;
        // They ended in another order than they were created, and in both ways.
        for (id, ended) in [("a", 10), ("b", 11), ("c", 12), ("d", 13), ("e", 14)] {
            let settlement = if id == "b" || id == "e" { dead("given up") } else { Done };
            it.settle(id, ended, settlement).await;
        }
        assert_eq!(purge(&it, 1_000, 2).await, 2);
        assert_eq!(left(&it).await, "abc");
        assert_eq!(purge(&it, 1_000, 1).await, 1);
        assert_eq!(left(&it).await, "ac");
        assert_eq!(purge(&it, 1_000, 10).await, 2);
    }

    /// Rules: O-458.
    async fn a_purge_belongs_to_the_callers_transaction(it) {
        it.insert(&events("a")).await;
        it.settle("a", 10, Done).await;
        let mut transaction = it.connections.transaction("BEGIN").await.unwrap();
        let connection: &mut dyn Connection = &mut transaction;
        assert_eq!(it.store.purge(connection, Purgeable::Ended, at(1_000), MINUTE, 10).await.unwrap(), 1);
        drop(transaction);
        assert_eq!(left(&it).await, "a");
    }

    /// Rules: O-462, O-464.
    async fn store_and_purge_work_on_a_table_of_any_name_and_leave_the_others_alone(it) {
        let orders = it.store_on("orders_outbox");
        orders.migrate().await.unwrap();
        it.insert(&events("a")).await;
        let mut transaction = it.connections.transaction("BEGIN").await.unwrap();
        orders.insert(&mut transaction, &events("ab"), None).await.unwrap();
        transaction.commit().await.unwrap();

        let rows = orders.claim(&"node-1".into(), MINUTE, due(10, 10)).await.unwrap();
        assert_eq!(ids(&rows), "ab");
        assert_eq!(ids(&orders.poll(due(10, 10)).await.unwrap()), "ab");
        let done = |row: &backstop_sql::store::Row| backstop_sql::store::Settle {
            id: row.id.clone(),
            claim: row.claim.clone(),
            attempts: None,
            generation: None,
            settlement: Done,
        };
        assert_eq!(orders.settle(at(10), &rows.iter().map(done).collect::<Vec<_>>()).await.unwrap(), 2);
        let mut connection = it.connections.connection().await.unwrap();
        let purged = orders.purge(&mut *connection, Purgeable::Ended, at(1_000), Duration::ZERO, 10).await;
        assert_eq!(purged.unwrap(), 2);
        assert_eq!(it.number("select count(*) from orders_outbox").await, 0);
        assert_eq!(it.state("a").await.status, 0);
    }

    async fn a_purge_by_age_alone_deletes_rows_of_any_status(it) {
        it.insert(&events("abcd")).await; // created at 0, 1, 2, 3
        it.settle("a", 1_000, Done).await;
        it.settle("b", 1_000, retry(1, "again")).await;
        assert_eq!(purge_what(&it, Purgeable::Any, 63, 2).await, 2);
        assert_eq!(purge_what(&it, Purgeable::Any, 63, 2).await, 1);
        assert_eq!(left(&it).await, "d");
    }
}

backstop_testkit::suite! {
    over { mysql: migrated::<sqlx::MySql> }

    async fn a_purge_goes_on_where_others_took_what_it_had_chosen(it) {
        let replayed = "update outbox_event set status = 0, done_at = null where event_id in ('a', 'b')";
        let deleted = "delete from outbox_event where event_id in ('a', 'b', 'c')";
        for (meanwhile, rest) in [(replayed, "abfg"), (deleted, "g")] {
            it.run("delete from outbox_event").await;
            it.insert(&events("abcdefg")).await;
            for id in ["a", "b", "c", "d", "e", "f", "g"] {
                it.settle(id, 10, dead("given up")).await;
            }
            let inner = it.connections.connection().await.unwrap();
            let mut connection = Meddled { inner, it: &it, meanwhile: Some(meanwhile) };
            let purged = it.store.purge(&mut connection, Purgeable::Ended, at(1_000), MINUTE, 3).await.unwrap();
            assert_eq!((purged, left(&it).await.as_str()), (3, rest), "as many as asked for, since there are more");
        }
    }

    /// Such a transaction sees the rows as they were when it began to read.
    async fn a_purge_in_a_callers_transaction_ends_although_others_have_taken_the_rows_that_it_sees(it) {
        it.insert(&events("abc")).await;
        for id in ["a", "b", "c"] {
            it.settle(id, 10, Done).await;
        }
        let mut transaction = it.connections.transaction("BEGIN").await.unwrap();
        transaction.fetch(&it.statement("select event_id from outbox_event"), &[Column::Text]).await.unwrap();
        it.run("delete from outbox_event").await;
        let purge = it.store.purge(&mut transaction, Purgeable::Ended, at(1_000), MINUTE, 2);
        assert_eq!(timeout(MINUTE / 6, purge).await.expect("it ends").unwrap(), 0);
    }
}
