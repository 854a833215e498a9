//! A network that swallows everything: no error ever comes, and delivery goes on when it is over.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::store::{At, Due, Order, SqlStore, Store as _};
use backstop_sql::{Error, Outbox, Supported, TableName};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use backstop_testkit::proxy::Proxy;
use backstop_testkit::servers::{mysql, oracle_mysql, postgres, private_mysql, private_postgres};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection};

const PATIENCE: Duration = Duration::from_millis(300);

fn order(n: usize) -> Event {
    Event::of("OrderPlaced").aggregate("Order", n.to_string()).json(&n).unwrap()
}

/// Four events whose handlers wait at the gate.
async fn four_in_hand(outbox: &Outbox<impl Supported>, gate: &Slow) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all((0..4).map(order).collect()).await.unwrap();
    tx.commit().await.unwrap();
    gate.until_began(4).await;
}

#[tokio::test]
async fn what_was_handled_while_nothing_came_through_is_written_afterwards_and_not_delivered_again() {
    let Some(database) = postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    let pool =
        PgPoolOptions::new().max_connections(3).connect(&proxy.through(&database.url())).await.unwrap();
    let store = SqlStore::on(pool.clone(), TableName::default()).patience(PATIENCE);
    let gate = Slow::gated();
    let recorder = Recording::of(gate.clone());
    let outbox = Outbox::single_node(pool)
        .guard(false) // its lock is a session, which would be swallowed too
        .store(Arc::new(store))
        .interval(Duration::from_millis(50))
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    four_in_hand(&outbox, &gate).await;

    proxy.black_hole();
    gate.open();
    recorder.until_answered(4).await;
    // Several tries are swallowed, each of which would wait for ever.
    tokio::time::sleep(4 * PATIENCE).await;
    proxy.restore();

    let direct = database.pool().await;
    let done = "select count(*) from outbox_event where status = 1";
    eventually("all done", async || {
        sqlx::query_scalar::<_, i64>(done).fetch_one(&direct).await.unwrap() == 4
    })
    .await;
    outbox.close().await.unwrap();
    assert_eq!(recorder.events().len(), 4);
}

/// A pool of one connection, so that one that never comes back is one too many.
async fn claims_after_a_silence<DB: Supported>(pool: sqlx::Pool<DB>, proxy: &Proxy, pooled: bool) {
    let store = SqlStore::on(pool.clone(), TableName::default()).patience(PATIENCE);
    let store = if pooled { store.behind_pooler() } else { store };
    store.migrate().await.unwrap();
    let due = || Due {
        at: At::Database,
        skip_recent: Duration::ZERO,
        limit: 10,
        order: Order::Due,
        after: None,
        pair: None,
    };
    let node = Arc::from("node");
    let claim = async || store.claim(&node, Duration::from_secs(60), due()).await;
    assert!(claim().await.unwrap().is_empty());
    eventually("the connection to be back in its pool", async || pool.num_idle() == 1).await;
    proxy.strand();
    claim().await.expect_err("nothing comes through");
    eventually("the connection to be replaced", async || claim().await.is_ok()).await;
}

#[tokio::test]
async fn a_claim_that_is_given_up_gives_its_place_in_the_pool_back_on_mysql() {
    let Some(database) = mysql().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    let pool = MySqlPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect(&proxy.through(&database.url())).await.unwrap();
    claims_after_a_silence(pool, &proxy, false).await;
}

#[tokio::test]
async fn a_claim_that_is_given_up_gives_its_place_in_the_pool_back_behind_a_pooler() {
    let Some(database) = postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect(&proxy.through(&database.url())).await.unwrap();
    claims_after_a_silence(pool, &proxy, true).await;
}

/// A pool tries again for as long as connections are refused, and then says only that it has waited.
#[tokio::test]
async fn a_server_that_left_is_told_as_the_cause_and_not_the_wait_for_it() {
    let Some(mut server) = private_postgres().await else { return };
    let pool = PgPoolOptions::new().max_connections(3).acquire_timeout(PATIENCE);
    let pool = pool.connect(&server.url()).await.unwrap();
    let outbox = Outbox::single_node(pool.clone()).on("Order", "OrderPlaced", Recording::new()).start().await;
    let outbox = outbox.unwrap();
    server.stop().await;

    let store = SqlStore::on(pool, TableName::default());
    let due = Due {
        at: At::Database,
        skip_recent: Duration::ZERO,
        limit: 1,
        order: Order::Due,
        after: None,
        pair: None,
    };
    // The first finds connections that have ended; then there are none.
    eventually("it has noticed", async || store.poll(due).await.unwrap_err().to_string().contains("refused"))
        .await;
    let begun = outbox.begin().await.unwrap_err();
    for said in [begun.to_string(), store.poll(due).await.unwrap_err().to_string()] {
        assert!(said.contains("Connection refused") && !said.contains("pool timed out"), "{said}");
    }
    // What it has in hand would be written when the server is back; it has nothing.
    server.start().await;
    outbox.close().await.unwrap();
}

/// Changes what sessions that begin later may do.
async fn only_reads(session: &mut PgConnection, whether: bool) {
    let name: String =
        sqlx::query_scalar("select current_database()").fetch_one(&mut *session).await.unwrap();
    let set = format!("alter database {name} set default_transaction_read_only = {whether}");
    sqlx::query(AssertSqlSafe(set)).execute(session).await.unwrap();
}

