//! Statements that change rows by their ids reach those rows and no others: nobody waits for a stranger's transaction.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_core::delivery::Settlement::{self, Done};
use backstop_sql::connection::{Column, Connection as _, Connections};
use backstop_sql::store::{Claim, DatabaseKind, DeadFilter, Purgeable, Row, Settle, Store};
use backstop_testkit::eventually;
use tokio::time::timeout;

use crate::harness::*;
use crate::planned::{Plan, Planned};

/// Longer than any of these statements takes, and shorter than a lock is waited for.
const PROMPT: Duration = Duration::from_secs(4);

fn numbered(prefix: &str, count: i64) -> Vec<Event> {
    (0..count).map(|number| event(&format!("{prefix}{number:05}"), number)).collect()
}

fn claims(rows: &[Row]) -> Vec<(String, Claim)> {
    rows.iter().map(|row| (row.id.clone(), row.claim.clone().unwrap())).collect()
}

fn settle(row: &Row, settlement: Settlement) -> Settle {
    Settle {
        id: row.id.clone(),
        claim: row.claim.clone(),
        attempts: Some(row.attempts),
        generation: None,
        settlement,
    }
}

/// How many rows there are beside those that are changed: none, a few, and many.
const OTHERS: [i64; 3] = [0, 7, 3_000];

backstop_testkit::suite! {
    over { postgres: migrated::<sqlx::Postgres>, mysql: migrated::<sqlx::MySql> }

    async fn an_open_transaction_with_events_of_its_own_holds_up_no_statement(it) {
        for others in OTHERS {
            it.run("delete from outbox_event").await;
            it.insert(&numbered("m", 10)).await;
            let rows = it.claim("node-1", 10_000, 10).await;
            assert_eq!(rows.len(), 10);
            it.insert(&numbered("x", others)).await;
            // Between ours, before them and after them; committed by nobody yet.
            let mut stranger = it.connections.transaction("BEGIN").await.unwrap();
            for prefix in ["a", "m0000", "z"] {
                it.store.insert(&mut stranger, &numbered(prefix, 5), None).await.unwrap();
            }
            let settles = [
                settle(&rows[0], Done),
                settle(&rows[1], retry(1, "no")),
                settle(&rows[2], dead("no")),
                settle(&rows[3], deferred(1)),
                settle(&rows[4], dead("no")),
            ];
            let all = async {
                assert_eq!(it.store.renew(at(10_001), &claims(&rows)).await.unwrap().len(), 10);
                assert_eq!(it.store.settle(at(10_002), &settles).await.unwrap(), 5);
                assert_eq!(it.store.release(&claims(&rows[5..8])).await.unwrap(), 3);
                assert_eq!(it.store.replay_dead(at(10_002), &[rows[2].id.clone()]).await.unwrap(), 1);
                let (redriven, all) = ([rows[9].id.clone()], DeadFilter::default());
                assert_eq!(it.store.redriven(at(10_002), &redriven).await.unwrap(), 0);
                assert_eq!(it.store.discard_dead(&all, &redriven).await.unwrap(), 0);
                assert_eq!(it.claim("node-2", 20_000, 4).await.len(), 4);
                let mut connection = it.connections.connection().await.unwrap();
                let purged = it.store.purge(&mut *connection, Purgeable::Ended, at(99_999), MINUTE, 100).await;
                assert_eq!(purged.unwrap(), 2);
            };
            timeout(PROMPT, all).await.unwrap_or_else(|_| panic!("beside {others} others somebody waited"));
            drop(stranger);
        }
    }

    async fn rows_that_are_not_committed_yet_are_passed_over_when_they_are_given_back(it) {
        let born = backstop_sql::store::Born::by("node-1", Duration::ZERO);
        let claim = |id: &str| (id.to_owned(), born.claim());
        it.insert_born(&events("ab"), Some(&born)).await;
        let mut open = it.connections.transaction("BEGIN").await.unwrap();
        it.store.insert(&mut open, &[event("c", 2), event("d", 3)], Some(&born)).await.unwrap();
        let release = async { it.store.release(&["a", "c", "b", "d"].map(claim)).await.unwrap() };
        assert_eq!(timeout(PROMPT, release).await.expect("nobody waits"), 2);
        open.commit().await.unwrap();
        assert_eq!(it.store.release(&["a", "c", "b", "d"].map(claim)).await.unwrap(), 2);
    }

    async fn a_row_that_a_stranger_holds_is_not_renewed_and_the_others_are(it) {
        it.insert(&events("abc")).await;
        let rows = claims(&it.claim("node-1", 10, 3).await);
        let mut stranger = it.connections.transaction("BEGIN").await.unwrap();
        let hold = it.statement("select event_id from outbox_event where event_id = 'b' for update");
        stranger.fetch(&hold, &[Column::Text]).await.unwrap();
        let renewed = timeout(PROMPT, it.store.renew(at(20), &rows)).await.expect("nobody waits").unwrap();
        assert_eq!(renewed.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), ["a", "c"].into());
        drop(stranger);
        assert_eq!(it.state("b").await.locked_at, Some(moment(10)));
    }

    /// A row that is being replayed while it is old enough to be purged.
    async fn a_purge_leaves_what_somebody_replays_meanwhile(it) {
        it.insert(&events("ab")).await;
        for id in ["a", "b"] {
            it.settle(id, 10, dead("given up")).await;
        }
        let mut replaying = it.connections.transaction("BEGIN").await.unwrap();
        let replay = it.statement("update outbox_event set status = 0, done_at = null where event_id = 'a'");
        assert_eq!(replaying.execute(&replay).await.unwrap(), 1);
        let purge = async {
            let mut connection = it.connections.connection().await.unwrap();
            it.store.purge(&mut *connection, Purgeable::Ended, at(1_000), MINUTE, 10).await.unwrap()
        };
        let commit = async {
            tokio::time::sleep(Duration::from_millis(300)).await; // the purge waits, where it does
            replaying.commit().await.unwrap();
        };
        let (purged, ()) = tokio::join!(purge, commit);
        assert_eq!((purged, it.state("a").await.status), (1, 0));
    }
}

