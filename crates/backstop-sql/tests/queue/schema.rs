//! The tables: columns, names, indexes and defaults; tables of others that are adopted, and those that are refused.

use backstop_core::{Clock as _, SystemClock};
use backstop_sql::store::DatabaseKind;
use backstop_sql::{Error, Queue};
use sqlx::{MySql, Postgres};

use crate::harness::*;

/// What an older version of the original made: no `processing_started_at`, and none of our columns.
fn of_the_original(kind: DatabaseKind) -> [String; 2] {
    let (id, moment) = match kind {
        DatabaseKind::Postgres => ("bigserial primary key", "timestamp"),
        DatabaseKind::Mysql => ("bigint auto_increment primary key", "datetime(6)"),
        DatabaseKind::Sqlite => ("integer primary key autoincrement", "text"),
    };
    let (json, key) = match kind {
        DatabaseKind::Postgres => ("jsonb", "bigint primary key"),
        DatabaseKind::Mysql => ("json", "bigint primary key"),
        DatabaseKind::Sqlite => ("text", "integer primary key"),
    };
    let rest = format!(
        "status varchar(20) not null, attempts int not null, created_at {moment} not null, updated_at {moment} not null"
    );
    [
        format!("create table events (id {id}, event {json} not null, {rest})"),
        format!("create table event_log (id {key}, payload text not null, {rest})"),
    ]
}

