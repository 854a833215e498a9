//! What a driver says of a transaction is not the truth: only what is in the table is delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::outbox::{Hook, HookError};
use backstop_sql::{Error, Outbox};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Recording;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::*;

/// Counts what a writer was told of its events.
#[derive(Clone, Default)]
struct Told {
    committed: Arc<AtomicUsize>,
    rolled_back: Arc<AtomicUsize>,
}

impl Told {
    fn counts(&self) -> (usize, usize) {
        (self.committed.load(Ordering::SeqCst), self.rolled_back.load(Ordering::SeqCst))
    }
}

impl Hook for Told {
    fn after_commit(&self, events: &[Event]) -> Result<(), HookError> {
        self.committed.fetch_add(events.len(), Ordering::SeqCst);
        Ok(())
    }

    fn after_rollback(&self, events: &[Event]) -> Result<(), HookError> {
        self.rolled_back.fetch_add(events.len(), Ordering::SeqCst);
        Ok(())
    }
}

fn named(id: &str) -> Event {
    Event::of("OrderPlaced").id(id).aggregate("Order", "1").json(&()).unwrap()
}

fn holding(id: &str, payload: &str) -> Event {
    Event::of("OrderPlaced").id(id).aggregate("Order", "1").json(payload).unwrap()
}

fn table(several: bool) -> &'static str {
    if several { "several" } else { "single" }
}

/// An outbox for one node or for several, each on a table of its own, that never looks by itself.
async fn node<DB: Supported>(
    pool: &sqlx::Pool<DB>,
    several: bool,
    told: &Told,
    recorder: &Recording,
) -> Outbox<DB> {
    let (pool, table) = (pool.clone(), table(several));
    let outbox = if several {
        let builder = Outbox::multi_node(pool).claim_locking(MINUTES).worker_count(1).table(table);
        builder.hook(told.clone()).interval(NEVER).on("Order", "OrderPlaced", recorder.clone()).start().await
    } else {
        let builder = Outbox::single_node(pool).worker_count(1).table(table);
        builder.hook(told.clone()).interval(NEVER).on("Order", "OrderPlaced", recorder.clone()).start().await
    };
    outbox.unwrap()
}

/// Ends when the outbox has delivered an event that was appended after all others: what would have been delivered from
/// memory was delivered before.
async fn until_last<DB: Supported>(outbox: &Outbox<DB>, recorder: &Recording) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append(named("last")).await.unwrap();
    tx.commit().await.unwrap();
    eventually("the last one", async || recorder.ids().contains(&"last".to_owned())).await;
}

