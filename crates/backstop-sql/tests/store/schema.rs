//! The table: its columns, its indexes, its status values, and the statements that a database calls its own.

use std::time::Duration;

use backstop_sql::store::{DatabaseKind, Purgeable, Status, Store};

use crate::harness::*;

/// Each column with its type, whether it may be NULL, and its default, in the database's own words.
async fn columns(it: &Fresh<impl Database>, table: &str) -> Vec<String> {
    let query = match it.kind {
        DatabaseKind::Postgres => {
            "select column_name || ' ' || udt_name
               || coalesce('(' || coalesce(character_maximum_length, datetime_precision) || ')', '')
               || case is_nullable when 'NO' then ' not null' else '' end || coalesce(' default ' || column_default, '')
               || coalesce(' ' || collation_name, '')
             from information_schema.columns where table_name = 'TABLE' order by ordinal_position"
        }
        DatabaseKind::Mysql => {
            "select concat(column_name, ' ', column_type, if(is_nullable = 'NO', ' not null', ''),
               coalesce(concat(' default ', nullif(column_default, 'NULL')), ''), coalesce(concat(' ', collation_name), ''))
             from information_schema.columns where table_schema = database() and table_name = 'TABLE'
             order by ordinal_position"
        }
        DatabaseKind::Sqlite => {
            "select lower(name || ' ' || type || case \"notnull\" when 1 then ' not null' else '' end
               || coalesce(' default ' || dflt_value, '')) from pragma_table_info('TABLE') order by cid"
        }
    };
    let columns = it.texts(&query.replace("TABLE", table)).await;
    // MySQL 8 gives no width for numbers and has a type of its own for JSON, which MariaDB lacks.
    let plain = |column: &String| {
        let column = column.replace("int(4)", "int").replace("int(11)", "int").replace("int(20)", "int");
        column.replace(" json", " longtext utf8mb4_bin")
    };
    columns.iter().map(if it.kind == DatabaseKind::Mysql { plain } else { String::clone }).collect()
}

/// The columns of an index, in order.
async fn index(it: &Fresh<impl Database>, table: &str, index: &str) -> String {
    let query = match it.kind {
        DatabaseKind::Postgres => {
            "select string_agg(attname::text, ', ' order by attnum) from pg_attribute where attrelid = to_regclass('INDEX')"
        }
        DatabaseKind::Mysql => {
            "select group_concat(column_name order by seq_in_index separator ', ') from information_schema.statistics
             where table_schema = database() and table_name = 'TABLE' and index_name = 'INDEX'"
        }
        DatabaseKind::Sqlite => "select group_concat(name, ', ') from pragma_index_info('INDEX')",
    };
    it.texts(&query.replace("TABLE", table).replace("INDEX", index)).await.concat()
}

fn expected(kind: DatabaseKind) -> &'static [&'static str] {
    match kind {
        DatabaseKind::Postgres => &[
            "event_id varchar(36) not null C",
            "event_type varchar(128) not null C",
            "aggregate_type varchar(64) C",
            "aggregate_id varchar(128) C",
            "tenant_id varchar(64) C",
            "payload json not null",
            "headers json",
            "status int2 not null",
            "attempts int4 not null default 0",
            "available_at timestamptz(6) not null",
            "created_at timestamptz(6) not null",
            "done_at timestamptz(6)",
            "last_error text",
            "locked_by varchar(128) C",
            "locked_at timestamptz(6)",
            "claim_seq int8 not null default 0",
        ],
        DatabaseKind::Mysql => &[
            "event_id varchar(36) not null utf8mb4_bin",
            "event_type varchar(128) not null utf8mb4_bin",
            "aggregate_type varchar(64) utf8mb4_bin",
            "aggregate_id varchar(128) utf8mb4_bin",
            "tenant_id varchar(64) utf8mb4_bin",
            "payload longtext not null utf8mb4_bin",
            "headers longtext utf8mb4_bin",
            "status tinyint not null",
            "attempts int not null default 0",
            "available_at datetime(6) not null",
            "created_at datetime(6) not null",
            "done_at datetime(6)",
            "last_error text utf8mb4_bin",
            "locked_by varchar(128) utf8mb4_bin",
            "locked_at datetime(6)",
            "claim_seq bigint not null default 0",
        ],
        DatabaseKind::Sqlite => &[
            "event_id varchar(36) not null",
            "event_type varchar(128) not null",
            "aggregate_type varchar(64)",
            "aggregate_id varchar(128)",
            "tenant_id varchar(64)",
            "payload text not null",
            "headers text",
            "status tinyint not null",
            "attempts int not null default 0",
            "available_at text not null",
            "created_at text not null",
            "done_at text",
            "last_error text",
            "locked_by varchar(128)",
            "locked_at text",
            "claim_seq bigint not null default 0",
        ],
    }
}