database_suite! {
    over empty

    /// Rules: Q-010, Q-012, Q-013, Q-014, Q-015, Q-020, Q-024, Q-025, Q-026, Q-027.
    async fn rows_that_others_insert_need_no_more_than_the_event(it) {
        let queue = it.started().await;
        it.run(r#"insert into events (event) values ('{"type":"Numbered","data":{"n":1}}')"#).await;
        let id = it.number("select id from events").await;
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts, row.event_type), ("PENDING", 0, None));
        let age = SystemClock.now() - row.created_at;
        assert!(age.num_seconds().abs() < 60, "in UTC: {age}");
        assert_eq!(row.created_at, row.updated_at);
        for status in ["PENDING", "PROCESSING", "COMPLETED", "FAILED"] {
            it.set_row(id, &format!("status = '{status}'")).await;
        }
        it.try_run(&format!("update events set status = 'DONE' where id = {id}")).await.unwrap_err();
        it.set_row(id, "status = 'PENDING'").await;
        assert_eq!(queue.poll().await.unwrap().unwrap().event().event_type(), "Numbered");
    }

    /// Rules: Q-030, Q-031, Q-087.
    async fn the_indexes_are_made_by_the_migration_and_running_it_again_changes_nothing(it) {
        let first = it.started().await;
        let names = match it.kind {
            DatabaseKind::Postgres => "select indexname::text from pg_indexes where tablename in ('events', 'event_log') and schemaname = current_schema() order by 1",
            DatabaseKind::Mysql => "select distinct index_name from information_schema.statistics where table_schema = database() and table_name in ('events', 'event_log') order by 1",
            DatabaseKind::Sqlite => "select name from sqlite_master where type = 'index' and tbl_name in ('events', 'event_log') order by 1",
        };
        let indexes = it.texts(names).await;
        for name in ["idx_events_ready", "idx_events_types", "idx_events_processing", "idx_event_log_ended", "idx_event_log_failed"] {
            assert!(indexes.iter().any(|index| index == name), "{name}: {indexes:?}");
        }
        first.publish(event(1)).await.unwrap();
        let second = it.started().await;
        assert_eq!(it.texts(names).await, indexes);
        assert!(second.poll().await.unwrap().is_some());
    }

    async fn tables_of_the_original_are_adopted_with_their_rows(it) {
        for table in of_the_original(it.kind) {
            it.run(&table).await;
        }
        let now = it.sql_moment(0);
        it.run(&format!(r#"insert into events (event, status, attempts, created_at, updated_at) values ('{{"type":"Numbered","id":3}}', 'PENDING', 0, {now}, {now})"#)).await;
        it.run(&format!(r#"insert into events (event, status, attempts, created_at, updated_at) values ('{{"type":"Numbered","id":4}}', 'PROCESSING', 1, {now}, {now})"#)).await;
        let queue = it.started().await;
        let (first, second) = (queue.poll_at(at(400)).await.unwrap().unwrap(), queue.poll_at(at(400)).await.unwrap().unwrap());
        assert_eq!((first.attempts(), second.attempts()), (1, 2), "the second was abandoned");
        assert_eq!(first.event().event_type(), "Numbered");
        queue.finalize(&first, true).await.unwrap();
        queue.finalize(&second, false).await.unwrap();
        queue.publish(event(5)).await.unwrap();
        let third = queue.poll().await.unwrap().unwrap();
        assert_eq!(third.event().payload::<u32>().unwrap(), 5);
        queue.finalize(&third, true).await.unwrap();
        assert_eq!(it.rows().await, (0, 3));
    }

    async fn tables_that_are_missing_are_named_where_they_may_not_be_made(it) {
        let refused = it.queue().migrate(false).start().await.unwrap_err();
        assert!(matches!(&refused, Error::NoTable { table } if table == "events"), "{refused}");
    }

    async fn a_table_of_somebody_else_is_not_touched(it) {
        it.run("create table events (happening varchar(20))").await;
        it.queue().start().await.unwrap_err();
        it.run("insert into events (happening) values ('a concert')").await;
        assert_eq!(it.texts("select happening from events").await, ["a concert"]);
    }

    async fn queues_of_other_tables_share_a_database(it) {
        let one = it.started().await;
        let two = it.queue().table("jobs").log_table("jobs_done").start().await.unwrap();
        one.publish(event(1)).await.unwrap();
        two.publish(event(2)).await.unwrap();
        let claimed = two.poll().await.unwrap().unwrap();
        assert_eq!(claimed.event().payload::<u32>().unwrap(), 2);
        two.finalize(&claimed, true).await.unwrap();
        assert_eq!(it.number("select count(*) from jobs_done").await, 1);
        assert_eq!(it.rows().await, (1, 0));
        let same = it.queue().table("jobs").log_table("jobs").start().await.unwrap_err();
        assert!(same.to_string().contains("log-table must be another table"), "{same}");
    }

    /// A person at the prompt works with the queries that the document prints.
    /// Rules: Q-090, Q-091, Q-092, Q-093.
    async fn the_printed_queries_find_what_is_stuck_and_set_it_back(it) {
        let queue = it.started().await;
        let id = queue.publish(event(1)).await.unwrap();
        queue.poll_at(at(0)).await.unwrap().unwrap();
        let then = it.sql_moment(1);
        for column in ["updated_at", "processing_started_at"] {
            let found = it.number(&format!("select id from events where status='PROCESSING' and {column} < {then}")).await;
            assert_eq!(found, id);
        }
        assert!(queue.poll_at(at(10)).await.unwrap().is_none());
        it.run(&format!("update events set status='PENDING' where id = {id}")).await;
        assert_eq!(queue.poll_at(at(10)).await.unwrap().unwrap().id(), id, "at once");
    }
}

async fn refused<DB: Database>(column: &str) {
    let Some(it) = DB::make().await else { return };
    let [events, log] = of_the_original(it.kind);
    it.run(&events.replace("status varchar(20) not null", column)).await;
    it.run(&log).await;
    let error = Queue::new(it.pool.clone()).start().await.unwrap_err();
    assert!(matches!(&error, Error::StatusColumn { table, .. } if table == "events"), "{column}: {error}");
    assert!(error.to_string().contains("make it text"), "{error}");
}

#[tokio::test]
async fn a_status_that_is_a_number_or_another_enum_is_refused_on_mysql() {
    refused::<MySql>("status int not null").await;
    refused::<MySql>("status enum('NEW', 'DONE') not null").await;
}

#[tokio::test]
async fn a_status_that_is_a_number_is_refused_on_postgres() {
    refused::<Postgres>("status int not null").await;
}

#[tokio::test]
async fn an_enum_with_our_names_is_as_good_as_text() {
    let Some(it) = <Postgres as Database>::make().await else { return };
    it.run("create type event_status as enum ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')").await;
    for table in of_the_original(it.kind) {
        it.run(&table.replace("status varchar(20)", "status event_status")).await;
    }
    let queue = it.started().await;
    let id = queue.publish(event(1)).await.unwrap();
    let claimed = queue.poll().await.unwrap().unwrap();
    queue.finalize(&claimed, false).await.unwrap();
    assert_eq!(queue.operations().requeue(&[id], false).await.unwrap().failed, 1);
    let claimed = queue.poll().await.unwrap().unwrap();
    queue.finalize(&claimed, true).await.unwrap();
    assert_eq!(it.rows().await, (0, 1));

    let Some(it) = <Postgres as Database>::make().await else { return };
    it.run("create type event_status as enum ('NEW', 'DONE')").await;
    for table in of_the_original(it.kind) {
        it.run(&table.replace("status varchar(20)", "status event_status")).await;
    }
    let refused = it.queue().start().await.unwrap_err();
    assert!(refused.to_string().contains("PENDING"), "{refused}");
}
