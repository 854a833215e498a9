//! The whole outbox on each database: what the machinery promises must not depend on where the table is.

#[macro_use]
#[path = "../support/fresh.rs"]
mod fresh;

mod blocked;
mod settling;
mod truth;

use std::collections::HashSet;
use std::time::Duration;

use backstop_core::{Clock, Event, Failure, Outcome, SystemClock};
use backstop_sql::outbox::purge;
use backstop_sql::store::{DeadFilter, Done};
use backstop_sql::{Error, Outbox, Supported};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording};

use crate::fresh::{Fresh, empty};

impl Fresh<sqlx::Sqlite> {
    /// From now on every update succeeds and changes nothing.
    async fn swallow_updates(&self) {
        self.run("create trigger swallow before update on outbox_event begin select raise(ignore); end")
            .await;
    }

    async fn take_updates(&self) {
        self.run("drop trigger swallow").await;
    }
}

impl Fresh<sqlx::Postgres> {
    async fn swallow_updates(&self) {
        self.run(
            "create function swallow() returns trigger language plpgsql as 'begin return null; end';
             create trigger swallow before update on outbox_event for each row execute function swallow()",
        )
        .await;
    }

    async fn take_updates(&self) {
        self.run("drop trigger swallow on outbox_event").await;
    }

    async fn of_size(&self, connections: u32) -> sqlx::PgPool {
        let options = (*self.pool.connect_options()).clone();
        sqlx::postgres::PgPoolOptions::new().max_connections(connections).connect_with(options).await.unwrap()
    }

    /// A pool whose statements do not wait long for a lock.
    async fn impatient(&self) -> sqlx::PgPool {
        let options = (*self.pool.connect_options()).clone().options([("lock_timeout", "150ms")]);
        sqlx::postgres::PgPoolOptions::new().max_connections(5).connect_with(options).await.unwrap()
    }

    /// A pool of somebody who may only read, and how to take that user away again.
    async fn reader(&self) -> (sqlx::PgPool, String) {
        let options = (*self.pool.connect_options()).clone().options([("role", "pg_read_all_data")]);
        (sqlx::postgres::PgPoolOptions::new().connect_with(options).await.unwrap(), "select 1".to_owned())
    }

    /// A pool of somebody who may read, insert and change rows, and not delete them.
    async fn keeper(&self) -> (sqlx::PgPool, String) {
        let database: String =
            sqlx::query_scalar("select current_database()::text").fetch_one(&self.pool).await.unwrap();
        self.run(&format!("create role {database}")).await;
        self.run(&format!("grant select, insert, update on all tables in schema public to {database}")).await;
        let options = (*self.pool.connect_options()).clone().options([("role", database.as_str())]);
        let pool = sqlx::postgres::PgPoolOptions::new().connect_with(options).await.unwrap();
        (pool, format!("drop owned by {database}; drop role {database}"))
    }

    /// Ends the session of a transaction.
    async fn end(&self, transaction: &mut sqlx::PgConnection) {
        let session: i32 =
            sqlx::query_scalar("select pg_backend_pid()").fetch_one(transaction).await.unwrap();
        self.run(&format!("select pg_terminate_backend({session})")).await;
    }
}

impl Fresh<sqlx::MySql> {
    async fn of_size(&self, connections: u32) -> sqlx::MySqlPool {
        let options = (*self.pool.connect_options()).clone();
        sqlx::mysql::MySqlPoolOptions::new().max_connections(connections).connect_with(options).await.unwrap()
    }