backstop_testkit::suite! {
    over { postgres: migrated::<sqlx::Postgres> }

    async fn a_purge_passes_over_what_somebody_holds(it) {
        it.insert(&events("abc")).await;
        for id in ["a", "b", "c"] {
            it.settle(id, 10, dead("given up")).await;
        }
        let mut stranger = it.connections.transaction("BEGIN").await.unwrap();
        let hold = it.statement("select event_id from outbox_event where event_id = 'a' for update");
        stranger.fetch(&hold, &[Column::Text]).await.unwrap();
        let purge = async {
            let mut connection = it.connections.connection().await.unwrap();
            it.store.purge(&mut *connection, Purgeable::Ended, at(1_000), MINUTE, 10).await.unwrap()
        };
        assert_eq!(timeout(PROMPT, purge).await.expect("nobody waits"), 2);
        drop(stranger);
        assert_eq!(it.state("a").await.status, 3);
    }
}

backstop_testkit::suite! {
    over { mysql: migrated::<sqlx::MySql> }

    /// The locks of a claim cover the rows that it takes, and not the gaps between them.
    async fn a_claim_that_takes_long_holds_up_no_insert(it) {
        it.insert(&[event("a", 1), event("z", 3)]).await;
        it.run("create trigger slow before update on outbox_event for each row set @slept = sleep(3)").await;
        let claim = async { it.claim("node-1", 10_000, 10).await.len() };
        let insert = async {
            eventually("the claim to be under way", async || {
                it.number("select count(*) from information_schema.processlist where state = 'User sleep'").await > 0
            })
            .await;
            timeout(Duration::from_secs(2), it.insert(&[event("m", 2)])).await.expect("nobody waits");
        };
        let (claimed, ()) = tokio::join!(claim, insert);
        assert_eq!(claimed, 2);
    }

    async fn every_statement_that_changes_rows_by_id_reads_the_primary_key_whatever_the_size_of_the_table(it) {
        let planned = Planned::around(it.connections.clone());
        let shared = Arc::new(planned.clone());
        let store = it.store.clone().through(|_| shared);
        let deleting = store.clone().done(backstop_sql::store::Done::Delete);
        let claim = Claim { owner: "node-1".into(), seq: 1 };
        let ids: Vec<_> = numbered("m", 10).iter().map(|event| event.id().to_owned()).collect();
        let claims: Vec<_> = ids.iter().map(|id| (id.clone(), claim.clone())).collect();
        let settles = |settlement: Settlement| -> Vec<_> {
            let settle = |id: &String| Settle {
                id: id.clone(),
                claim: Some(claim.clone()),
                attempts: Some(0),
                generation: None,
                settlement: settlement.clone(),
            };
            ids.iter().map(settle).collect()
        };
        let claimed = async || {
            let claimed = "update outbox_event set status = 0, attempts = 0, locked_by = 'node-1', claim_seq = 1";
            it.run(&format!("{claimed} where event_id like 'm%'")).await
        };
        for others in OTHERS {
            it.run("delete from outbox_event").await;
            it.insert(&numbered("m", 10)).await;
            it.insert(&numbered("x", others)).await;
            it.run("analyze table outbox_event").await;
            // Each reaches ten rows, which are all there are in the smallest table.
            assert_eq!(store.claim(&"node-0".into(), MINUTE, due(10_000, 10)).await.unwrap().len(), 10);
            claimed().await;
            assert_eq!(store.renew(at(10_001), &claims).await.unwrap().len(), 10);
            assert_eq!(store.release(&claims).await.unwrap(), 10);
            for settlement in [retry(0, "no"), deferred(0), dead("no")] {
                claimed().await;
                assert_eq!(store.settle(at(10_002), &settles(settlement)).await.unwrap(), 10);
            }
            assert_eq!(store.replay_dead(at(10_002), &ids).await.unwrap(), 10);
            it.run("update outbox_event set status = 3 where event_id like 'm%'").await;
            assert_eq!(store.redriven(at(10_002), &ids).await.unwrap(), 10);
            it.run("update outbox_event set status = 3 where event_id like 'm%'").await;
            assert_eq!(deleting.redriven(at(10_002), &ids).await.unwrap(), 10);
            it.insert(&numbered("m", 10)).await;
            it.run("update outbox_event set status = 3 where event_id like 'm%'").await;
            assert_eq!(store.discard_dead(&DeadFilter::default(), &ids).await.unwrap(), 10);
            it.insert(&numbered("m", 10)).await;
            claimed().await;
            assert_eq!(store.settle(at(10_002), &settles(Done)).await.unwrap(), 10);
            let mut connection = planned.connection().await.unwrap();
            let purged = store.purge(&mut *connection, Purgeable::Ended, at(99_999), MINUTE, 100).await;
            assert_eq!(purged.unwrap(), 10);
            it.insert(&numbered("m", 10)).await;
            claimed().await;
            assert_eq!(deleting.settle(at(10_002), &settles(Done)).await.unwrap(), 10);

            let plans = planned.take();
            for Plan { statement, plan } in &plans {
                let by_key = plan.contains("\"key\": \"PRIMARY\"") && plan.contains("\"access_type\": \"range\"");
                assert!(by_key, "beside {others} others {statement} is planned as\n{plan}");
            }
            // A claim, two statements each to renew and to give back, five settlements, a replay, two for letters that
            // arrived, a discard and a purge.
            assert_eq!(plans.len(), 1 + 2 + 2 + 5 + 1 + 2 + 1 + 1, "{plans:#?}");
        }
        assert_eq!(it.kind, DatabaseKind::Mysql);
    }
}
