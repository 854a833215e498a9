//! Wake-ups on PostgreSQL: a node learns of rows that another has written without asking the table for them.

use std::time::Duration;

use backstop_core::Event;
use backstop_sql::store::{DeadFilter, SqlStore, Store};
use backstop_sql::{Outbox, TableName};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording};
use backstop_testkit::proxy::Proxy;
use backstop_testkit::servers::{PostgresDatabase, postgres};
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Executor, PgPool, Postgres};

/// So long that only a wake-up can be the reason for a look.
const NEVER: Duration = Duration::from_secs(3_600);
const MINUTES: Duration = Duration::from_secs(300);

fn order(n: usize) -> Event {
    Event::of("OrderPlaced").aggregate("Order", n.to_string()).json(&n).unwrap()
}

async fn write(outbox: &Outbox<Postgres>, n: usize) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order(n)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn node(pool: PgPool, recorder: &Recording) -> Outbox<Postgres> {
    Outbox::multi_node(pool)
        .claim_locking(MINUTES)
        .interval(NEVER)
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap()
}

const LISTENERS: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'";

/// Waits until so many connections listen. What they did last was to say so.
async fn until_listening(pool: &PgPool, count: i64) {
    let listening = async || sqlx::query_scalar::<_, i64>(LISTENERS).fetch_one(pool).await.unwrap() == count;
    eventually("listening", listening).await;
}

async fn fresh() -> Option<(PostgresDatabase, PgPool)> {
    let database = postgres().await?;
    let pool = database.pool().await;
    Some((database, pool))
}

#[tokio::test]
async fn a_node_delivers_what_a_process_that_only_writes_has_committed_without_waiting_for_its_interval() {
    let Some((_database, pool)) = fresh().await else { return };
    let recorder = Recording::new();
    let node = node(pool.clone(), &recorder).await;
    let writer = Outbox::writer_only(pool.clone()).start().await.unwrap();
    until_listening(&pool, 1).await;
    for n in 0..20 {
        write(&writer, n).await;
        recorder.until(n + 1).await;
    }
    writer.close().await.unwrap();
    node.close().await.unwrap();
    assert_eq!(recorder.events().len(), 20);
}

#[tokio::test]
async fn a_node_for_itself_is_woken_too_and_one_that_was_told_not_to_listen_is_not() {
    let Some((_database, pool)) = fresh().await else { return };
    // The first look of a node may come late, and find the row by itself: that tells nothing.
    for attempt in 0..5 {
        let (heard, deaf) = (Recording::new(), Recording::new());
        let tables = [format!("deaf_{attempt}"), format!("heard_{attempt}")];
        let start = |table: &str, recorder: &Recording, wake_ups| {
            Outbox::single_node(pool.clone())
                .table(table)
                .interval(NEVER)
                .wake_ups(wake_ups)
                .on("Order", "OrderPlaced", recorder.clone())
                .start()
        };
        let nodes =
            [start(&tables[0], &deaf, false).await.unwrap(), start(&tables[1], &heard, true).await.unwrap()];
        until_listening(&pool, 1).await;
        for table in &tables {
            let writer = Outbox::writer_only(pool.clone()).table(table.as_str()).start().await.unwrap();
            write(&writer, 1).await;
            writer.close().await.unwrap();
        }
        heard.until(1).await;
        for node in nodes {
            node.close().await.unwrap();
        }
        if deaf.events().is_empty() {
            return;
        }
    }
    panic!("it was woken each time");
}

#[tokio::test]
async fn what_a_closing_node_gives_back_and_what_is_replayed_is_taken_by_another_at_once() {
    let Some((_database, pool)) = fresh().await else { return };
    let closing = Outbox::multi_node(pool.clone())
        .claim_locking(MINUTES)
        .interval(NEVER)
        .worker_count(1)
        .drain_timeout(Duration::from_millis(10))
        .on("Order", "OrderPlaced", |_: Event| std::future::pending::<()>())
        .start()
        .await
        .unwrap();
    let recorder = Recording::new();
    let other = node(pool.clone(), &recorder).await;
    until_listening(&pool, 2).await;
    for n in 0..5 {
        write(&closing, n).await;
    }
    closing.close().await.unwrap_err();
    recorder.until(5).await;
    other.close().await.unwrap();

    let recorder = Recording::of(Failing::times(1).with(|| backstop_core::Failure::permanent("no", "no")));
    let node = node(pool.clone(), &recorder).await;
    until_listening(&pool, 1).await;
    let writer = Outbox::writer_only(pool.clone()).start().await.unwrap();
    write(&writer, 6).await;
    eventually("a death", async || writer.dead().count(&DeadFilter::default()).await.unwrap() == 1).await;
    writer.dead().replay_all(DeadFilter::default()).run().await.unwrap();
    recorder.until(2).await;
    writer.close().await.unwrap();
    node.close().await.unwrap();
}