    async fn impatient(&self) -> sqlx::MySqlPool {
        let options = (*self.pool.connect_options()).clone();
        let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(5).after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::raw_sql("set session innodb_lock_wait_timeout = 1").execute(connection).await.map(drop)
            })
        });
        pool.connect_with(options).await.unwrap()
    }

    async fn reader(&self) -> (sqlx::MySqlPool, String) {
        self.who_may("select").await
    }

    async fn keeper(&self) -> (sqlx::MySqlPool, String) {
        self.who_may("select, insert, update").await
    }

    async fn end(&self, transaction: &mut sqlx::MySqlConnection) {
        let session: i64 = sqlx::query_scalar("select cast(connection_id() as signed)")
            .fetch_one(transaction)
            .await
            .unwrap();
        self.run(&format!("kill {session}")).await;
    }

    async fn who_may(&self, rights: &str) -> (sqlx::MySqlPool, String) {
        let database: String = sqlx::query_scalar("select database()").fetch_one(&self.pool).await.unwrap();
        let user = format!("'{database}'@'%'");
        self.run(&format!("create user {user} identified by 'guest'")).await;
        self.run(&format!("grant {rights} on {database}.* to {user}")).await;
        let options = (*self.pool.connect_options()).clone().username(&database).password("guest");
        let pool = sqlx::mysql::MySqlPoolOptions::new().connect_with(options).await.unwrap();
        (pool, format!("drop user {user}"))
    }
}

const SOON: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(3_600);
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTES: Duration = Duration::from_secs(300);

fn order(n: usize) -> Event {
    Event::of("OrderPlaced").aggregate("Order", n.to_string()).json(&n).unwrap()
}

/// How many rows the table has.
async fn rows_in<DB>(pool: &sqlx::Pool<DB>) -> i64
where
    DB: Supported,
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
    DB::Arguments: sqlx::IntoArguments<DB>,
    i64: sqlx::Type<DB> + for<'r> sqlx::Decode<'r, DB>,
    usize: sqlx::ColumnIndex<DB::Row>,
{
    sqlx::query_scalar("select count(*) from outbox_event").fetch_one(pool).await.unwrap()
}

fn all() -> DeadFilter {
    DeadFilter::default()
}