database_suite! {
    over empty

    async fn what_a_savepoint_has_undone_is_not_delivered_and_the_rest_is(place) {
        for several in [false, true] {
            let (recorder, told) = (Recording::new(), Told::default());
            let outbox = node(&place.pool, several, &told, &recorder).await;
            let mut tx = outbox.begin().await.unwrap();
            tx.append(named("a")).await.unwrap();
            sqlx::raw_sql("savepoint mine").execute(&mut *tx).await.unwrap();
            tx.append_all(vec![named("b"), named("c")]).await.unwrap();
            sqlx::raw_sql("rollback to savepoint mine").execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
            until_last(&outbox, &recorder).await;
            assert_eq!((recorder.ids(), told.counts()), (vec!["a".to_owned(), "last".to_owned()], (2, 2)));
            assert_eq!(outbox.metrics().append.total(), 2);
            outbox.close().await.unwrap();
        }
    }

    async fn a_savepoint_of_the_drivers_own_counts_too_and_a_transaction_may_be_left_with_nothing(place) {
        let recorder = Recording::new();
        let outbox = Outbox::single_node(place.pool.clone()).worker_count(1).interval(NEVER)
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        let mut inner = tx.begin().await.unwrap();
        let appended = outbox.writer().append(&mut inner, named("b")).await.unwrap();
        inner.rollback().await.unwrap();
        appended.rolled_back();
        sqlx::raw_sql("savepoint mine").execute(&mut *tx).await.unwrap();
        tx.append(named("c")).await.unwrap();
        sqlx::raw_sql("rollback to savepoint mine").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        until_last(&outbox, &recorder).await;
        assert_eq!(recorder.ids(), ["last"]);
        outbox.close().await.unwrap();
    }

    async fn of_several_events_that_were_appended_under_one_id_the_last_is_delivered(place) {
        for several in [false, true] {
            let (recorder, told) = (Recording::new(), Told::default());
            let outbox = node(&place.pool, several, &told, &recorder).await;
            let table = table(several);
            let text = |text: String| sqlx::raw_sql(AssertSqlSafe(text));
            let mut tx = outbox.begin().await.unwrap();
            for (id, undone) in [("a", "rollback to savepoint mine".to_owned()), ("b", format!("delete from {table} where event_id = 'b'"))] {
                text("savepoint mine".to_owned()).execute(&mut *tx).await.unwrap();
                tx.append(holding(id, "undone")).await.unwrap();
                text(undone).execute(&mut *tx).await.unwrap();
                tx.append(holding(id, "kept")).await.unwrap();
            }
            tx.commit().await.unwrap();
            // The same with a transaction of one's own, of whose first part the caller says what is not so, and late.
            let mut tx = place.pool.begin().await.unwrap();
            text("savepoint mine".to_owned()).execute(&mut *tx).await.unwrap();
            let undone = outbox.writer().append_all(&mut tx, vec![holding("c", "undone"), holding("d", "undone")]).await.unwrap();
            text("rollback to savepoint mine".to_owned()).execute(&mut *tx).await.unwrap();
            let kept = outbox.writer().append_all(&mut tx, vec![holding("c", "kept"), holding("d", "kept")]).await.unwrap();
            tx.commit().await.unwrap();
            undone.committed();
            kept.committed();
            recorder.until(4).await;
            until_last(&outbox, &recorder).await;
            let delivered: Vec<_> = recorder.events().iter().map(|event| format!("{} {}", event.id(), event.payload_json())).collect();
            assert_eq!(delivered, [r#"a "kept""#, r#"b "kept""#, r#"c "kept""#, r#"d "kept""#, "last null"]);
            assert_eq!(outbox.metrics().enqueue_hot.total(), 5);
            outbox.close().await.unwrap();
        }
    }

    async fn a_word_about_an_event_that_was_undone_gives_away_no_claim_of_the_next_with_its_id(place) {
        let recorder = Recording::new();
        let counted = recorder.clone();
        let slow = move |event: Event| {
            let recorder = counted.clone();
            async move {
                backstop_core::Handler::handle(&recorder, event).await?;
                tokio::time::sleep(SOON * 10).await;
                Ok::<_, Failure>(Outcome::Done)
            }
        };
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let node = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).interval(SOON / 2).worker_count(4);
            nodes.push(node.on("Order", "OrderPlaced", slow.clone()).start().await.unwrap());
        }
        let writer = nodes[0].writer();
        for (id, before) in [("a", true), ("b", false)] {
            let mut tx = place.pool.begin().await.unwrap();
            let undone = writer.append(&mut tx, named(id)).await.unwrap();
            tx.rollback().await.unwrap();
            let undone = if before { drop(undone); None } else { Some(undone) };
            let mut tx = place.pool.begin().await.unwrap();
            let kept = writer.append(&mut tx, named(id)).await.unwrap();
            drop(undone);
            tx.commit().await.unwrap();
            kept.committed();
        }
        eventually("both done", async || nodes[0].store().census(10).await.unwrap().done.events == 2).await;
        for node in nodes {
            node.close().await.unwrap();
        }
        assert_eq!(recorder.ids().len(), 2, "{:?}", recorder.ids());
    }

    async fn a_callers_word_for_a_commit_is_looked_up(place) {
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).worker_count(1).interval(NEVER)
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        // A transaction that rolls back, whose owner believes otherwise.
        let mut tx = place.pool.begin().await.unwrap();
        let gone = outbox.writer().append(&mut tx, named("a")).await.unwrap();
        tx.rollback().await.unwrap();
        gone.committed();
        let mut tx = place.pool.begin().await.unwrap();
        let kept = outbox.writer().append_all(&mut tx, vec![named("b"), named("c")]).await.unwrap();
        tx.commit().await.unwrap();
        kept.committed();
        recorder.until(2).await;
        until_last(&outbox, &recorder).await;
        assert_eq!(recorder.ids(), ["b", "c", "last"]);
        assert_eq!(outbox.metrics().enqueue_hot.total(), 3);
        outbox.close().await.unwrap();
    }

    async fn two_nodes_one_of_which_believes_to_be_alone_do_not_share_a_table(place) {
        let several = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).interval(NEVER);
        let several = several.start().await.unwrap();
        let single = Outbox::single_node(place.pool.clone()).start().await;
        assert!(matches!(single, Err(Error::NotAlone { .. })), "{single:?}");
        let another = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).interval(NEVER).start().await.unwrap();
        several.close().await.unwrap();
        let single = Outbox::ordered(place.pool.clone()).start().await;
        assert!(matches!(single, Err(Error::NotAlone { .. })), "{single:?}");
        another.close().await.unwrap();
        let single = Outbox::single_node(place.pool.clone()).interval(NEVER).start().await.unwrap();
        let several = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).start().await;
        assert!(matches!(several, Err(Error::NotAlone { .. })), "{several:?}");
        single.close().await.unwrap();
    }

    async fn a_claim_does_not_run_out_under_a_handler_because_its_transaction_was_open_for_long(place) {
        const GRACE: Duration = Duration::from_millis(1_500);
        let recorder = Recording::new();
        let counted = recorder.clone();
        let slow = move |event: Event| {
            let recorder = counted.clone();
            async move {
                backstop_core::Handler::handle(&recorder, event).await?;
                tokio::time::sleep(GRACE).await;
                Ok::<_, Failure>(Outcome::Done)
            }
        };
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let builder = Outbox::multi_node(place.pool.clone()).claim_locking(GRACE * 2).hot_grace(GRACE);
            let node = builder.interval(SOON).worker_count(8).on("Order", "OrderPlaced", slow.clone()).start();
            nodes.push(node.await.unwrap());
        }
        let mut tx = nodes[0].begin().await.unwrap();
        tx.append_all((0..6).map(order).collect()).await.unwrap();
        tokio::time::sleep(GRACE * 8 / 10).await;
        tx.commit().await.unwrap();
        eventually("six done", async || nodes[0].store().census(10).await.unwrap().done.events == 6).await;
        for node in nodes {
            node.close().await.unwrap();
        }
        assert_eq!(recorder.ids().len(), 6, "each once: {:?}", recorder.ids());
    }

    async fn a_close_that_was_given_up_goes_on_and_leaves_no_claim(place) {
        let gate = backstop_testkit::handlers::Slow::gated();
        let outbox = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).interval(NEVER).worker_count(1)
            .drain_timeout(Duration::from_secs(30)).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append_all((0..5).map(order).collect()).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        assert!(tokio::time::timeout(SOON, outbox.close()).await.is_err(), "it waits for the handler");
        gate.open();
        outbox.close().await.unwrap();
        let claimed = "select count(*) from outbox_event where locked_by is not null";
        let claimed: i64 = sqlx::query_scalar(claimed).fetch_one(&place.pool).await.unwrap();
        assert_eq!(claimed, 0);
    }
}

