//! Several nodes on one table: claims decide who delivers, and none outlives its use.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::burial::Cause;
use backstop_core::{CloudEvent, Event, Failure, Outcome};
use backstop_sql::Outbox;
use backstop_sql::outbox::poller::Settings;
use backstop_sql::outbox::{Builder, MultiNode};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};
use tracing::Level;

use crate::flaky::Flaky;
use crate::harness::{DEAD, DONE, Database, NEVER, NEW, RETRY, Shop, metrics, order, shop};
use crate::logs::Logs;
use crate::steps::{commit, orders, until_count, until_status};

/// A node whose claims last as long as the tests do, and whose poller sleeps unless it is nudged.
fn node<DB: Database>(shop: &Shop<DB>, name: &str) -> Builder<DB, MultiNode> {
    Outbox::multi_node(shop.pool.clone()).interval(NEVER).hot_grace(NEVER).claim_locking_as(name, NEVER)
}

/// A node with one worker, kept busy at the gate, and room for one event in each queue: the hot one is full.
async fn busy<DB: Database>(shop: &Shop<DB>, gate: &Slow) -> Outbox<DB> {
    let outbox = node(shop, "a")
        .worker_count(1)
        .hot_queue_capacity(1)
        .cold_queue_capacity(1)
        .on("Order", "OrderPlaced", gate.clone())
        .start()
        .await
        .unwrap();
    commit(&outbox, vec![order("busy")]).await;
    gate.until_began(1).await;
    commit(&outbox, vec![order("queued")]).await;
    outbox
}

database_suite! {
    over shop on 4 threads

    /// Rules: O-012, O-344.
    async fn two_nodes_share_a_backlog_and_no_event_is_delivered_twice(shop) {
        shop.insert(&orders(120)).await;
        let recorder = Recording::new();
        let mut nodes = Vec::new();
        for name in ["a", "b"] {
            let builder = node(&shop, name).batch_size(5).on("Order", "OrderPlaced", recorder.clone());
            nodes.push(builder.start().await.unwrap());
        }
        until_count(&shop, DONE, 120).await;
        for node in &nodes {
            node.close().await.unwrap();
        }
        let mut ids = recorder.ids();
        ids.sort_unstable();
        assert_eq!(ids, orders(120).iter().map(Event::id).collect::<Vec<_>>());
    }
}

