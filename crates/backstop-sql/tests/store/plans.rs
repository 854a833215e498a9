//! The plans of poll, claim and purge on a million rows: an index in the order that is wanted, and no sort.

use std::time::Duration;

use backstop_sql::connection::Column;
use backstop_sql::statement::Statement;
use backstop_sql::store::{
    After, At, DatabaseKind, DeadFilter, Due, Order, Pair, Place, Purgeable, Status, Store,
};

use crate::harness::*;

/// Numbers from 1 on, as a table.
fn numbers(kind: DatabaseKind, last: i64) -> String {
    match kind {
        DatabaseKind::Postgres => format!("(select generate_series(1, {last}) as n) as numbers"),
        DatabaseKind::Mysql | DatabaseKind::Sqlite => format!(
            "(with recursive counted as (select 1 as n union all select n + 1 from counted where n < {last}) \
             select n from counted) as numbers"
        ),
    }
}

/// The moment so many seconds into 2020.
fn seconds_in(kind: DatabaseKind, seconds: &str) -> String {
    match kind {
        DatabaseKind::Postgres => {
            format!("timestamptz '2020-01-01 00:00:00+00' + ({seconds}) * interval '1 second'")
        }
        DatabaseKind::Mysql => format!("timestamp('2020-01-01 00:00:00') + interval ({seconds}) second"),
        DatabaseKind::Sqlite => {
            format!("strftime('%Y-%m-%d %H:%M:%f', '2020-01-01', '+' || ({seconds}) || ' seconds') || '000'")
        }
    }
}

/// An id for each number.
fn padded(kind: DatabaseKind, prefix: &str) -> String {
    match kind {
        DatabaseKind::Mysql => format!("concat('{prefix}', lpad(n, 8, '0'))"),
        DatabaseKind::Postgres => format!("'{prefix}' || lpad(n::text, 8, '0')"),
        DatabaseKind::Sqlite => format!("'{prefix}' || substr('0000000' || n, -8)"),
    }
}