backstop_testkit::suite! {
    over { postgres: empty::<sqlx::Postgres>, mysql: empty::<sqlx::MySql> }

    async fn a_commit_whose_session_has_ended_is_an_outage_and_no_fault_of_the_transaction(place) {
        let (recorder, told) = (Recording::new(), Told::default());
        let outbox = Outbox::single_node(place.pool.clone()).worker_count(1).interval(NEVER).hook(told.clone())
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(named("a")).await.unwrap();
        place.end(&mut tx).await;
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(error, Error::Database { .. }), "{error}");
        until_last(&outbox, &recorder).await;
        assert_eq!((recorder.ids(), told.counts()), (vec!["last".to_owned()], (1, 1)));
        outbox.close().await.unwrap();
    }
}

backstop_testkit::suite! {
    over { postgres: empty::<sqlx::Postgres> }

    async fn a_commit_of_a_failed_transaction_that_holds_no_events_is_an_error_too(place) {
        let outbox = Outbox::single_node(place.pool.clone()).interval(NEVER).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(named("a")).await.unwrap();
        tx.commit().await.unwrap();
        for appends in [false, true] {
            let mut tx = outbox.begin().await.unwrap();
            if appends {
                tx.append(named("a")).await.unwrap_err(); // there is one already
            } else {
                sqlx::query("select no_such_column from outbox_event").execute(&mut *tx).await.unwrap_err();
            }
            let committed = tx.commit().await;
            assert!(matches!(committed, Err(Error::RolledBack { .. })), "{committed:?}");
        }
        outbox.begin().await.unwrap().commit().await.unwrap();
        outbox.close().await.unwrap();
    }

    async fn a_commit_of_a_transaction_that_has_failed_is_an_error(place) {
        let (recorder, told) = (Recording::new(), Told::default());
        let outbox = Outbox::single_node(place.pool.clone()).worker_count(1).interval(NEVER).hook(told.clone())
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(named("a")).await.unwrap();
        assert!(sqlx::query("insert into outbox_event (event_id) values ('a')").execute(&mut *tx).await.is_err());
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(error, Error::RolledBack { .. }), "{error}");
        until_last(&outbox, &recorder).await;
        assert_eq!((recorder.ids(), told.counts()), (vec!["last".to_owned()], (1, 1)));
        outbox.close().await.unwrap();
    }
}