database_suite! {
    over shop on 1 thread

    async fn what_waits_in_one_nodes_memory_is_not_taken_by_another(shop) {
        let gate = Slow::gated();
        let a = busy(&shop, &gate).await;
        let (store, switches) = Flaky::around(shop.store.clone());
        let recorder = Recording::new();
        let b = node(&shop, "b").store(store).on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        eventually("b to look", async || switches.polls.load(Ordering::SeqCst) > 0).await;
        b.close().await.unwrap();
        assert!(recorder.events().is_empty());
        assert_eq!(shop.row("queued").await.locked_by.as_deref(), Some("a"));
        gate.open();
        until_count(&shop, DONE, 2).await;
        a.close().await.unwrap();
    }

    /// Rules: O-400.
    async fn what_the_full_hot_queue_refuses_is_free_for_another_node_at_once(shop) {
        let gate = Slow::gated();
        let a = busy(&shop, &gate).await;
        shop.insert(&[order("cold")]).await;
        a.nudge();
        eventually("a full cold queue", async || a.metrics().queue_cold_depth.value() == 1).await;
        commit(&a, vec![order("refused")]).await;
        eventually("the claim to go", async || shop.row("refused").await.locked_by.is_none()).await;
        let recorder = Recording::new();
        let b = node(&shop, "b").on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        until_status(&shop, "refused", DONE).await;
        assert_eq!(recorder.ids(), ["refused"]);
        gate.open();
        for node in [a, b] {
            node.close().await.unwrap();
        }
    }

    async fn what_a_dropped_token_stood_for_is_free_for_another_node_at_once(shop) {
        let (store, switches) = Flaky::around(shop.store.clone());
        let a = node(&shop, "a").store(store).start().await.unwrap();
        eventually("a to look", async || switches.polls.load(Ordering::SeqCst) > 0).await;
        switches.poll_fails.store(true, Ordering::SeqCst); // it only gives back, and takes nothing
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = a.writer().append(&mut tx, order("1")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(shop.row("1").await.locked_by.as_deref(), Some("a"));
        drop(appended);
        eventually("the claim to go", async || shop.row("1").await.locked_by.is_none()).await;
        let recorder = Recording::new();
        let b = node(&shop, "b").on("Order", "OrderPlaced", recorder.clone()).start().await.unwrap();
        recorder.until(1).await;
        for node in [a, b] {
            node.close().await.unwrap();
        }
    }

    async fn a_claim_that_cannot_be_given_back_does_not_keep_the_others(shop) {
        shop.refuse_updates("refuse", "new.event_id = 'bad' and new.locked_by is null").await;
        let gate = Slow::gated();
        let a = busy(&shop, &gate).await;
        commit(&a, ["bad", "good", "better"].map(order).to_vec()).await;
        gate.open();
        eventually("the others to arrive", async || {
            a.nudge();
            shop.count(DONE).await == 4
        })
        .await;
        a.close().await.unwrap();
        assert_eq!(shop.row("bad").await.status, NEW);
    }

    async fn an_expired_claim_is_delivered_again_and_the_late_settlement_changes_nothing(shop) {
        let logs = Logs::catch();
        let gate = Slow::gated().then(Failing::always());
        let short = Duration::from_millis(200);
        let (store, _) = Flaky::around(shop.store.clone()); // renews nothing, like a node that hangs
        let a = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", short)
            .store(store)
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        commit(&a, vec![order("1")]).await;
        gate.until_began(1).await;
        let recorder = Recording::new();
        let b = Outbox::multi_node(shop.pool.clone())
            .interval(Duration::from_millis(5))
            .claim_locking_as("b", short)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let row = until_status(&shop, "1", DONE).await;
        gate.open();
        eventually("the late settlement", async || a.metrics().settle_late.total() == 1).await;
        assert_eq!(shop.row("1").await, row);
        assert!(!logs.having(Level::WARN, "too late").is_empty(), "{}", logs.all());
        for node in [a, b] {
            node.close().await.unwrap();
        }
        assert_eq!(recorder.events().len(), 1);
    }

    async fn an_event_that_another_node_has_by_now_leaves_no_dead_letter(shop) {
        let gate = Slow::gated().then(Failing::always().with(|| Failure::permanent("test", "no")));
        let letters = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&letters);
        let short = Duration::from_millis(200);
        let (store, switches) = Flaky::around(shop.store.clone());
        switches.renew_fails.store(true, Ordering::SeqCst);
        let a = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", short)
            .store(store)
            .on("Order", "OrderPlaced", gate.clone())
            .on("Order", "OrderCancelled", |_: Event| async { Outcome::dead() })
            .dead_letters(move |event: CloudEvent, _: Cause| {
                written.lock().unwrap().push(event.id().to_owned());
                async { Ok::<(), Failure>(()) }
            })
            .start()
            .await
            .unwrap();
        commit(&a, vec![order("1")]).await;
        gate.until_began(1).await;
        let b = Outbox::multi_node(shop.pool.clone())
            .interval(Duration::from_millis(5))
            .claim_locking_as("b", short)
            .on("Order", "OrderPlaced", Recording::new())
            .start()
            .await
            .unwrap();
        until_status(&shop, "1", DONE).await;
        b.close().await.unwrap();
        gate.open();
        eventually("the late settlement", async || a.metrics().settle_late.total() == 1).await;
        // One whose claim it keeps does.
        switches.renew_fails.store(false, Ordering::SeqCst);
        let cancelled = Event::of("OrderCancelled").id("2").aggregate("Order", "1").json(&()).unwrap();
        commit(&a, vec![cancelled]).await;
        until_status(&shop, "2", DEAD).await;
        a.close().await.unwrap();
        assert_eq!(*letters.lock().unwrap(), ["2"]);
    }

    async fn a_node_whose_handler_outlives_its_claim_takes_the_row_again_without_a_frenzy(shop) {
        let (store, switches) = Flaky::around(shop.store.clone());
        let gate = Slow::gated();
        let a = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", Duration::from_millis(200))
            .store(store)
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        commit(&a, vec![order("1")]).await;
        gate.until_began(1).await;
        tokio::time::sleep(Duration::from_millis(250)).await; // the claim runs out: this store renews none
        a.nudge();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let looks = switches.polls.load(Ordering::SeqCst);
        assert!(looks <= 4, "{looks} looks in 50 ms, with an interval of an hour");
        assert_eq!(gate.began(), 1);
        gate.open();
        // Its settlement came too late; the event is delivered once more, and this time settled.
        eventually("the second delivery", async || {
            a.nudge();
            shop.row("1").await.status == DONE
        })
        .await;
        a.close().await.unwrap();
    }

    /// Rules: O-365.
    async fn claimed_rows_that_are_refused_are_given_back_at_once(shop) {
        shop.insert(&orders(4)).await;
        let offered = std::sync::atomic::AtomicUsize::new(0);
        let one = move |_: Event, _: u32| offered.fetch_add(1, Ordering::SeqCst) == 0;
        let settings = Settings::default().claim_locking_as("a", NEVER);
        settings.build(shop.store.clone(), one, metrics()).unwrap().poll().await.unwrap();
        let mut owners = Vec::new();
        for id in ["0000", "0001", "0002", "0003"] {
            owners.push(shop.row(id).await.locked_by);
        }
        assert_eq!(owners, [Some("a".to_owned()), None, None, None]);
    }

    async fn an_unreadable_row_that_was_claimed_is_dead_and_the_rest_flows(shop) {
        shop.insert(&orders(3)).await;
        shop.run("update outbox_event set headers = '[]' where event_id = '0000'").await;
        let a = node(&shop, "a").on("Order", "OrderPlaced", Recording::new()).start().await.unwrap();
        until_status(&shop, "0000", DEAD).await;
        until_count(&shop, DONE, 2).await;
        a.close().await.unwrap();
        assert_eq!(shop.row("0000").await.locked_by, None);
    }

    async fn a_settled_event_is_nobodys(shop) {
        let a = node(&shop, "a")
            .on("Order", "OrderPlaced", Failing::always())
            .on("Order", "OrderPaid", Recording::new())
            .start()
            .await
            .unwrap();
        let paid = Event::of("OrderPaid").id("paid").aggregate("Order", "1").json(&()).unwrap();
        commit(&a, vec![order("failed"), paid]).await;
        assert_eq!(until_status(&shop, "failed", RETRY).await.locked_by, None);
        assert_eq!(until_status(&shop, "paid", DONE).await.locked_by, None);
        a.close().await.unwrap();
    }

    async fn a_claim_is_renewed_while_its_event_waits_and_while_it_is_handled(shop) {
        let gate = Slow::gated();
        let short = Duration::from_millis(600);
        let holder = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", short)
            .worker_count(1)
            .on("Order", "OrderPlaced", Recording::of(gate.clone()))
            .start()
            .await
            .unwrap();
        let mut tx = holder.begin().await.unwrap();
        tx.append_all(vec![order("handled"), order("queued")]).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        // Another node looks again and again, for several times as long as a claim is good for.
        let other = Recording::new();
        let node = Outbox::multi_node(shop.pool.clone())
            .interval(Duration::from_millis(20))
            .claim_locking_as("b", short)
            .on("Order", "OrderPlaced", other.clone())
            .start()
            .await
            .unwrap();
        let renewed = async || shop.row("handled").await.locked_at;
        let mut moments = std::collections::HashSet::new();
        eventually("ten renewals", async || {
            moments.insert(renewed().await);
            moments.len() >= 10
        })
        .await;
        assert_eq!(other.events().len(), 0);
        gate.open();
        eventually("both to be done", async || shop.count(DONE).await == 2).await;
        holder.close().await.unwrap();
        node.close().await.unwrap();
        assert_eq!((holder.metrics().settle_late.total(), other.events().len()), (0, 0));
    }

    /// As after a machine stood still, and its clock with it: the claims look alive from here.
    async fn what_another_node_took_while_it_was_queued_is_not_handled_here(shop) {
        let logs = Logs::catch();
        let gate = Slow::gated();
        let recorder = Recording::of(gate.clone());
        let node = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", Duration::from_secs(3))
            .worker_count(1)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        commit(&node, vec![order("handled"), order("queued"), order("stolen")]).await;
        gate.until_began(1).await;
        let stolen =
            "update outbox_event set locked_by = 'b', claim_seq = claim_seq + 1 where event_id = 'stolen'";
        shop.run(stolen).await;
        eventually("the loss to be noticed", async || !logs.having(Level::WARN, "claims were lost").is_empty())
            .await;
        gate.open();
        eventually("the others to be done", async || shop.count(DONE).await == 2).await;
        node.close().await.unwrap();
        assert_eq!(recorder.ids(), ["handled", "queued"]);
        assert_eq!(shop.row("stolen").await.locked_by.as_deref(), Some("b"));
    }

    async fn what_was_claimed_and_not_handled_is_given_back_when_the_node_closes(shop) {
        let gate = Slow::gated();
        let node = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", NEVER)
            .worker_count(1)
            .drain_timeout(Duration::from_millis(50))
            .on("Order", "OrderPlaced", Recording::of(gate.clone()))
            .start()
            .await
            .unwrap();
        let mut tx = node.begin().await.unwrap();
        tx.append_all(vec![order("handled"), order("queued")]).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        assert!(shop.row("queued").await.locked_by.is_some());
        assert!(node.close().await.is_err(), "the handler did not finish");
        for id in ["handled", "queued"] {
            assert_eq!(shop.row(id).await.locked_by, None, "{id}");
        }
    }

    async fn an_event_whose_claim_ran_out_before_it_was_handled_is_left_to_whoever_claims_it_next(shop) {
        let recorder = Recording::new();
        let grace = Duration::from_millis(60);
        let node = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", NEVER)
            .hot_grace(grace)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = node.writer().append(&mut tx, order("1")).await.unwrap();
        tokio::time::sleep(grace * 2).await; // a transaction that stays open for longer than the claim it was born with
        tx.commit().await.unwrap();
        appended.committed();
        recorder.until(1).await;
        node.close().await.unwrap();
        assert_eq!((recorder.count_of("1"), shop.row("1").await.status), (1, DONE));
        // The hot path had it, and the poller delivered it, under a claim of its own.
        assert_eq!((node.metrics().enqueue_hot.total(), node.metrics().enqueue_cold.total()), (1, 1));
    }
}
