//! Claims across the border: each side leaves alone what the other holds, and takes over what a dead one held.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_core::delivery::Settlement;
use backstop_sql::store::{At, Due, Order, Row, Settle, SqlStore, Store};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Failing, Recording, Slow};

use crate::framework::*;
use crate::place::*;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

async fn claim(store: &SqlStore, owner: &Arc<str>) -> Vec<Row> {
    let due = Due {
        at: At::Database,
        skip_recent: Duration::ZERO,
        limit: 10,
        order: Order::Due,
        after: None,
        pair: None,
    };
    store.claim(owner, FIVE_MINUTES, due).await.unwrap()
}

async fn settle(store: &SqlStore, row: &Row, settlement: Settlement) -> u64 {
    let settle =
        Settle { id: row.id.clone(), claim: row.claim.clone(), attempts: None, generation: None, settlement };
    store.settle(At::Database, &[settle]).await.unwrap()
}

/// Makes a lock as old as that of a node that died.
async fn age_lock(java: &Framework) {
    let sql = match java.kind {
        backstop_sql::store::DatabaseKind::Postgres => "INTERVAL '10 minutes'",
        _ => "INTERVAL 10 MINUTE",
    };
    java.run_text(&format!("UPDATE outbox_event SET locked_at = locked_at - {sql}")).await;
}

backstop_testkit::suite! {
    over { mysql: java_on_mysql, postgres: java_on_postgres, postgres_zoned: java_on_postgres_zoned }

    /// Rules: O-357, O-358, O-359.
    async fn a_row_that_the_framework_took_over_is_out_of_reach_of_the_claim_before(place) {
        let (java, store, owner) = (&place.java, place.store(), Arc::from("node-1"));
        store.migrate().await.unwrap();
        java.insert_new(&envelope("a")).await;
        let ours = claim(&store, &owner).await;
        assert_eq!((ours.len(), java.claim_pending(10).await.len()), (1, 0));

        age_lock(java).await;
        assert_eq!(java.claim_pending(10).await.len(), 1);
        let held = [(ours[0].id.clone(), ours[0].claim.clone().unwrap())];
        assert_eq!(settle(&store, &ours[0], Settlement::Done).await, 0);
        assert_eq!(store.renew(At::Database, &held).await.unwrap().len(), 0);
        assert_eq!(store.release(&held).await.unwrap(), 0);
        assert_eq!(java.state("a").await.locked_by.as_deref(), Some("java-1"));

        // Its claim left our number as it was; ours raises it, so the claim before stays out of reach.
        assert_eq!(java.mark_retry("a", now(), "again").await, 1);
        let again = claim(&store, &owner).await;
        assert_eq!((again.len(), again[0].attempts), (1, 1));
        assert_eq!(settle(&store, &ours[0], Settlement::Done).await, 0);
        assert_eq!(java.state("a").await.status, 2);
        assert_eq!(settle(&store, &again[0], Settlement::Done).await, 1);
        assert_eq!(java.state("a").await.status, 1);
    }

    /// Rules: O-358.
    async fn a_row_that_the_framework_holds_is_left_alone_until_its_lock_is_too_old(place) {
        let (java, store, owner) = (&place.java, place.store(), Arc::from("node-1"));
        store.migrate().await.unwrap();
        java.insert_new(&envelope("a")).await;
        assert_eq!(java.claim_pending(10).await.len(), 1);
        assert!(claim(&store, &owner).await.is_empty());
        age_lock(java).await;
        let ours = claim(&store, &owner).await;
        assert_eq!(ours.len(), 1);
        assert!(java.claim_pending(10).await.is_empty());

        // The framework's settlements ask for no owner, so a late one counts; ours then changes nothing.
        assert_eq!(java.mark_done("a").await, 1);
        assert_eq!(settle(&store, &ours[0], Settlement::Dead { error: "no".into() }).await, 0);
        assert_eq!(java.state("a").await.status, 1);
    }

    async fn a_late_word_of_the_framework_counts_where_we_hold_the_row_and_leaves_a_dead_one_dead(place) {
        let (java, store, owner) = (&place.java, place.store(), Arc::from("node-1"));
        store.migrate().await.unwrap();
        java.insert_new(&envelope("a")).await;
        java.claim_pending(10).await;
        age_lock(java).await;
        let ours = claim(&store, &owner).await;
        assert_eq!(java.mark_retry("a", now(), "timeout").await, 1);
        assert_eq!(settle(&store, &ours[0], Settlement::Done).await, 0);
        let again = claim(&store, &owner).await;
        assert_eq!((again.len(), again[0].attempts), (1, 1), "it is delivered again");
        assert_eq!(settle(&store, &again[0], Settlement::Dead { error: "no".into() }).await, 1);
        assert_eq!(java.mark_retry("a", now(), "timeout").await, 0);
        assert_eq!(java.state("a").await.status, 3, "as the guide says");
    }

    async fn a_row_is_as_young_as_its_event_says_so_one_that_is_dated_back_is_not_left_to_the_framework(place) {
        let (java, store) = (&place.java, place.store());
        store.migrate().await.unwrap();
        java.insert_new(&Envelope { occurred_at: now(), ..envelope("young") }).await;
        java.insert_new(&envelope("dated-back")).await;
        let due = Due { at: At::Database, skip_recent: Duration::from_secs(30), limit: 10, order: Order::Due, after: None, pair: None };
        let taken = store.claim(&"node-1".into(), FIVE_MINUTES, due).await.unwrap();
        assert_eq!(taken.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["dated-back"]);
        // The framework leaves young rows alone by the same column.
        let patient = Framework { skip_recent: Duration::from_secs(30), ..java.clone() };
        assert!(patient.claim_pending(10).await.is_empty());
        assert_eq!(java.claim_pending(10).await.len(), 1);
    }

    async fn our_own_retries_wait_until_their_rows_are_no_longer_young(place) {
        let node = place.node()
            .skip_recent(Duration::from_secs(3))
            .retry_policy(|_, _| Duration::ZERO)
            .on("Order", "OrderPlaced", Failing::times(1))
            .start().await.unwrap();
        let mut tx = node.begin().await.unwrap();
        tx.append(Event::of("OrderPlaced").id("a").aggregate("Order", "1").json(&1).unwrap()).await.unwrap();
        tx.commit().await.unwrap();
        eventually("it is done", async || place.java.state("a").await.status == 1).await;
        let row = place.java.state("a").await;
        assert_eq!(row.attempts, 1);
        assert!(row.done_at.unwrap() - row.created_at.unwrap() >= chrono::TimeDelta::seconds(3), "{row:?}");
        node.close().await.unwrap();
    }

    async fn a_born_claim_is_as_young_as_it_looks_so_that_a_shorter_time_out_spares_it(place) {
        let gate = Slow::gated();
        let node = place.node()
            .hot_grace(Duration::from_secs(30))
            .on("Order", "OrderPlaced", Recording::of(gate.clone()))
            .start().await.unwrap();
        let mut tx = node.begin().await.unwrap();
        tx.append(Event::of("OrderPlaced").id("a").aggregate("Order", "1").json(&1).unwrap()).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        let hasty = Framework { lock_timeout: Duration::from_secs(60), ..place.java.clone() };
        assert!(hasty.claim_pending(10).await.is_empty());
        let locked_at = place.java.state("a").await.locked_at.unwrap();
        assert!(locked_at > now() - Duration::from_secs(60), "{locked_at}");
        gate.open();
        node.close().await.unwrap();
        assert_eq!(place.java.state("a").await.status, 1);
    }
}