database_suite! {
    over empty

    /// Rules: O-081, O-511, O-512, O-513.
    async fn one_node_delivers_hot_and_the_poller_catches_the_rest(place) {
        let recorder = Recording::new();
        let outbox = Outbox::single_node(place.pool.clone())
            .interval(SOON)
            .on("Order", "OrderPlaced", recorder.clone())
            .start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all((0..50).map(order).collect()).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        let delayed = Event::of("OrderPlaced").aggregate("Order", "late").deliver_after(SOON).json(&()).unwrap();
        tx.append(delayed).await.unwrap();
        tx.commit().await.unwrap();
        let events = recorder.until(51).await;
        assert_eq!(events.iter().map(Event::id).collect::<HashSet<_>>().len(), 51);
        assert_eq!(outbox.metrics().enqueue_hot.total(), 50);
        outbox.close().await.unwrap();
        assert_eq!(outbox.store().census(100).await.unwrap().done.events, 51);
    }

    /// Rules: O-082, O-357, O-359, O-516, O-517, O-518.
    async fn two_nodes_share_a_table_and_deliver_each_event_once(place) {
        let recorder = Recording::new();
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let node = Outbox::multi_node(place.pool.clone())
                .claim_locking(MINUTES)
                .interval(SOON)
                .batch_size(7)
                .hot_queue_capacity(5) // most events find it full, and go by way of the pollers
                .on("Order", "OrderPlaced", recorder.clone())
                .start().await.unwrap();
            nodes.push(node);
        }
        for n in 0..60 {
            let mut tx = nodes[n % 2].begin().await.unwrap();
            tx.append_all((n * 5..n * 5 + 5).map(order).collect()).await.unwrap();
            tx.commit().await.unwrap();
        }
        recorder.until(300).await;
        for node in &nodes {
            node.close().await.unwrap();
        }
        let ids = recorder.ids();
        assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (300, 300));
        let census = nodes[0].store().census(1_000).await.unwrap();
        assert_eq!((census.done.events, census.waiting.events), (300, 0));
    }

    async fn what_is_scheduled_is_delivered_on_time_not_at_the_next_interval(place) {
        let recorder = Recording::of(Failing::times(2));
        let outbox = Outbox::multi_node(place.pool.clone())
            .claim_locking(MINUTES)
            .interval(NEVER)
            .retry_policy(|_, _| SOON)
            .on("Order", "OrderPlaced", recorder.clone())
            .start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        let later = Event::of("OrderPlaced").aggregate("Order", "later").deliver_after(SOON * 4).json(&()).unwrap();
        let due = later.available_at().unwrap();
        tx.append(later).await.unwrap();
        tx.commit().await.unwrap();
        // Once when it is due, then twice after a retry: none of them waits for the interval of an hour.
        recorder.until_answered(3).await;
        assert!(SystemClock.now() >= due);
        outbox.close().await.unwrap();
        assert_eq!(outbox.store().census(10).await.unwrap().done.events, 1);
    }

    async fn what_was_handled_can_be_deleted_in_place_of_kept(place) {
        let outbox = Outbox::multi_node(place.pool.clone())
            .claim_locking(MINUTES)
            .interval(NEVER)
            .done(Done::Delete)
            .on("Order", "OrderPlaced", Recording::new())
            .on("Order", "OrderLost", |_: Event| async { Outcome::dead_because("lost") })
            .start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        let lost = Event::of("OrderLost").aggregate("Order", "1").json(&()).unwrap();
        tx.append_all(vec![order(1), order(2), lost]).await.unwrap();
        tx.commit().await.unwrap();
        let counted = async || {
            let census = outbox.store().census(10).await.unwrap();
            [census.waiting, census.retrying, census.dead, census.done].map(|count| count.events)
        };
        eventually("only the dead one is left", async || counted().await == [0, 0, 1, 0]).await;
        assert_eq!(outbox.metrics().dispatch_success.total(), 2);
        outbox.close().await.unwrap();
    }

    async fn a_row_that_a_living_node_holds_is_not_taken_by_another(place) {
        let (slow, quick) = (backstop_testkit::handlers::Slow::gated(), Recording::new());
        let node = |handler| Outbox::multi_node(place.pool.clone())
            .claim_locking(MINUTES).interval(SOON).on("Order", "OrderPlaced", handler);
        let holder = node(Recording::of(slow.clone())).start().await.unwrap();
        let mut tx = holder.begin().await.unwrap();
        tx.append(order(1)).await.unwrap();
        tx.commit().await.unwrap();
        slow.until_began(1).await;
        let other = node(quick.clone()).start().await.unwrap();
        let before = other.metrics().enqueue_cold.total();
        tokio::time::sleep(SOON * 4).await; // several polls of the other node
        assert_eq!((other.metrics().enqueue_cold.total(), quick.events().len()), (before, 0));
        slow.open();
        holder.close().await.unwrap();
        other.close().await.unwrap();
        assert_eq!(holder.store().census(10).await.unwrap().done.events, 1);
    }

    async fn an_event_fails_is_retried_dies_and_is_replayed(place) {
        let handler = Failing::times(3).with(|| Failure::transient("timeout", "no answer"));
        let recorder = Recording::of(handler);
        let outbox = Outbox::single_node(place.pool.clone())
            .interval(SOON)
            .max_attempts(2)
            .retry_policy(|_, _| Duration::from_millis(10))
            .on("Order", "OrderPlaced", recorder.clone())
            .start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order(1)).await.unwrap();
        tx.commit().await.unwrap();
        let dead = outbox.dead();
        eventually("the event is dead", async || dead.count(&all()).await.unwrap() == 1).await;
        let shown = dead.query(&all(), 10).await.unwrap();
        assert_eq!((shown[0].attempts, shown[0].error.as_deref()), (2, Some("timeout: no answer")));
        assert!(shown[0].died_at.is_some());
        assert!(dead.replay(&shown[0].id).await.unwrap());
        recorder.until_answered(4).await;
        outbox.close().await.unwrap();
        let census = outbox.store().census(10).await.unwrap();
        assert_eq!((census.done.events, census.dead.events), (1, 0));
    }

    /// Rules: O-503, O-519.
    async fn ordered_delivers_in_the_order_of_creation(place) {
        let recorder = Recording::new();
        let outbox = Outbox::ordered(place.pool.clone())
            .interval(SOON).batch_size(10).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut ids = Vec::new();
        for n in 0..40 {
            let mut tx = outbox.begin().await.unwrap();
            ids.extend(tx.append(order(n % 3)).await.unwrap());
            tx.commit().await.unwrap();
        }
        recorder.until(40).await;
        assert_eq!(recorder.ids(), ids);
        outbox.close().await.unwrap();
    }

    /// Rules: O-086, O-523, O-524.
    async fn writer_only_writes_and_purges_by_age(place) {
        let settings = purge::Settings::default().retention(HOUR).interval(NEVER);
        let outbox = Outbox::writer_only(place.pool.clone()).purge(settings).start().await.unwrap();
        let aged = |hours: u32| {
            let at = SystemClock.now() - HOUR * hours;
            Event::of("OrderPlaced").occurred_at(at).json(&hours).unwrap()
        };
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all(vec![aged(3), aged(2), aged(0)]).await.unwrap();
        tx.commit().await.unwrap();
        outbox.purge().await.unwrap();
        let census = outbox.store().census(10).await.unwrap();
        assert_eq!((census.waiting.events, outbox.metrics().purge.total()), (1, 2));
        outbox.close().await.unwrap();
    }

    async fn a_second_node_where_there_must_be_one_is_told_so(place) {
        let first = Outbox::single_node(place.pool.clone()).interval(NEVER).start().await.unwrap();
        let second = Outbox::single_node(place.pool.clone()).start().await;
        assert!(matches!(second, Err(Error::NotAlone { .. })), "{second:?}");
        let ordered = Outbox::ordered(place.pool.clone()).start().await;
        assert!(matches!(ordered, Err(Error::NotAlone { .. })), "{ordered:?}");
        let elsewhere = Outbox::single_node(place.pool.clone()).table("another").start().await.unwrap();
        let unguarded = Outbox::single_node(place.pool.clone()).guard(false).interval(NEVER).start().await.unwrap();
        first.close().await.unwrap();
        let after = Outbox::single_node(place.pool.clone()).interval(NEVER).start().await.unwrap();
        for outbox in [after, unguarded, elsewhere] {
            outbox.close().await.unwrap();
        }
    }

    async fn a_refused_event_leaves_the_callers_transaction_usable(place) {
        let outbox = Outbox::writer_only(place.pool.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        assert!(tx.append_json("OrderPlaced", r#""\u0000""#).await.is_err());
        assert!(tx.append_json("OrderPlaced", format!("\"{}\"", "x".repeat(1 << 20))).await.is_err());
        tx.append(order(1)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(outbox.store().census(10).await.unwrap().waiting.events, 1);
    }

    async fn a_batch_larger_than_a_statement_is_appended_whole_or_not_at_all(place) {
        let outbox = Outbox::writer_only(place.pool.clone()).start().await.unwrap();
        let large = "x".repeat(1_000_000);
        let mut tx = outbox.begin().await.unwrap();
        let events = (0..20).map(|_| Event::of("OrderPlaced").json(&large).unwrap()).collect();
        assert_eq!(tx.append_all(events).await.unwrap().len(), 20);
        tx.append(Event::of("OrderPlaced").id("taken").json(&()).unwrap()).await.unwrap();
        tx.commit().await.unwrap();

        let mut tx = outbox.begin().await.unwrap();
        let mut events: Vec<_> = (0..600).map(order).collect();
        events.push(Event::of("OrderPlaced").id("taken").json(&()).unwrap());
        assert!(tx.append_all(events).await.is_err());
        tx.append(order(1)).await.unwrap(); // the transaction is usable, and holds nothing of the batch
        tx.commit().await.unwrap();
        assert_eq!(outbox.store().census(1_000).await.unwrap().waiting.events, 22);
    }
}
