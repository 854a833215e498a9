//! Backpressure: queues have an end, the table has none, and nobody who writes is made to wait.

use std::time::Duration;

use backstop_core::Event;
use backstop_sql::Outbox;
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use tracing::Level;

use crate::harness::{DONE, Database, NEW, Shop, order, shop};
use crate::logs::Logs;
use crate::steps::{commit, orders, until_count, until_status};

/// An outbox with one worker that waits at the gate, and room for two events in each queue.
async fn small<DB: Database>(shop: &Shop<DB>, gate: &Slow) -> Outbox<DB> {
    shop.outbox()
        .worker_count(1)
        .hot_queue_capacity(2)
        .cold_queue_capacity(2)
        .on("Order", "OrderPlaced", gate.clone())
        .start()
        .await
        .unwrap()
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-328, O-400, O-401, O-405, O-406, O-407, O-409.
    async fn what_the_full_hot_queue_refuses_is_committed_told_and_delivered_by_the_poller(shop) {
        let logs = Logs::catch();
        let recorder = Recording::new();
        let gate = Slow::gated().then(recorder.clone());
        let outbox = small(&shop, &gate).await;
        commit(&outbox, vec![order("busy")]).await;
        gate.until_began(1).await;
        commit(&outbox, orders(5)).await; // two find room
        assert_eq!(outbox.metrics().enqueue_hot.total(), 3);
        assert_eq!(outbox.metrics().enqueue_hot_dropped.total(), 3);
        for refused in ["0002", "0003", "0004"] {
            assert_eq!(shop.row(refused).await.status, NEW);
            let told = logs.having(Level::WARN, &format!("event_id=\"{refused}\""));
            assert!(told.len() == 1 && told[0].contains("OrderPlaced"), "{}", logs.all());
        }
        gate.open();
        eventually("the poller to deliver", async || {
            outbox.nudge();
            shop.count(DONE).await == 6
        })
        .await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.events().len(), 6);
    }
}

/// Rules: O-407.
#[tokio::test]
async fn a_refusal_while_closing_counts_as_well() {
    let shop = Shop::open().await;
    let outbox = small(&shop, &Slow::gated()).await;
    outbox.close().await.unwrap();
    commit(&outbox, vec![order("late")]).await;
    assert_eq!(outbox.metrics().enqueue_hot_dropped.total(), 1);
    assert_eq!(shop.row("late").await.status, NEW);
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-402, O-404, O-410, O-411.
    async fn while_nothing_moves_downstream_every_event_waits_in_the_table_and_then_arrives(shop) {
        let recorder = Recording::new();
        let gate = Slow::gated().then(recorder.clone());
        let outbox = small(&shop, &gate).await;
        for event in orders(30) {
            commit(&outbox, vec![event]).await;
            outbox.nudge();
        }
        shop.insert(&[order("elsewhere")]).await;
        eventually("full queues", async || {
            outbox.nudge();
            outbox.metrics().queue_hot_depth.value() == 2 && outbox.metrics().queue_cold_depth.value() == 2
        })
        .await;
        let queued = outbox.metrics().enqueue_hot.total() + outbox.metrics().enqueue_cold.total();
        assert_eq!((queued, shop.count(NEW).await), (5, 31)); // one is being handled, four wait
        gate.open();
        eventually("the rest", async || {
            outbox.nudge();
            shop.count(DONE).await == 31
        })
        .await;
        outbox.close().await.unwrap();
        let mut ids = recorder.ids();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), recorder.events().len()), (31, 31));
    }
}

/// Rules: O-408.
#[tokio::test]
async fn a_delayed_event_is_no_drop() {
    let shop = Shop::open().await;
    let outbox = small(&shop, &Slow::gated()).await;
    let later =
        Event::of("OrderPlaced").id("1").aggregate("Order", "1").deliver_after(Duration::from_secs(60));
    commit(&outbox, vec![later.json(&()).unwrap()]).await;
    let metrics = outbox.metrics();
    assert_eq!(metrics.enqueue_hot_skipped_delayed.total(), 1);
    assert_eq!((metrics.enqueue_hot.total(), metrics.enqueue_hot_dropped.total()), (0, 0));
    outbox.close().await.unwrap();
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-366, O-367, O-369.
    async fn for_change_data_capture_rows_are_written_with_their_id_and_stay_as_they_are(shop) {
        let outbox = Outbox::writer_only(shop.pool.clone()).start().await.unwrap();
        let mut tx = outbox.begin().await.unwrap();
        let id = tx.append_json("OrderPlaced", "{}").await.unwrap().unwrap();
        tx.commit().await.unwrap();
        outbox.nudge();
        outbox.close().await.unwrap();
        assert_eq!((shop.rows().await, shop.row(&id).await.status), (1, NEW));
        assert_eq!((outbox.metrics().enqueue_hot.total(), outbox.metrics().enqueue_hot_dropped.total()), (0, 0));
    }

    /// Rules: O-369.
    async fn a_handler_sees_the_same_id_at_every_delivery_of_an_event(shop) {
        let recorder = Recording::of(backstop_testkit::handlers::Failing::times(2));
        let outbox = shop
            .outbox()
            .interval(Duration::from_millis(2))
            .retry_policy(|_: u32, _| Duration::ZERO)
            .on_global("Tick", recorder.clone())
            .start()
            .await
            .unwrap();
        let tick = Event::of_json("Tick", "{}").unwrap();
        let id = tick.id().to_owned();
        shop.insert(&[tick]).await;
        until_status(&shop, &id, DONE).await;
        outbox.close().await.unwrap();
        assert_eq!(recorder.ids(), [id.clone(), id.clone(), id]);
    }
}

database_suite! {
    over shop on 4 threads

    async fn sixteen_tasks_commit_at_once_into_a_small_outbox_and_each_event_arrives_once(shop) {
        let recorder = Recording::new();
        let outbox = shop
            .outbox()
            .interval(Duration::from_millis(5))
            .hot_queue_capacity(3)
            .cold_queue_capacity(3)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..16 {
            let outbox = outbox.clone();
            tasks.spawn(async move {
                for n in 0..4 {
                    commit(&outbox, (0..5).map(|m| order(&format!("{task:02}-{n}-{m}"))).collect()).await;
                }
            });
        }
        tasks.join_all().await;
        until_count(&shop, DONE, 320).await;
        outbox.close().await.unwrap();
        let mut ids = recorder.ids();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), shop.rows().await), (320, 320));
    }
}

database_suite! {
    over shop on 1 thread

    async fn a_backlog_larger_than_the_queue_does_not_wait_for_the_interval(shop) {
        let events: Vec<_> = (0..300).map(|n| order(&format!("{n:03}"))).collect();
        shop.insert(&events).await;
        let recorder = Recording::new();
        let outbox = shop
            .outbox() // its poller rests for an hour
            .batch_size(50)
            .cold_queue_capacity(20)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        recorder.until(300).await;
        outbox.close().await.unwrap();
        assert_eq!((recorder.events().len(), shop.count(DONE).await), (300, 300));
    }
}