backstop_testkit::suite! {
    over { mysql: empty::<sqlx::MySql> }

    async fn a_commit_after_a_deadlock_has_rolled_all_of_it_back_is_an_error(place) {
        let recorder = Recording::new();
        let outbox = Outbox::single_node(place.pool.clone()).worker_count(1).interval(NEVER)
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        sqlx::query("create table stock (id int primary key, n int)").execute(&place.pool).await.unwrap();
        let rows: Vec<_> = (1..200).map(|id| format!("({id}, 0)")).collect();
        let fill = format!("insert into stock values {}", rows.join(", "));
        sqlx::query(AssertSqlSafe(fill)).execute(&place.pool).await.unwrap();
        for later in [false, true] {
            let mut tx = outbox.begin().await.unwrap();
            if !later {
                tx.append(named("a")).await.unwrap();
            }
            sqlx::query("update stock set n = n + 1 where id = 1").execute(&mut *tx).await.unwrap();
            // The other has changed more, so that ours is the one that is given up.
            let mut other = place.pool.begin().await.unwrap();
            sqlx::query("update stock set n = n + 1 where id > 1").execute(&mut *other).await.unwrap();
            let ours = async { sqlx::query("update stock set n = n + 1 where id = 2").execute(&mut *tx).await };
            let others = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                sqlx::query("update stock set n = n + 1 where id = 1").execute(&mut *other).await
            };
            let (ours, others) = tokio::join!(ours, others);
            assert!(ours.is_err() && others.is_ok(), "{ours:?} {others:?}");
            other.rollback().await.unwrap();
            if later {
                // The session goes on, without a transaction: what is appended now would be committed by itself.
                let error = tx.append(named("b")).await.unwrap_err();
                assert!(matches!(error, Error::RolledBack { .. }), "{error}");
            }
            let error = tx.commit().await.unwrap_err();
            assert!(matches!(error, Error::RolledBack { .. }), "{error}");
        }
        until_last(&outbox, &recorder).await;
        assert_eq!((recorder.ids(), rows_in(&place.pool).await), (vec!["last".to_owned()], 1));
        outbox.close().await.unwrap();
    }

    async fn nothing_is_appended_in_a_transaction_that_a_statement_has_committed(place) {
        let outbox = Outbox::single_node(place.pool.clone()).interval(NEVER).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        sqlx::query("create table stock (id int)").execute(&mut *tx).await.unwrap();
        let error = tx.append(named("a")).await.unwrap_err().to_string();
        assert!(error.contains("such as CREATE TABLE"), "{error}");
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(error, Error::RolledBack { .. }), "{error}");
        let mut own = place.pool.begin().await.unwrap();
        sqlx::query("create table shelf (id int)").execute(&mut *own).await.unwrap();
        let error = outbox.writer().append(&mut own, named("b")).await.unwrap_err();
        assert!(matches!(error, Error::RolledBack { .. }), "{error}");
        drop(own);
        assert_eq!(rows_in(&place.pool).await, 0);
        outbox.close().await.unwrap();
    }
}

