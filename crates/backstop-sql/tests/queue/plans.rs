//! The plans of what workers ask again and again, among rows of which few are wanted: by an index, and never by a scan.

use backstop_sql::connection::Column;
use backstop_sql::statement::Statement;
use backstop_sql::store::DatabaseKind;

use crate::harness::*;

/// Many events of a route that may be held, some that wait for their time, some in the hands of workers, and a long log.
async fn fill(it: &Fresh<impl Database>) {
    let numbers = |last: i64| match it.kind {
        DatabaseKind::Postgres => format!("(select generate_series(1, {last}) as n) as numbers"),
        DatabaseKind::Mysql | DatabaseKind::Sqlite => format!(
            "(with recursive counted as (select 1 as n union all select n + 1 from counted where n < {last}) \
             select n from counted) as numbers"
        ),
    };
    let mut connection = it.connections.connection().await.unwrap();
    if it.kind == DatabaseKind::Mysql {
        let deep =
            "set session /*M! max_recursive_iterations */ /*!80000 cte_max_recursion_depth */ = 10000000";
        connection.execute(&it.statement(deep)).await.unwrap();
    }
    let (past, ahead) = (it.sql_moment(0), it.sql_moment(1_000_000));
    let columns =
        "event, event_type, status, attempts, created_at, updated_at, processing_started_at, available_at";
    for (event_type, status, started, available, last) in [
        ("'Held'", "PENDING", "null", "null", 60_000),
        ("'Later'", "PENDING", "null", ahead.as_str(), 20_000),
        ("'Held'", "PROCESSING", past.as_str(), "null", 500),
        ("'Rare'", "PENDING", "null", "null", 20),
        ("null", "PENDING", "null", "null", 20),
    ] {
        let text = format!(
            "insert into events ({columns}) select '{{}}', {event_type}, '{status}', 0, {past}, {past}, {started}, \
             {available} from {}",
            numbers(last)
        );
        connection.execute(&it.statement(&text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let text = format!(
        "insert into event_log (id, payload, status, attempts, created_at, updated_at) \
         select n, '{{}}', 'COMPLETED', 1, {past}, {ahead} from {}",
        numbers(30_000)
    );
    connection.execute(&it.statement(&text)).await.unwrap();
    for table in ["events", "event_log"] {
        let analyze = match it.kind {
            DatabaseKind::Mysql => format!("analyze table {table}"),
            DatabaseKind::Postgres | DatabaseKind::Sqlite => format!("analyze {table}"),
        };
        connection.execute(&it.statement(&analyze)).await.unwrap();
    }
}

async fn plan(it: &Fresh<impl Database>, mut statement: Statement) -> String {
    let (prefix, kinds, column): (_, &[Column], _) = match it.kind {
        DatabaseKind::Postgres => ("explain ", &[Column::Text], 0),
        DatabaseKind::Mysql => ("explain format=json ", &[Column::Text], 0),
        DatabaseKind::Sqlite => {
            ("explain query plan ", &[Column::Int, Column::Int, Column::Int, Column::Text], 3)
        }
    };
    statement.prefix(prefix);
    let lines = it.read(&statement, kinds).await;
    lines.iter().filter_map(|line| as_text(&line[column])).collect::<Vec<_>>().join("\n")
}

database_suite! {
    over empty

    async fn everything_that_workers_ask_again_and_again_is_answered_by_an_index(it) {
        let queue = it.started().await;
        fill(&it).await;
        for (what, index, statement) in queue.operations().planned(at(600), 500) {
            let text = statement.text().to_owned();
            let plan = plan(&it, statement).await;
            let table = if index == "ended" { "event_log" } else { "events" };
            // One index of MySQL has both kinds of waiting rows.
            let index = if it.kind == DatabaseKind::Mysql && index == "later" { "ready" } else { index };
            let uses = plan.contains(&format!("idx_{table}_{index}"));
            // The ends of an index, which MySQL reads while it plans.
            let is_known = plan.to_lowercase().contains("select tables optimized away");
            assert!(uses || is_known, "{what} does not use {index}: {text}\n{plan}");
            let forbidden: &[&str] = match it.kind {
                DatabaseKind::Postgres => &["Seq Scan on events", "Seq Scan on event_log"],
                DatabaseKind::Mysql => &["\"ALL\""],
                DatabaseKind::Sqlite => &["SCAN events\n", "SCAN event_log\n"],
            };
            for step in forbidden {
                assert!(!format!("{plan}\n").contains(step), "{what} scans the table: {text}\n{plan}");
            }
            let sorts = if it.kind == DatabaseKind::Postgres { plan.contains("Sort") } else { plan.contains("TEMP B-TREE") };
            assert!(!sorts || what == "taking over", "{what} sorts: {text}\n{plan}");
        }
    }
}
