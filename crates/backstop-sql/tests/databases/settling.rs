//! Settlements that take long, are refused or change nothing: no event is handled again for it, and health tells.

use std::time::Duration;

use backstop_core::Event;
use backstop_core::inspect::Health;
use backstop_sql::store::{SqlStore, Store as _};
use backstop_sql::{Error, Outbox, TableName};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};

use crate::*;

async fn append<DB: Supported>(outbox: &Outbox<DB>, events: Vec<Event>) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append_all(events).await.unwrap();
    tx.commit().await.unwrap();
}

async fn done<DB: Supported>(outbox: &Outbox<DB>) -> u64 {
    outbox.store().census(1_000).await.unwrap().done.events
}

/// The rows are written a moment before the trouble is over.
async fn until_up<DB: Supported>(outbox: &Outbox<DB>) {
    eventually("all is well", async || outbox.report().await.health == Health::Up).await;
}

backstop_testkit::suite! {
    over { sqlite: empty::<sqlx::Sqlite>, postgres: empty::<sqlx::Postgres> }

    async fn where_updates_change_nothing_deliveries_stand_still_and_go_on_later(place) {
        let recorder = Recording::new();
        let counted = recorder.clone();
        let slow = move |event: Event| {
            let recorder = counted.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                backstop_core::Handler::handle(&recorder, event).await
            }
        };
        let outbox = Outbox::single_node(place.pool.clone()).worker_count(1).interval(SOON)
            .on("Order", "OrderPlaced", slow).start().await.unwrap();
        place.swallow_updates().await;
        append(&outbox, (0..100).map(order).collect()).await;
        let still = async || matches!(outbox.report().await.health, Health::Down(_));
        eventually("deliveries to stand still", still).await;
        let Health::Down(why) = outbox.report().await.health else { panic!("it is up") };
        assert!(why.contains("changed no row") && why.contains("deliveries are stopped"), "{why}");
        tokio::time::sleep(SOON * 2).await; // the one that was in a worker's hands is handled
        let handled = recorder.ids().len();
        tokio::time::sleep(SOON * 10).await; // many looks of the poller
        let later = recorder.ids().len();
        assert!(handled < 50 && later <= handled + 1, "one may have been under way: {handled}, then {later}");
        place.take_updates().await;
        eventually("all to be done", async || done(&outbox).await == 100).await;
        until_up(&outbox).await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids().len(), 100, "each once");
    }

    async fn in_strict_order_nothing_comes_after_what_cannot_be_settled(place) {
        let recorder = Recording::new();
        let outbox = Outbox::ordered(place.pool.clone()).interval(SOON)
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        let events: Vec<_> = (0..30).map(order).collect();
        let ids: Vec<_> = events.iter().map(|event| event.id().to_owned()).collect();
        place.swallow_updates().await;
        append(&outbox, events).await;
        eventually("deliveries to stand still", async || matches!(outbox.report().await.health, Health::Down(_))).await;
        place.take_updates().await;
        eventually("all to be done", async || done(&outbox).await == 30).await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids(), ids, "each once, in order");
    }
}

