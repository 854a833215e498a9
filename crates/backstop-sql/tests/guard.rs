//! The only node on a table, when its right to be that is lost: by a session that ends, and by one that falls silent.

#[macro_use]
#[path = "outbox/forward.rs"]
mod forward;

use std::sync::Arc;
use std::time::Duration;

use backstop_core::inspect::Health;
use backstop_core::{Event, Failure};
use backstop_sql::outbox::{Builder, SingleNode};
use backstop_sql::store::{Due, Row, SqlStore, Store};
use backstop_sql::{BoxFuture, Error, Outbox, Supported, TableName};
use backstop_testkit::handlers::{Failing, Recording, Slow};
use backstop_testkit::proxy::Proxy;
use backstop_testkit::{eventually, eventually_within};
use sqlx::{AssertSqlSafe, MySqlPool, PgPool, Pool};
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_millis(200);
const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// A fresh database, and a proxy in front of it that the nodes go through.
struct Place<DB: Supported, Sessions, Guard> {
    pool: Pool<DB>,
    proxy: Proxy,
    sessions: Sessions,
    _guard: Guard,
}

async fn on_postgres() -> Option<Place<sqlx::Postgres, PostgresSessions, impl Sized>> {
    let guard = backstop_testkit::servers::postgres().await?;
    let proxy = Proxy::in_front_of(&guard.url()).await;
    let pool = backstop_sql::postgres::open(&proxy.through(&guard.url())).await.unwrap();
    Some(Place { pool, proxy, sessions: PostgresSessions(guard.pool().await), _guard: guard })
}

async fn on_mysql() -> Option<Place<sqlx::MySql, MysqlSessions, impl Sized>> {
    let guard = backstop_testkit::servers::mysql().await?;
    let proxy = Proxy::in_front_of(&guard.url()).await;
    let pool = backstop_sql::mysql::open(&proxy.through(&guard.url())).await.unwrap();
    Some(Place { pool, proxy, sessions: MysqlSessions(guard.pool().await), _guard: guard })
}

/// An administrator's view of the server.
trait Sessions {
    /// The session that has the lock of the table.
    async fn holder(&self) -> Option<i64>;
    async fn end(&self, session: i64);
}

struct PostgresSessions(PgPool);

impl Sessions for PostgresSessions {
    async fn holder(&self) -> Option<i64> {
        let locks = "select pid::bigint from pg_locks where locktype = 'advisory' and granted
            and (classid::bigint << 32 | objid::bigint) = hashtextextended('backstop.alone.public.outbox_event', 0)
            and database = (select oid from pg_database where datname = current_database())";
        sqlx::query_scalar(locks).fetch_optional(&self.0).await.unwrap()
    }

    async fn end(&self, session: i64) {
        sqlx::query("select pg_terminate_backend($1::int)").bind(session).execute(&self.0).await.unwrap();
    }
}

struct MysqlSessions(MySqlPool);

impl Sessions for MysqlSessions {
    async fn holder(&self) -> Option<i64> {
        let lock = "select cast(is_used_lock(concat('backstop.alone.', left(sha2(concat(database(), '.', 'outbox_event'), 256), 32))) as signed)";
        sqlx::query_scalar(lock).fetch_one(&self.0).await.unwrap()
    }

    async fn end(&self, session: i64) {
        sqlx::query(AssertSqlSafe(format!("kill {session}"))).execute(&self.0).await.unwrap();
    }
}

impl<DB: Supported, S: Sessions, G> Place<DB, S, G> {
    fn node(&self, recorder: &Recording) -> Builder<DB, SingleNode> {
        Outbox::single_node(self.pool.clone()).interval(SOON).on("Order", "OrderPlaced", recorder.clone())
    }

    /// Waits until another session than `before` has the lock.
    async fn retaken(&self, before: Option<i64>) {
        eventually_within(HALF_A_MINUTE, "the lock to be taken again", async || {
            let holder = self.sessions.holder().await;
            holder.is_some() && holder != before
        })
        .await;
    }
}

/// A store whose looks at the table take as long as the test wants: the rows are read, and their reader gets them later.
struct HeldUp {
    inner: Arc<dyn Store>,
    read: Semaphore,
    answer: Semaphore,
}