backstop_testkit::suite! {
    over { sqlite: empty::<sqlx::Sqlite> }

    async fn a_transaction_that_sqlite_rolled_back_takes_no_more_events_and_leaves_its_connection_usable(place) {
        let one = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
        let pool = one.connect_with((*place.pool.connect_options()).clone()).await.unwrap();
        let outbox = Outbox::single_node(pool.clone()).interval(NEVER).start().await.unwrap();
        sqlx::query("create table stock (id int primary key)").execute(&pool).await.unwrap();
        sqlx::query("insert into stock values (1)").execute(&pool).await.unwrap();
        for ending in ["dropped", "rolled back", "appended and dropped", "appended and committed"] {
            let mut tx = outbox.begin().await.unwrap_or_else(|error| panic!("before {ending}: {error}"));
            sqlx::query("insert or rollback into stock values (1)").execute(&mut *tx).await.unwrap_err();
            if ending.starts_with("appended") {
                let error = tx.append(named("a")).await.unwrap_err();
                assert!(matches!(error, Error::RolledBack { .. }), "{error}");
            }
            match ending {
                "rolled back" => drop(tx.rollback().await),
                "appended and committed" => drop(tx.commit().await.unwrap_err()),
                _ => drop(tx),
            }
        }
        let mut tx = outbox.begin().await.unwrap();
        tx.append(named("b")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(rows_in(&pool).await, 1);
        outbox.close().await.unwrap();
    }
}

backstop_testkit::suite! {
    over { postgres: empty::<sqlx::Postgres> }

    async fn connections_beside_the_pool_see_the_table_that_its_own_see(place) {
        const GRACE: Duration = Duration::from_millis(900);
        // Another table of the same name, where a connection looks by itself.
        let decoy = Outbox::multi_node(place.pool.clone()).claim_locking(MINUTES).interval(NEVER).start().await.unwrap();
        place.run("create schema elsewhere").await;
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(3).min_connections(1).after_connect(|connection, _| {
            Box::pin(async move { sqlx::query("set search_path to elsewhere").execute(connection).await.map(drop) })
        });
        let pool = pool.connect_with((*place.pool.connect_options()).clone()).await.unwrap();
        let gate = backstop_testkit::handlers::Slow::gated();
        let outbox = Outbox::multi_node(pool.clone()).claim_locking(GRACE * 2).hot_grace(GRACE).interval(SOON).worker_count(1)
            .on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(named("a")).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        tokio::time::sleep(GRACE * 4).await; // twice what a claim lasts
        gate.open();
        eventually("it to be done", async || outbox.store().census(10).await.unwrap().done.events == 1).await;
        outbox.close().await.unwrap();
        decoy.close().await.unwrap();
        assert_eq!((gate.began(), outbox.metrics().settle_late.total()), (1, 0));
    }
}

backstop_testkit::suite! {
    over { postgres: empty::<sqlx::Postgres>, mysql: empty::<sqlx::MySql> }

    async fn claims_are_renewed_while_the_application_has_every_connection_of_the_pool(place) {
        const GRACE: Duration = Duration::from_millis(900);
        let small = place.of_size(2).await;
        let (gate, recorder) = (backstop_testkit::handlers::Slow::gated(), Recording::new());
        let node = |pool| Outbox::multi_node(pool).claim_locking(GRACE * 2).hot_grace(GRACE).interval(SOON).worker_count(1);
        let busy = node(small.clone()).on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        let other = node(place.pool.clone()).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let mut tx = busy.begin().await.unwrap();
        tx.append(named("a")).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        let all = [small.acquire().await.unwrap(), small.acquire().await.unwrap()];
        tokio::time::sleep(GRACE * 4).await; // twice what a claim lasts
        assert_eq!(recorder.ids(), [""; 0], "nobody else has it");
        drop(all);
        gate.open();
        eventually("it to be done", async || busy.store().census(10).await.unwrap().done.events == 1).await;
        busy.close().await.unwrap();
        other.close().await.unwrap();
        assert_eq!(recorder.ids(), [""; 0]);
    }
}