database_suite! {
    over migrated

    /// Rules: O-109, O-110, O-111, O-112, O-113, O-114, O-115, O-116, O-117, O-118, O-119, O-120, O-121, O-122, O-123,
    /// O-124, O-125, O-126.
    async fn the_table_has_the_columns_that_others_know(it) {
        assert_eq!(columns(&it, "outbox_event").await, expected(it.kind));
    }

    /// Rules: O-110.
    async fn the_event_id_is_the_primary_key(it) {
        let key = match it.kind {
            DatabaseKind::Sqlite => "select name from pragma_table_info('outbox_event') where pk > 0",
            DatabaseKind::Postgres => {
                "select column_name::text from information_schema.key_column_usage where constraint_name = 'outbox_event_pkey'"
            }
            DatabaseKind::Mysql => {
                "select column_name from information_schema.key_column_usage
                 where table_schema = database() and table_name = 'outbox_event' and constraint_name = 'PRIMARY'"
            }
        };
        assert_eq!(it.texts(key).await, ["event_id"]);
    }

    /// Rules: O-133, O-462, O-464.
    async fn the_index_has_its_name_and_its_columns_in_order_on_a_table_of_any_name(it) {
        let columns = "status, available_at, created_at";
        assert_eq!(index(&it, "outbox_event", "idx_status_available").await, columns);
        it.store_on("orders_outbox").migrate().await.unwrap();
        assert_eq!(index(&it, "orders_outbox", "idx_orders_outbox_status_available").await, columns);
        assert_eq!(self::columns(&it, "orders_outbox").await, expected(it.kind));
    }

    async fn tables_with_the_longest_names_have_all_their_indexes(it) {
        for last in ["1", "2"] {
            let table = format!("{}{last}", "a".repeat(62));
            it.store_on(&table).migrate().await.unwrap();
            let count = |table: &str| {
                let count = match it.kind {
                    DatabaseKind::Sqlite => {
                        "select count(*) from sqlite_master where type = 'index' and tbl_name = 'TABLE'"
                    }
                    DatabaseKind::Postgres => "select count(*) from pg_indexes where tablename = 'TABLE'",
                    DatabaseKind::Mysql => {
                        "select count(distinct index_name) from information_schema.statistics
                         where table_schema = database() and table_name = 'TABLE'"
                    }
                };
                count.replace("TABLE", table)
            };
            let usual = it.number(&count("outbox_event")).await;
            assert_eq!(it.number(&count(&table)).await, usual);
            it.store_on(&table).check().await.unwrap();
        }
    }

    /// Rules: O-041, O-134, O-135, O-136, O-137.
    async fn the_status_values_are_those_that_others_know(it) {
        let values = [Status::New, Status::Done, Status::Retry, Status::Dead].map(|status| status as i64);
        assert_eq!(values, [0, 1, 2, 3]);
        it.insert(&events("abcd")).await;
        it.settle("b", 10, backstop_core::delivery::Settlement::Done).await;
        it.settle("c", 10, retry(1, "x")).await;
        it.settle("d", 10, dead("x")).await;
        let mut found = Vec::new();
        for id in ["a", "b", "c", "d"] {
            found.push(it.state(id).await.status);
        }
        assert_eq!(found, values);
    }

    /// Rules: O-046, O-048.
    async fn each_database_claims_with_its_best_statement(it) {
        let text = it.store.claim_statement("node-1", MINUTE, due(0, 10)).text().to_owned();
        match it.kind {
            DatabaseKind::Postgres => assert!(text.contains("for update skip locked), lazy") && text.contains("returning")),
            DatabaseKind::Mysql => assert_eq!(text.matches("for update skip locked)").count(), 2, "{text}"),
            DatabaseKind::Sqlite => assert!(text.starts_with("update ") && text.contains("returning"), "{text}"),
        }
    }

    /// Rules: O-051, O-053, O-054.
    async fn each_database_purges_with_its_own_delete(it) {
        let statements = it.store.purge_statements(Purgeable::Ended, at(0), Duration::ZERO, 10);
        let [statement] = statements.as_slice() else { panic!("{statements:?}") };
        let text = statement.text();
        let begins = match it.kind {
            DatabaseKind::Postgres => "with chosen as materialized (select tableoid",
            DatabaseKind::Sqlite => "delete from outbox_event where event_id in (select event_id from outbox_event",
            DatabaseKind::Mysql => "select event_id from outbox_event",
        };
        assert!(text.starts_with(begins) && text.contains("order by created_at, event_id limit"), "{text}");
        assert_eq!(text.contains("for update skip locked) delete from"), it.kind == DatabaseKind::Postgres);
    }

    /// Rules: O-266.
    async fn no_value_becomes_part_of_a_statements_text(it) {
        let one = it.store.claim_statement("node-1", MINUTE, due(7, 11));
        let two = it.store.claim_statement("'; drop table", 2 * MINUTE, due(8, 12));
        assert_eq!(one.text(), two.text());
        assert_ne!(one.values(), two.values());
    }
}