/// As after a fail-over, when a connection leads to a server that has become a replica.
#[tokio::test]
async fn what_cannot_be_written_to_a_server_that_only_reads_is_written_when_another_one_is_reached() {
    let Some(database) = postgres().await else { return };
    let direct = database.pool().await;
    let gate = Slow::gated();
    let recorder = Recording::of(gate.clone());
    let pool = PgPoolOptions::new().max_connections(3).connect(&database.url()).await.unwrap();
    let outbox = Outbox::single_node(pool)
        .interval(Duration::from_millis(50))
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    four_in_hand(&outbox, &gate).await;

    // Set before anything else: this session must stay able to write.
    let mut administrator = direct.acquire().await.unwrap();
    only_reads(&mut administrator, true).await;
    let others = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    sqlx::query(others).execute(&mut *administrator).await.unwrap();
    gate.open();
    recorder.until_answered(4).await;
    // Long enough for it to be refused, on connections that stay as they are.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let locks = "select count(*) from pg_locks where locktype = 'advisory'
        and database = (select oid from pg_database where datname = current_database())";
    let locks =
        async |one: &mut PgConnection| sqlx::query_scalar::<_, i64>(locks).fetch_one(one).await.unwrap();
    // It has looked for its own lock by now: one that it took here would be none.
    eventually("no lock on such a server", async || locks(&mut administrator).await == 0).await;
    let done = "select count(*) from outbox_event where status = 1";
    let done =
        async |one: &mut PgConnection| sqlx::query_scalar::<_, i64>(done).fetch_one(one).await.unwrap();
    assert_eq!(done(&mut administrator).await, 0);
    only_reads(&mut administrator, false).await;
    eventually("all done", async || done(&mut administrator).await == 4).await;
    eventually("the lock of the only node", async || locks(&mut administrator).await == 2).await;
    outbox.close().await.unwrap();
    assert_eq!(recorder.events().len(), 4, "none was delivered again");
}

/// Of one database only: an option of the whole server would reach the other tests.
#[tokio::test]
async fn what_cannot_be_written_to_a_read_only_database_of_mysql_is_written_once_it_can() {
    let Some(database) = oracle_mysql().await else { return };
    let (direct, gate) = (database.pool().await, Slow::gated());
    let recorder = Recording::of(gate.clone());
    let node = async |recorder: Recording| {
        let pool = MySqlPoolOptions::new().max_connections(3).connect(&database.url()).await.unwrap();
        let outbox = Outbox::multi_node(pool).claim_locking(Duration::from_secs(60));
        let outbox = outbox.interval(Duration::from_millis(50));
        outbox.on("Order", "OrderPlaced", recorder).start().await
    };
    let outbox = node(recorder.clone()).await.unwrap();
    four_in_hand(&outbox, &gate).await;
    let read_only = async |whether: u8| {
        let set = format!("alter database {} read only = {whether}", database.name());
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&direct).await.unwrap();
    };

    read_only(1).await;
    gate.open();
    recorder.until_answered(4).await;
    let refused = node(Recording::new()).await.map(drop);
    let begun = async {
        let mut tx = outbox.begin().await?;
        tx.append(order(5)).await.map(drop)
    };
    let (begun, done) = (begun.await, done(&direct).await);
    read_only(0).await;
    for answer in [refused, begun] {
        assert!(matches!(answer, Err(Error::OnlyReads { .. })), "{answer:?}");
    }
    assert_eq!(done, 0);
    eventually("all done", async || self::done(&direct).await == 4).await;
    outbox.close().await.unwrap();
    assert_eq!(recorder.events().len(), 4, "none was delivered again");
}

/// As a user who may not write there: the administrator may.
#[tokio::test]
async fn what_cannot_be_written_to_a_mysql_that_came_back_read_only_is_written_once_it_can() {
    let Some(mut server) = private_mysql().await else { return };
    let admin = async || MySqlConnection::connect(&server.url()).await.unwrap();
    for statement in [
        "create database shop",
        "create user 'shop'@'127.0.0.1'",
        "grant all on shop.* to 'shop'@'127.0.0.1'",
    ] {
        sqlx::raw_sql(statement).execute(&mut admin().await).await.unwrap();
    }
    let url = server.url_of("shop", "shop");
    let (gate, short) = (Slow::gated(), Duration::from_millis(50));
    let recorder = Recording::of(gate.clone());
    let pool = || MySqlPoolOptions::new().max_connections(3).connect(&url);
    let outbox = Outbox::single_node(pool().await.unwrap()).interval(short);
    let outbox = outbox.on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
    four_in_hand(&outbox, &gate).await;

    server.set_options(["--read-only".to_owned()]);
    server.restart().await;
    gate.open();
    recorder.until_answered(4).await;
    let begun = async || {
        let mut tx = outbox.begin().await?;
        tx.append(order(5)).await.map(drop)
    };
    // Its first connections have ended with the server.
    eventually("it is told", async || matches!(begun().await, Err(Error::OnlyReads { .. }))).await;
    let direct = pool().await.unwrap();
    let single =
        Outbox::single_node(direct.clone()).on("Order", "OrderPlaced", Recording::new()).start().await;
    let many = Outbox::multi_node(direct.clone()).claim_locking(Duration::from_secs(60));
    let many = many.on("Order", "OrderPlaced", Recording::new()).start().await;
    for refused in [single.map(drop), many.map(drop)] {
        assert!(matches!(refused, Err(Error::OnlyReads { .. })), "{refused:?}");
    }
    assert_eq!(done(&direct).await, 0);

    let mut admin = MySqlConnection::connect(&server.url()).await.unwrap();
    sqlx::raw_sql("set global read_only = off").execute(&mut admin).await.unwrap();
    eventually("all done", async || done(&direct).await == 4).await;
    begun().await.unwrap();
    outbox.close().await.unwrap();
    assert_eq!(recorder.events().len(), 4, "none was delivered again");
}

async fn done(pool: &sqlx::MySqlPool) -> i64 {
    let done = "select count(*) from outbox_event where status = 1";
    sqlx::query_scalar(done).fetch_one(pool).await.unwrap()
}
