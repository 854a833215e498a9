//! Many at once: claims that share no row and lose none, and only one node that is alone.

use std::collections::HashSet;
use std::sync::Arc;

use backstop_core::delivery::Settlement::Done;
use backstop_sql::Error;
use backstop_sql::store::{Settle, Share, Store};
use backstop_testkit::eventually;

use crate::harness::*;

/// Claims and settles until nothing is left, and tells what it got.
async fn work(it: &Fresh<impl Database>, owner: String) -> Vec<String> {
    // One moment for all, or the claim of a slow node would expire for a fast one.
    const NOW: i64 = 10_000;
    let mut taken = Vec::new();
    loop {
        let rows = it.claim(&owner, NOW, 50).await;
        if rows.is_empty() && it.poll(NOW, 1).await.is_empty() {
            return taken;
        }
        let done = |row: backstop_sql::store::Row| Settle {
            id: row.id,
            claim: row.claim,
            attempts: None,
            generation: None,
            settlement: Done,
        };
        let settles: Vec<_> = rows.into_iter().map(done).collect();
        assert_eq!(it.store.settle(at(NOW), &settles).await.unwrap(), settles.len() as u64);
        taken.extend(settles.into_iter().map(|settle| settle.id));
    }
}

database_suite! {
    over migrated

    /// Rules: O-046, O-048, O-357.
    async fn four_nodes_share_five_thousand_rows_without_a_common_or_a_lost_one(it) {
        let events: Vec<_> = (0..5_000).map(|number| event(&format!("{number:05}"), number)).collect();
        it.insert(&events).await;
        // Half of them in the other pending status.
        it.run("update outbox_event set status = 2 where event_id < '02500'").await;
        let it = Arc::new(it);
        let nodes: Vec<_> = (0..4)
            .map(|node| {
                let it = it.clone();
                tokio::spawn(async move { work(&it, format!("node-{node}")).await })
            })
            .collect();
        let mut taken = Vec::new();
        for node in nodes {
            taken.extend(node.await.unwrap());
        }
        assert_eq!(taken.len(), 5_000, "a row was taken twice or not at all");
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 5_000);
        assert_eq!(it.number("select count(*) from outbox_event where status = 1").await, 5_000);
    }

    async fn claims_go_on_while_others_insert_and_none_of_them_fails(it) {
        let it = Arc::new(it);
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let it = it.clone();
                tokio::spawn(async move {
                    for number in 0..100 {
                        it.insert(&[event(&format!("{writer}-{number:03}"), number)]).await;
                    }
                })
            })
            .collect();
        let mut taken = Vec::new();
        eventually("all rows", async || {
            taken.extend(work(&it, "node".to_owned()).await);
            taken.len() == 200
        })
        .await;
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 200);
    }

    async fn only_one_can_be_alone_on_a_table_until_it_lets_go(it) {
        let held = it.alone("outbox_event").await.unwrap();
        for _ in 0..2 {
            let refused = it.alone("outbox_event").await.err().unwrap();
            assert!(matches!(&refused, Error::NotAlone { table } if table == "outbox_event"), "{refused}");
        }
        let other_table = it.alone("another_outbox").await.unwrap();
        drop(held);
        // The server notices on its own time that the connection is gone.
        eventually("the lock", async || it.alone("outbox_event").await.is_ok()).await;
        drop(other_table);
    }

    async fn nodes_that_claim_share_a_table_and_one_that_is_alone_shares_it_with_nobody(it) {
        let shared = [Share::Claiming; 3];
        let mut sharing = Vec::new();
        for share in shared {
            sharing.push(it.right("outbox_event", share).await.unwrap());
        }
        let refused = it.alone("outbox_event").await.err().unwrap();
        assert!(matches!(refused, Error::NotAlone { .. }), "{refused}");
        sharing.truncate(1);
        assert!(it.alone("outbox_event").await.is_err(), "one is enough");
        drop(sharing);
        let mut alone = None;
        eventually("the lock", async || {
            alone = it.alone("outbox_event").await.ok();
            alone.is_some()
        })
        .await;
        assert!(it.right("outbox_event", Share::Claiming).await.is_err());
        drop(alone);
        eventually("a share", async || it.right("outbox_event", Share::Claiming).await.is_ok()).await;
    }

    async fn of_two_that_come_at_once_never_both_are_let_in_where_one_is_to_be_alone(it) {
        for _ in 0..20 {
            let (alone, claiming) =
                tokio::join!(it.alone("outbox_event"), it.right("outbox_event", Share::Claiming));
            assert!(alone.is_err() || claiming.is_err());
            drop((alone, claiming));
            eventually("the lock", async || it.alone("outbox_event").await.is_ok()).await;
        }
    }

    async fn being_alone_costs_the_pool_no_connection(it) {
        let mut held = Vec::new();
        for number in 0..12 {
            held.push(it.alone(&format!("outbox_{number}")).await.unwrap());
        }
        assert_eq!(it.poll(0, 1).await, []);
    }
}

mod where_names_ignore_case {
    use super::*;

    backstop_testkit::suite! {
        over { sqlite: migrated::<sqlx::Sqlite>, postgres: migrated::<sqlx::Postgres> }

        async fn a_table_is_the_same_one_in_capitals(it) {
            it.store_on("orders").migrate().await.unwrap();
            let held = it.alone("Orders").await.unwrap();
            for name in ["orders", "ORDERS", "Orders"] {
                let refused = it.alone(name).await.err().unwrap();
                assert!(matches!(&refused, Error::NotAlone { table } if table == name), "{refused}");
            }
            drop(held);
            eventually("the lock", async || it.alone("orders").await.is_ok()).await;
        }
    }
}