impl HeldUp {
    fn around(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, read: Semaphore::new(0), answer: Semaphore::new(0) })
    }

    async fn until_read(&self) {
        self.read.acquire().await.unwrap().forget();
    }

    fn let_go(&self) {
        self.answer.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

impl Store for HeldUp {
    forward!(
        migrate,
        check,
        insert,
        claim,
        release,
        settle,
        census,
        troubled,
        query_dead,
        count_dead,
        replay_dead,
        purge
    );

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let rows = self.inner.poll(due).await;
            self.read.add_permits(1);
            self.answer.acquire().await.unwrap().forget();
            rows
        })
    }
}

async fn append<DB: Supported>(outbox: &Outbox<DB>, events: usize) {
    let order = |n: usize| Event::of("OrderPlaced").aggregate("Order", n.to_string()).json(&n).unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all((0..events).map(order).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

async fn until_it_stands<DB: Supported>(outbox: &Outbox<DB>, up: bool) {
    let what = if up { "the node to stand up" } else { "the node to stand down" };
    eventually_within(HALF_A_MINUTE, what, async || (outbox.report().await.health == Health::Up) == up).await;
}

// On SQLite the right is a locked file, which a node keeps for as long as it runs.
backstop_testkit::suite! {
    over { postgres: on_postgres, mysql: on_mysql }

    async fn a_node_whose_session_ended_is_the_only_one_again(place) {
        let recorder = Recording::new();
        let outbox = place.node(&recorder).start().await.unwrap();
        let first = place.sessions.holder().await;
        place.sessions.end(first.unwrap()).await;
        place.retaken(first).await;
        assert!(place.node(&recorder).start().await.is_err(), "nobody else is let in");
        append(&outbox, 3).await;
        recorder.until(3).await;
        assert_eq!(outbox.report().await.health, Health::Up);
        outbox.close().await.unwrap();
        assert_eq!(place.sessions.holder().await, None);
    }

    async fn a_node_stands_down_while_another_has_its_table_and_goes_on_when_that_is_gone(place) {
        let (first_saw, second_saw) = (Recording::new(), Recording::new());
        let first = place.node(&first_saw).start().await.unwrap();
        append(&first, 1).await;
        first_saw.until(1).await;
        place.sessions.end(place.sessions.holder().await.unwrap()).await;
        let second = place.node(&second_saw).start();
        let second = second.await.expect("two seconds are long enough to be first");
        eventually_within(HALF_A_MINUTE, "the first to stand down", async || {
            matches!(first.report().await.health, Health::Down(why) if why.contains("another node delivers"))
        }).await;

        append(&first, 5).await;
        second_saw.until(5).await;
        assert_eq!(first_saw.events().len(), 1);

        second.close().await.unwrap();
        until_it_stands(&first, true).await;
        append(&first, 2).await;
        first_saw.until(3).await;
        first.close().await.unwrap();
        assert_eq!(second_saw.events().len(), 5);
    }

    async fn what_a_node_had_in_hand_when_it_stood_down_is_the_other_nodes(place) {
        let gate = Slow::gated().then(Failing::always().with(|| Failure::permanent("test", "too late")));
        let (first_saw, second_saw) = (Recording::of(gate.clone()), Recording::new());
        let first = place.node(&first_saw).worker_count(1).start().await.unwrap();
        append(&first, 5).await;
        gate.until_began(1).await;
        place.sessions.end(place.sessions.holder().await.unwrap()).await;
        let second = place.node(&second_saw).start();
        let second = second.await.expect("two seconds are long enough to be first");
        second_saw.until(5).await;
        until_it_stands(&first, false).await;
        second.close().await.unwrap();
        until_it_stands(&first, true).await;

        // Neither its answer counts, nor is what waited behind it delivered once more.
        gate.open();
        first_saw.until_answered(1).await;
        first.close().await.unwrap();
        let census = first.store().census(100).await.unwrap();
        assert_eq!((census.done.events, census.dead.events), (5, 0));
        assert_eq!(first_saw.events().len(), 1);
    }

    async fn an_event_whose_result_is_ignored_because_the_node_stood_down_meanwhile_is_delivered_at_once(place) {
        let gate = Slow::gated().then(Failing::times(1).with(|| Failure::permanent("test", "too late")));
        let saw = Recording::of(gate.clone());
        let ordered = || Outbox::ordered(place.pool.clone()).interval(HALF_A_MINUTE);
        append(&Outbox::writer_only(place.pool.clone()).start().await.unwrap(), 1).await;
        let first = ordered().on("Order", "OrderPlaced", saw.clone()).start().await.unwrap();
        gate.until_began(1).await;
        place.sessions.end(place.sessions.holder().await.unwrap()).await;
        let other_gate = Slow::gated();
        let second = ordered().drain_timeout(SOON).on("Order", "OrderPlaced", other_gate.clone()).start();
        let second = second.await.expect("two seconds are long enough to be first");
        until_it_stands(&first, false).await;
        let _ = second.close().await;
        until_it_stands(&first, true).await;
        gate.open();
        saw.until_answered(2).await; // and not after the interval
        eventually("it to be done", async || first.store().census(100).await.unwrap().done.events == 1).await;
        first.close().await.unwrap();
    }

    async fn rows_that_were_read_before_a_node_stood_down_are_not_delivered_when_it_stands_up(place) {
        let (first_saw, second_saw) = (Recording::new(), Recording::new());
        let writer = Outbox::writer_only(place.pool.clone()).start().await.unwrap();
        append(&writer, 5).await;
        let store = HeldUp::around(Arc::new(SqlStore::on(place.pool.clone(), TableName::default())));
        let first = place.node(&first_saw).store(store.clone()).start().await.unwrap();
        store.until_read().await;

        place.sessions.end(place.sessions.holder().await.unwrap()).await;
        let second = place.node(&second_saw).start();
        let second = second.await.expect("two seconds are long enough to be first");
        second_saw.until(5).await;
        until_it_stands(&first, false).await;
        second.close().await.unwrap();
        until_it_stands(&first, true).await;

        // Only now it gets what it read, and does with it what it does.
        store.let_go();
        append(&first, 1).await;
        first_saw.until(1).await;
        first.close().await.unwrap();
        assert_eq!((first_saw.events().len(), second_saw.events().len()), (1, 5));
        assert_eq!(first.store().census(100).await.unwrap().done.events, 6);
    }

    async fn an_order_is_kept_by_a_node_that_stood_down_and_up_again(place) {
        let (gate, other_gate) = (Slow::gated(), Slow::gated());
        let saw = Recording::of(gate.clone());
        let ordered = |handler| Outbox::ordered(place.pool.clone()).interval(SOON).on("Order", "OrderPlaced", handler);
        let first = ordered(saw.clone()).start().await.unwrap();
        append(&first, 3).await;
        gate.until_began(1).await;
        place.sessions.end(place.sessions.holder().await.unwrap()).await;
        let second = ordered(Recording::of(other_gate.clone())).drain_timeout(SOON).start();
        let second = second.await.expect("two seconds are long enough to be first");
        other_gate.until_began(1).await;
        until_it_stands(&first, false).await;
        // It leaves before it has delivered anything.
        second.close().await.unwrap_err();
        until_it_stands(&first, true).await;
        append(&first, 1).await;
        tokio::time::sleep(2 * SOON).await;
        gate.open();
        let events = saw.until(4).await;
        let in_order: Vec<_> = events.iter().map(|event| event.id().to_owned()).collect();
        first.close().await.unwrap();
        assert!(in_order.is_sorted(), "ids rise with time: {in_order:?}");
        assert_eq!(first.store().census(100).await.unwrap().done.events, 4);
    }

    async fn a_node_that_stood_down_keeps_no_other_out(place) {
        let several = || Outbox::multi_node(place.pool.clone()).claim_locking(HALF_A_MINUTE).interval(SOON);
        let first = place.node(&Recording::new()).start().await.unwrap();
        place.sessions.end(place.sessions.holder().await.unwrap()).await;
        let second = several().start().await.expect("two seconds are long enough to be first");
        until_it_stands(&first, false).await;
        let third = several().start().await.expect("the first has nothing to say here any more");
        third.close().await.unwrap();
        second.close().await.unwrap();
        until_it_stands(&first, true).await;
        first.close().await.unwrap();
    }

    async fn a_session_that_fell_silent_is_not_in_the_way_of_the_next(place) {
        let recorder = Recording::new();
        // So that closing does not wait for statements that were stranded.
        let store = SqlStore::on(place.pool.clone(), TableName::default()).patience(SOON);
        let outbox = place.node(&recorder).store(Arc::new(store)).start().await.unwrap();
        let first = place.sessions.holder().await;
        // The server is not told, and keeps the session and its lock.
        place.proxy.strand();
        assert_eq!(place.sessions.holder().await, first);
        place.retaken(first).await;
        eventually("all is well", async || outbox.report().await.health == Health::Up).await;
        outbox.close().await.unwrap();
    }
}