backstop_testkit::suite! {
    over { postgres: empty::<sqlx::Postgres>, mysql: empty::<sqlx::MySql> }

    async fn a_settlement_that_waits_too_long_for_a_lock_is_written_later_and_nothing_comes_again(place) {
        let pool = place.impatient().await;
        for strict in [false, true] {
            let (gate, recorder) = (Slow::gated(), Recording::new());
            let counted = recorder.clone();
            let gated = gate.clone();
            let handler = move |event: Event| {
                let (recorder, gate) = (counted.clone(), gated.clone());
                async move {
                    backstop_core::Handler::handle(&recorder, event.clone()).await?;
                    backstop_core::Handler::handle(&gate, event).await
                }
            };
            let table = if strict { "strict" } else { "single" };
            let outbox = if strict {
                Outbox::ordered(pool.clone()).table(table).interval(SOON).on("Order", "OrderPlaced", handler).start().await
            } else {
                Outbox::single_node(pool.clone()).table(table).interval(SOON).on("Order", "OrderPlaced", handler).start().await
            };
            let outbox = outbox.unwrap();
            let events: Vec<_> = (0..20).map(order).collect();
            let ids: Vec<_> = events.iter().map(|event| event.id().to_owned()).collect();
            append(&outbox, events).await;
            gate.until_began(1).await;
            // Somebody looks at a row for longer than the settlement waits.
            let mut stranger = place.pool.begin().await.unwrap();
            let hold = format!("select event_id from {table} where event_id = '{}' for update", ids[0]);
            sqlx::query(sqlx::AssertSqlSafe(hold)).execute(&mut *stranger).await.unwrap();
            gate.open();
            let told = async || matches!(outbox.report().await.health, Health::Degraded(_) | Health::Down(_));
            eventually("the trouble to be told", told).await;
            stranger.rollback().await.unwrap();
            eventually("all to be done", async || done(&outbox).await == 20).await;
            until_up(&outbox).await;
            outbox.close().await.unwrap();
            let mut handled = recorder.ids();
            if !strict {
                handled.sort();
            }
            let mut all = ids;
            if !strict {
                all.sort();
            }
            assert_eq!(handled, all, "each once");
        }
    }

    async fn who_may_not_delete_rows_is_told_at_the_start_where_rows_are_deleted(place) {
        Outbox::writer_only(place.pool.clone()).start().await.unwrap().close().await.unwrap();
        let (pool, afterwards) = place.keeper().await;
        let kept = Outbox::single_node(pool.clone()).start().await;
        if let Ok(outbox) = &kept {
            outbox.close().await.unwrap();
        }
        let deleting = Outbox::single_node(pool.clone()).done(Done::Delete).start().await;
        let purging = Outbox::single_node(pool.clone()).purge(purge::Settings::default()).start().await;
        pool.close().await;
        place.run(&afterwards).await;
        kept.unwrap();
        for refused in [deleting, purging] {
            assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{refused:?}");
        }
    }

    async fn who_may_not_change_rows_is_told_at_the_start(place) {
        Outbox::writer_only(place.pool.clone()).start().await.unwrap().close().await.unwrap();
        let (pool, afterwards) = place.reader().await;
        let refused = Outbox::single_node(pool).start().await;
        place.run(&afterwards).await;
        assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{refused:?}");
    }
}

backstop_testkit::suite! {
    over { postgres: empty::<sqlx::Postgres>, mysql: empty::<sqlx::MySql> }

    async fn what_was_handled_is_written_although_the_application_keeps_every_connection_of_the_pool(place) {
        let small = place.of_size(2).await;
        let recorder = Recording::new();
        let gate = Slow::gated().then(recorder.clone());
        let outbox = Outbox::multi_node(small.clone()).claim_locking(MINUTES).interval(SOON)
            .on("Order", "OrderPlaced", gate.clone()).start().await.unwrap();
        append(&outbox, (0..20).map(order).collect()).await;
        gate.until_began(1).await;
        let all = [small.acquire().await.unwrap(), small.acquire().await.unwrap()];
        gate.open();
        let table = SqlStore::on(place.pool.clone(), TableName::default());
        eventually("all to be done", async || table.census(100).await.unwrap().done.events == 20).await;
        drop(all);
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids().len(), 20, "each once");
    }
}

backstop_testkit::suite! {
    over { mysql: empty::<sqlx::MySql> }

    /// MySQL has numbers for what it has no SQLSTATE for: a full disk, and waits that took too long.
    async fn what_passes_by_itself_is_waited_for_and_not_taken_for_a_refusal(place) {
        let recorder = Recording::new();
        let outbox = Outbox::ordered(place.pool.clone()).interval(SOON)
            .on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        for (number, events) in [1021, 1026, 1114, 1205, 1969, 3024, 4031].into_iter().zip(1..) {
            place.run(&format!(
                "create trigger refuse before update on outbox_event for each row \
                 signal sqlstate 'HY000' set mysql_errno = {number}, message_text = 'on purpose'"
            )).await;
            append(&outbox, vec![order(events)]).await;
            let mut health = Health::Up;
            eventually("it to be told", async || {
                health = outbox.report().await.health;
                health != Health::Up
            }).await;
            // Down would mean that it is refused: then nothing is delivered until somebody has looked at it.
            let waits = matches!(&health, Health::Degraded(why) if why.contains(&number.to_string()));
            assert!(waits, "{number}: {health:?}");
            place.run("drop trigger refuse").await;
            until_up(&outbox).await;
            assert_eq!(done(&outbox).await, events as u64);
        }
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids().len(), 7, "each once");
    }
}
