//! Claiming and releasing: who takes which rows, for how long, and how they are given back.

use std::time::Duration;

use backstop_core::Event;
use backstop_core::delivery::Settlement::Done;
use backstop_sql::store::{Claim, Due, Order, Store};

use crate::harness::*;

database_suite! {
    over migrated

    /// Rules: O-228, O-230, O-354.
    async fn a_claim_writes_owner_and_time_and_raises_the_number(it) {
        it.insert(&events("ab")).await;
        let rows = it.claim("node-1", 10, 1).await;
        assert_eq!(ids(&rows), "a");
        assert_eq!(rows[0].claim, Some(Claim { owner: "node-1".into(), seq: 1 }));
        let a = it.state("a").await;
        assert_eq!((a.locked_by.as_deref(), a.locked_at, a.claim_seq), (Some("node-1"), Some(moment(10)), 1));
        assert_eq!((a.status, a.attempts), (0, 0));
        assert_eq!(it.state("b").await.locked_by, None);
    }

    /// Rules: O-355, O-356.
    async fn a_claim_takes_due_rows_only_as_a_poll_does(it) {
        it.insert(&events("abcde")).await;
        it.settle("a", 5, Done).await;
        it.settle("b", 5, dead("given up")).await;
        it.settle("c", 5, retry(3, "due at 8")).await;
        let later = Event::of("Later").id("z").occurred_at(moment(0)).available_at(moment(99)).json(&()).unwrap();
        it.insert(&[later]).await;
        let skipping = Due { skip_recent: Duration::from_secs(17), ..due(20, 10) };
        assert_eq!(ids(&it.store.claim(&"node-1".into(), MINUTE, skipping).await.unwrap()), "cd");
        assert_eq!(ids(&it.claim("node-1", 20, 10).await), "e");
        assert_eq!(it.state("z").await.locked_by, None);
        assert_eq!(ids(&it.claim("node-1", 99, 10).await), "zcde");
    }

    /// Rules: O-355, O-356.
    async fn of_too_many_a_claim_chooses_as_a_poll_does_and_takes_no_more(it) {
        it.insert(&events("abcdef")).await;
        it.settle("a", 10, retry(30, "due at 40")).await;
        it.settle("b", 10, deferred(20)).await; // due at 30
        assert_eq!(ids(&it.claim("node-1", 60, 2).await), "cd");
        assert_eq!(it.number("select count(*) from outbox_event where locked_by is not null").await, 2);
        let strict = Due { order: Order::Created, ..due(60, 2) };
        assert_eq!(ids(&it.store.claim(&"node-1".into(), MINUTE, strict).await.unwrap()), "ab");
        assert_eq!(ids(&it.claim("node-1", 60, 10).await), "ef");
    }

    /// Rules: O-358, O-359.
    async fn a_claim_holds_until_it_is_older_than_its_timeout(it) {
        it.insert(&events("a")).await;
        it.claim("node-1", 10, 1).await;
        for owner in ["node-1", "node-2"] {
            assert_eq!(ids(&it.claim(owner, 69, 1).await), "", "{owner}");
            assert_eq!(ids(&it.claim(owner, 70, 1).await), "", "exactly as old is not older: {owner}");
        }
        let rows = it.claim("node-2", 71, 1).await;
        assert_eq!(rows[0].claim, Some(Claim { owner: "node-2".into(), seq: 2 }));
        let a = it.state("a").await;
        assert_eq!((a.locked_by.as_deref(), a.locked_at), (Some("node-2"), Some(moment(71))));
    }

    async fn a_claim_that_another_node_took_is_neither_renewed_nor_still_valid(it) {
        it.insert(&events("ab")).await;
        let mut rows: Vec<_> = it.claim("node-1", 10, 1).await.into_iter().map(|row| (row.id, row.claim.unwrap())).collect();
        rows.extend(it.claim("node-1", 60, 1).await.into_iter().map(|row| (row.id, row.claim.unwrap())));
        assert_eq!(it.store.still_claimed(&rows).await.unwrap().len(), 2);
        assert_eq!(ids(&it.claim("node-2", 71, 2).await), "a");
        assert_eq!(it.store.renew(at(72), &rows).await.unwrap().len(), 1);
        assert_eq!(it.store.still_claimed(&rows).await.unwrap(), ["b"]);
        assert_eq!((it.state("a").await.locked_at, it.state("b").await.locked_at), (Some(moment(71)), Some(moment(72))));
    }

    /// Either alone would let a node prolong what another holds by now: a node may have taken its own row anew.
    async fn a_renewal_is_fenced_by_the_owner_and_by_the_number_of_the_claim(it) {
        it.insert(&events("abc")).await;
        let held: Vec<_> = it.claim("node-1", 10, 3).await.into_iter().map(|row| (row.id, row.claim.unwrap())).collect();
        it.set("a", "locked_by = 'node-2'").await; // under the same number
        it.set("b", "claim_seq = claim_seq + 1").await; // by the same owner
        let before = [it.state("a").await, it.state("b").await];
        it.store.renew(at(30), &held).await.unwrap();
        assert_eq!(it.store.still_claimed(&held).await.unwrap(), ["c"]);
        assert_eq!([it.state("a").await, it.state("b").await], before);
        assert_eq!(it.state("c").await.locked_at, Some(moment(30)));

        // Only what was renewed is out of reach for longer.
        assert_eq!(ids(&it.claim("node-3", 71, 3).await), "ab");
        assert_eq!(ids(&it.claim("node-3", 91, 3).await), "c");
    }

    async fn a_settled_or_released_row_has_no_claim_to_renew(it) {
        it.insert(&events("ab")).await;
        let held: Vec<_> = it.claim("node-1", 10, 2).await.into_iter().map(|row| (row.id, row.claim.unwrap())).collect();
        it.settle_under(Some(&held[0].1), "a", 20, Done).await;
        it.store.release(&held[1..]).await.unwrap();
        it.store.renew(at(30), &held).await.unwrap();
        assert!(it.store.still_claimed(&held).await.unwrap().is_empty());
        assert_eq!((it.state("a").await.locked_at, it.state("b").await.locked_at), (None, None));
    }

    /// Rules: O-357.
    async fn two_claims_of_one_owner_at_the_same_instant_share_no_row(it) {
        it.insert(&events("abcd")).await;
        let (first, second) = (it.claim("node-1", 10, 2).await, it.claim("node-1", 10, 2).await);
        assert_eq!((ids(&first).as_str(), ids(&second).as_str()), ("ab", "cd"));
    }

    /// Rules: O-259, O-355.
    async fn a_claimed_row_comes_back_as_the_event_that_went_in(it) {
        let event = Event::of("OrderPlaced")
            .aggregate("Order", "42")
            .tenant_id("acme")
            .header("source", "checkout")
            .occurred_at(moment(0))
            .payload_json(r#"{ "total": 1.10 }"#)
            .build()
            .unwrap();
        it.insert(std::slice::from_ref(&event)).await;
        it.set(event.id(), "attempts = 3").await;
        let rows = it.claim("node-1", 10, 10).await;
        assert_eq!(rows[0].event.as_ref(), Ok(&event));
        assert_eq!(rows[0].attempts, 3);
    }

    async fn a_released_row_is_free_at_once_and_only_for_who_holds_it(it) {
        it.insert(&events("abc")).await;
        let rows = it.claim("node-1", 10, 3).await;
        let held = |row: &backstop_sql::store::Row| (row.id.clone(), row.claim.clone().unwrap());
        let mut release: Vec<_> = rows.iter().map(held).collect();
        release[1].1.seq += 1; // b under a number that it does not have
        release[2].1.owner = "node-2".into(); // c under an owner that it does not have
        assert_eq!(it.store.release(&release).await.unwrap(), 1);
        assert_eq!(it.store.release(&[]).await.unwrap(), 0);
        let rows = it.claim("node-2", 10, 3).await;
        assert_eq!(ids(&rows), "a");
        assert_eq!(rows[0].claim.as_ref().unwrap().seq, 2, "releasing takes no number back");
    }
}