/// Runs statements on a connection that counts far, and has the database look at its rows.
async fn fill_by(it: &Fresh<impl Database>, inserts: impl IntoIterator<Item = String>) {
    let mut connection = it.connections.connection().await.unwrap();
    match it.kind {
        DatabaseKind::Mysql => {
            // Each server passes over the other's name.
            let deep =
                "set session /*M! max_recursive_iterations */ /*!80000 cte_max_recursion_depth */ = 10000000";
            connection.execute(&it.statement(deep)).await.unwrap();
        }
        DatabaseKind::Sqlite => {
            connection.execute(&it.statement("pragma cache_size = -200000")).await.unwrap();
        }
        DatabaseKind::Postgres => {}
    }
    for text in inserts {
        connection.execute(&it.statement(&text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let analyze = match it.kind {
        DatabaseKind::Mysql => "analyze table outbox_event",
        DatabaseKind::Postgres | DatabaseKind::Sqlite => "analyze outbox_event",
    };
    connection.execute(&it.statement(analyze)).await.unwrap();
}

/// 900,000 rows that are done, 300,000 that are scheduled ahead, 20,000 that are due, half of them retrying,
/// and 1,000 that are dead.
async fn fill(it: &Fresh<impl Database>) {
    fill_with(it, [900_000, 300_000, 20_000, 1_000]).await;
}

/// The same with so many of each.
async fn fill_with(it: &Fresh<impl Database>, [done, ahead, due, dead]: [i64; 4]) {
    let kinds = [
        ("done", done, "1", "n % 1000", Some("1000 + n % 1000")),
        ("ahead", ahead, "0", "1000000 + n", None),
        ("due", due, "case n % 2 when 0 then 0 else 2 end", "2000 + n % 100", None),
        ("dead", dead, "3", "n", Some("2000")),
    ];
    let inserts = kinds.map(|(prefix, last, status, available, done)| {
        format!(
            "insert into outbox_event (event_id, event_type, payload, status, available_at, created_at, done_at) \
             select {}, 'OrderPlaced', '{{}}', {status}, {}, {}, {} from {}",
            padded(it.kind, prefix),
            seconds_in(it.kind, available),
            seconds_in(it.kind, "(n - n % 1000) / 1000"),
            done.map_or("null".to_owned(), |done| seconds_in(it.kind, done)),
            numbers(it.kind, last),
        )
    });
    fill_by(it, inserts).await;
}

/// 40,000 due rows of one pair of types, and behind them 20,000 of another.
async fn fill_two_pairs(it: &Fresh<impl Database>) {
    let pairs = [("Order", "OrderPlaced", 40_000, "n"), ("Invoice", "InvoiceSent", 20_000, "50000 + n")];
    let inserts = pairs.map(|(aggregate, event, last, available)| {
        format!(
            "insert into outbox_event (event_id, event_type, aggregate_type, payload, status, available_at, created_at) \
             select {}, '{event}', '{aggregate}', '{{}}', 0, {available}, {available} from {}",
            padded(it.kind, aggregate),
            numbers(it.kind, last),
            available = seconds_in(it.kind, available),
        )
    });
    fill_by(it, inserts).await;
}

/// The plan of a statement, with the values it would run with.
async fn plan(it: &Fresh<impl Database>, mut statement: Statement) -> String {
    match it.kind {
        DatabaseKind::Postgres => {
            statement.prefix("explain ");
            let lines = it.read(&statement, &[Column::Text]).await;
            lines.iter().filter_map(|line| as_text(&line[0])).collect::<Vec<_>>().join("\n")
        }
        DatabaseKind::Mysql => {
            statement.prefix("explain format=json ");
            as_text(&it.read(&statement, &[Column::Text]).await[0][0]).unwrap()
        }
        DatabaseKind::Sqlite => {
            statement.prefix("explain query plan ");
            let steps = it.read(&statement, &[Column::Int, Column::Int, Column::Int, Column::Text]).await;
            steps.iter().filter_map(|step| as_text(&step[3])).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Fails unless the plan reads the index and nothing but indexes, in their order.
fn check(kind: DatabaseKind, what: &str, index: &str, plan: &str) {
    let (uses, forbidden): (String, &[&str]) = match kind {
        DatabaseKind::Postgres => (format!("using {index} on"), &["Seq Scan", "Sort", "Bitmap"]),
        DatabaseKind::Mysql => {
            (format!("\"key\": \"{index}\""), &["\"filesort\": {", "\"using_filesort\": true", "\"ALL\""])
        }
        DatabaseKind::Sqlite => (format!("INDEX {index} "), &["TEMP B-TREE", "SCAN outbox_event\n"]),
    };
    let seen = format!("{plan}\n");
    assert!(
        seen.contains(&uses) || seen.contains(&format!("INDEX {index}\n")),
        "{what} does not use {index}:\n{plan}"
    );
    for step in forbidden {
        assert!(!seen.contains(step), "{what} has {step:?} in its plan:\n{plan}");
    }
}

/// The same of a count, which also goes through what it has read.
fn check_count(kind: DatabaseKind, index: &str, plan: &str) {
    let read = match kind {
        DatabaseKind::Mysql => plan.find("\"table_name\": \"outbox_event\"").map_or("", |at| &plan[at..]),
        DatabaseKind::Postgres | DatabaseKind::Sqlite => plan,
    };
    check(kind, "a count of the oldest dead", index, read);
}

/// How many rows a sample in these tests counts.
const SAMPLED: u32 = 10_000;

/// Fails unless the rows of a sample are read by an index, in its order, up to where it ends.
fn check_sample(kind: DatabaseKind, plan: &str) {
    let inner = match kind {
        // Right below the limit: what it does not ask for is not read.
        DatabaseKind::Postgres => plan.split("Limit").nth(1).and_then(|below| below.lines().nth(1)),
        DatabaseKind::Mysql => plan.find("\"table_name\": \"outbox_event\"").map(|at| &plan[at..]),
        DatabaseKind::Sqlite => plan.lines().find(|line| line.contains(" outbox_event ")),
    };
    let inner = inner.unwrap_or_default();
    if kind == DatabaseKind::Postgres && inner.contains("Sort") {
        return check_that_all_are_wanted(inner, plan);
    }
    check(kind, "a sample", "idx_status_available", inner);
    assert!(!plan.contains("FOR ORDER BY"), "{plan}");
}

/// Where a status has hardly more rows than a sample counts, PostgreSQL may find them all by the index and sort them.
fn check_that_all_are_wanted(sort: &str, plan: &str) {
    let rows = sort.split("rows=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(rows.is_some_and(|rows| rows <= SAMPLED * 2), "{plan}");
    assert!(plan.contains("Bitmap Index Scan on idx_") && !plan.contains("Seq Scan"), "{plan}");
}

/// Fails unless the index is entered at the place, in place of being filtered from its beginning.
fn check_that_it_begins_there(kind: DatabaseKind, plan: &str) {
    let begins = match kind {
        DatabaseKind::Postgres => plan.lines().any(|line| {
            line.contains("Index Cond:") && line.contains("ROW(available_at, created_at, (event_id)::text) >")
        }),
        DatabaseKind::Sqlite => plan.contains("(available_at,created_at,event_id)>(?,?,?)"),
        // It only tells that it reads a range of the key's second part.
        DatabaseKind::Mysql => plan.contains("\"range\""),
    };
    assert!(begins, "{plan}");
}

/// Fails unless the list of the dead is entered at the place where it goes on.
fn check_that_it_begins_behind(kind: DatabaseKind, plan: &str) {
    let begins = match kind {
        DatabaseKind::Postgres => {
            plan.lines().any(|line| line.contains("Index Cond:") && line.contains("created_at >="))
        }
        DatabaseKind::Sqlite => plan.contains("(created_at>?)"),
        DatabaseKind::Mysql => plan.contains("\"range\""),
    };
    assert!(begins, "{plan}");
}

/// Fails unless one row is reached by its key.
fn check_that_it_reads_one(kind: DatabaseKind, plan: &str) {
    let by_key = match kind {
        DatabaseKind::Postgres => plan.contains("Index Scan using outbox_event_pkey"),
        DatabaseKind::Sqlite => plan.contains("(event_id=?)") && !plan.contains("SCAN"),
        DatabaseKind::Mysql => plan.contains("\"key\": \"PRIMARY\"") && plan.contains("\"const\""),
    };
    assert!(by_key, "{plan}");
}

/// Fails unless rows are reached by their keys, and by nothing else.
fn check_that_it_reads_by_key(kind: DatabaseKind, plan: &str) {
    let by_key = match kind {
        DatabaseKind::Postgres => plan.contains("using outbox_event_pkey") && !plan.contains("idx_"),
        DatabaseKind::Sqlite => plan.contains("(event_id=?)") && !plan.contains("SCAN"),
        DatabaseKind::Mysql => plan.contains("\"key\": \"PRIMARY\"") && plan.contains("\"range\""),
    };
    assert!(by_key, "{plan}");
}

database_suite! {
    over migrated

    /// A third of all rows seems to be of this pair wherever one looks, so that any index might do; and those of the held
    /// route are all in front.
    async fn a_pair_is_read_by_its_types_however_large_its_share_is(it) {
        fill_two_pairs(&it).await;
        let pair = Pair { aggregate_type: Some("Invoice".to_owned()), event_type: "InvoiceSent".to_owned() };
        let behind = Place { due_at: moment(55_000), created_at: moment(55_000), id: "Invoice".to_owned() };
        for (clock, after) in [(at(200_000), None), (at(200_000), Some(&behind)), (At::Database, None)] {
            let due = Due { at: clock, after, pair: Some(&pair), ..due(200_000, 500) };
            let poll = plan(&it, it.store.poll_statement(due)).await;
            check(it.kind, "poll of a pair", "idx_pair", &poll);
            let claim = plan(&it, it.store.claim_statement("node-1", MINUTE, due)).await;
            check(it.kind, "claim of a pair", "idx_pair", &claim);
            let rows = it.store.poll(due).await.unwrap();
            assert!(rows.len() == 500 && rows.iter().all(|row| row.id.starts_with("Invoice")), "{}", rows.len());
        }
        let until = |after| Due { after, pair: Some(&pair), ..due(60_000, 1_000_000) };
        assert_eq!(it.store.poll(until(None)).await.unwrap().len(), 10_000, "those that are due");
        assert_eq!(it.store.poll(until(Some(&behind))).await.unwrap().len(), 5_001, "those behind the place");
    }

    /// Rules: O-133, O-263.
    async fn poll_claim_purge_and_the_dead_read_an_index_in_order_among_a_million_rows(it) {
        fill(&it).await;
        let mysql = it.kind == DatabaseKind::Mysql;
        for (clock, skip_recent) in [
            (at(5_000), Duration::ZERO),
            (at(5_000), MINUTE),
            (At::Database, Duration::ZERO),
            (At::Database, MINUTE),
        ] {
            for (order, index) in [
                (Order::Due, if mysql { "idx_status_available" } else { "idx_due" }),
                (Order::Created, if mysql { "idx_status_created" } else { "idx_due_created" }),
            ] {
                let due = Due { at: clock, order, skip_recent, ..due(5_000, 500) };
                let poll = plan(&it, it.store.poll_statement(due)).await;
                check(it.kind, &format!("poll by {order:?}"), index, &poll);
                let claim = plan(&it, it.store.claim_statement("node-1", MINUTE, due)).await;
                check(it.kind, &format!("claim by {order:?}"), index, &claim);
            }
        }
        let behind = Place { due_at: moment(2_500), created_at: moment(2_500), id: "due".to_owned() };
        let due = Due { after: Some(&behind), ..due(5_000, 500) };
        let index = if mysql { "idx_status_available" } else { "idx_due" };
        let poll = plan(&it, it.store.poll_statement(due)).await;
        check(it.kind, "poll behind a place", index, &poll);
        check_that_it_begins_there(it.kind, &poll);
        let claim = plan(&it, it.store.claim_statement("node-1", MINUTE, due)).await;
        check(it.kind, "claim behind a place", index, &claim);

        // What is held is all of another type, and there is much of it.
        let pair = Pair { aggregate_type: None, event_type: "InvoiceSent".to_owned() };
        for after in [None, Some(&behind)] {
            let due = Due { after, pair: Some(&pair), ..due };
            let poll = plan(&it, it.store.poll_statement(due)).await;
            check(it.kind, "poll of a pair", "idx_pair", &poll);
            let claim = plan(&it, it.store.claim_statement("node-1", MINUTE, due)).await;
            check(it.kind, "claim of a pair", "idx_pair", &claim);
        }
        let pairs = it.store.pending_pairs().await.unwrap().unwrap();
        assert_eq!(pairs, [Pair { aggregate_type: None, event_type: "OrderPlaced".to_owned() }]);
        check_that_it_begins_there(it.kind, &claim);

        let index = if mysql { "idx_created" } else { "idx_ended" };
        for statement in it.store.purge_statements(Purgeable::Ended, at(100_000), MINUTE, 500) {
            check(it.kind, "purge", index, &plan(&it, statement).await);
        }
        let by_age = it.store.purge_statements(Purgeable::Any, at(100_000), MINUTE, 500);
        for (statement, index) in by_age.into_iter().zip([if mysql { index } else { "idx_due_created" }, index]) {
            check(it.kind, "purge by age", index, &plan(&it, statement).await);
        }
        let index = if mysql { "idx_status_created" } else { "idx_dead" };
        let behind = After { created_at: moment(1), id: "dead00000500".to_owned() };
        let narrow = DeadFilter {
            event_type: Some("OrderPlaced".to_owned()),
            error_contains: Some("timeout".to_owned()),
            died_from: Some(moment(10)),
            ..DeadFilter::default()
        };
        let dead = it.store.query_dead_statement(&DeadFilter::default(), None, 100);
        check(it.kind, "the list of the dead", index, &plan(&it, dead).await);
        let further = plan(&it, it.store.query_dead_statement(&DeadFilter::default(), Some(&behind), 100)).await;
        assert!(further.contains(index), "{further}");
        check_that_it_begins_behind(it.kind, &further);
        // However few of them seem to match.
        let rare = DeadFilter { aggregate_id: Some("nobody".to_owned()), ..narrow.clone() };
        for (filter, after) in [&narrow, &rare].into_iter().flat_map(|it| [(it, None), (it, Some(&behind))]) {
            let narrowed = plan(&it, it.store.query_dead_statement(filter, after, 100)).await;
            check(it.kind, "a part of the list of the dead", index, &narrowed);
        }
        let named = DeadFilter {
            ids: Some(vec!["dead00000500".to_owned(), "dead00000700".to_owned()]),
            ..DeadFilter::default()
        };
        check_that_it_reads_by_key(it.kind, &plan(&it, it.store.query_dead_statement(&named, None, 100)).await);
        for filter in [DeadFilter::default(), narrow] {
            for statement in it.store.count_dead_statements(&filter, 100) {
                check_count(it.kind, index, &plan(&it, statement).await);
            }
        }
        for clock in [at(5_000), At::Database] {
            let one = plan(&it, it.store.whereabouts_statement(clock, "dead00000500")).await;
            check_that_it_reads_one(it.kind, &one);
        }

        for clock in [at(5_000), At::Database] {
            for statement in it.store.sample_statements(clock, SAMPLED) {
                check_sample(it.kind, &plan(&it, statement).await);
            }
        }
        for statement in it.store.troubled_statements(50) {
            check(it.kind, "the troubled", "idx_status_available", &plan(&it, statement).await);
        }
        let sample = it.store.sample(at(5_000), SAMPLED).await.unwrap().unwrap();
        assert_eq!(sample.capped, [Status::New, Status::Retry], "{sample:?}");
        let events = sample.kinds.iter().map(|kind| (kind.status, kind.events));
        assert_eq!(events.collect::<Vec<_>>(), [
            (Status::New, 10_000),
            (Status::Retry, 10_000),
            (Status::Dead, 1_000),
        ]);

        let rows = it.claim("node-1", 5_000, 500).await;
        assert_eq!(rows.len(), 500);
        assert!(rows.iter().all(|row| row.id.starts_with("due")));
    }

    /// Where a fifth of the table is dead, reading all of it may seem cheaper than walking over the dead; but each page of the
    /// list and each batch of a replay would read it anew.
    async fn a_part_of_many_dead_is_read_by_their_index(it) {
        fill_with(&it, [60_000, 1_000, 1_000, 15_000]).await;
        let index = if it.kind == DatabaseKind::Mysql { "idx_status_created" } else { "idx_dead" };
        let behind = After { created_at: moment(1), id: "dead00000500".to_owned() };
        let of_nobody = DeadFilter { aggregate_id: Some("nobody".to_owned()), ..DeadFilter::default() };
        let of_no_type = DeadFilter { event_type: Some("Nothing".to_owned()), ..DeadFilter::default() };
        for filter in [of_nobody, of_no_type] {
            for after in [None, Some(&behind)] {
                let rare = plan(&it, it.store.query_dead_statement(&filter, after, 100)).await;
                check(it.kind, "a part of many dead", index, &rare);
            }
            for statement in it.store.count_dead_statements(&filter, 1_000) {
                check_count(it.kind, index, &plan(&it, statement).await);
            }
        }
    }

    /// The latest of those that retry lie behind all that are scheduled ahead, in the order in which rows become due. Where
    /// the planner could choose that order, it did so among ten million rows, and walked over a million of them.
    async fn those_that_retry_are_never_looked_for_among_those_that_wait(it) {
        fill_with(&it, [1_000, 20_000, 10_000, 1_000]).await;
        for statement in it.store.troubled_statements(50) {
            check(it.kind, "the troubled", "idx_status_available", &plan(&it, statement).await);
        }
        if it.kind == DatabaseKind::Postgres {
            let mut connection = it.connections.connection().await.unwrap();
            connection.execute(&it.statement("drop index idx_status_available")).await.unwrap();
            let sampled = it.store.sample_statements(At::Database, 500);
            for statement in it.store.troubled_statements(50).into_iter().chain(sampled) {
                let plan = plan(&it, statement).await;
                assert!(!plan.contains("idx_"), "{plan}");
            }
        }
    }
}