/// A pool on the same database whose connections all go through a proxy.
async fn through_a_proxy(database: &PostgresDatabase) -> (Proxy, PgPool) {
    let proxy = Proxy::in_front_of(&database.url()).await;
    let pool =
        PgPoolOptions::new().max_connections(5).connect(&proxy.through(&database.url())).await.unwrap();
    (proxy, pool)
}

#[tokio::test]
async fn a_node_whose_connection_was_cut_listens_again_by_itself_and_misses_nothing() {
    let Some((database, pool)) = fresh().await else { return };
    let (proxy, proxied) = through_a_proxy(&database).await;
    let recorder = Recording::new();
    let node = node(proxied, &recorder).await;
    let writer = Outbox::writer_only(pool.clone()).start().await.unwrap();
    until_listening(&pool, 1).await;
    proxy.refuse();
    proxy.cut();
    write(&writer, 0).await; // while nobody hears
    proxy.restore();
    recorder.until(1).await;
    until_listening(&pool, 1).await;
    write(&writer, 1).await;
    recorder.until(2).await;
    writer.close().await.unwrap();
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_backend_that_was_ended_is_replaced() {
    let Some((_database, pool)) = fresh().await else { return };
    let recorder = Recording::new();
    let node = node(pool.clone(), &recorder).await;
    let writer = Outbox::writer_only(pool.clone()).start().await.unwrap();
    until_listening(&pool, 1).await;
    let end =
        format!("select pg_terminate_backend(pid) from ({}) as it", LISTENERS.replace("count(*)", "pid"));
    sqlx::query(sqlx::AssertSqlSafe(end)).execute(&pool).await.unwrap();
    until_listening(&pool, 1).await;
    write(&writer, 1).await;
    recorder.until(1).await;
    writer.close().await.unwrap();
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_plain_insert_wakes_a_node() {
    let Some((_database, pool)) = fresh().await else { return };
    let recorder = Recording::new();
    let node = node(pool.clone(), &recorder).await;
    let store = SqlStore::on(pool.clone(), TableName::default());
    assert!(store.allow_plain_inserts().await.unwrap());
    assert!(store.allow_plain_inserts().await.unwrap(), "it may be run again");
    until_listening(&pool, 1).await;
    for n in 0..20 {
        let insert = "insert into outbox_event (event_id, event_type, aggregate_type, payload) \
                      values (gen_random_uuid()::text, 'OrderPlaced', 'Order', '{}')";
        pool.execute(insert).await.unwrap();
        recorder.until(n + 1).await;
    }
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_row_that_is_born_claimed_wakes_nobody() {
    let Some((_database, pool)) = fresh().await else { return };
    let store = SqlStore::on(pool.clone(), TableName::new("events").unwrap());
    store.migrate().await.unwrap();
    store.allow_plain_inserts().await.unwrap();
    let channel: String =
        sqlx::query_scalar("select 'backstop_' || md5('public.events')").fetch_one(&pool).await.unwrap();
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen(&channel).await.unwrap();

    let columns = "insert into events (event_id, event_type, payload, locked_by)";
    for (id, owner) in [("claimed", "'node-1'"), ("free", "null")] {
        let insert = format!(
            "begin; {columns} values ('{id}', 'E', '{{}}', {owner}); select pg_notify('{channel}', '{id}'); commit"
        );
        pool.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(insert))).await.unwrap();
    }
    // Each transaction says its name; only the second also rings.
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(listener.recv().await.unwrap().payload().to_owned());
    }
    assert_eq!(heard, ["claimed", "", "free"]);
}
