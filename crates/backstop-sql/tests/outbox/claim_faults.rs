//! Claims while the database is slow, or does not take them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::connection::Connection;
use backstop_sql::outbox::poller::Settings;
use backstop_sql::store::{At, Born, Claim, Store};
use backstop_sql::{BoxFuture, Error, Outbox};
use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};
use tokio::sync::{Notify, Semaphore};

use crate::flaky::Flaky;
use crate::harness::{DONE, Database, NEVER, Shop, metrics, order, shop};
use crate::spied::Spied;
use crate::steps::{commit, orders, until_status};

database_suite! {
    over shop on 1 thread

    /// The answer to a claim may take longer than the claim is good for. Counted from the answer it would look fresh here,
    /// while another node has long delivered the event.
    async fn a_claim_whose_answer_came_when_it_was_over_is_not_acted_upon(shop) {
        shop.insert(&[order("1")]).await;
        let (taken, answer) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let slow = Spied::of(&shop.store).after_read({
            let (taken, answer) = (taken.clone(), answer.clone());
            move || {
                let (taken, answer) = (taken.clone(), answer.clone());
                async move {
                    taken.notify_one();
                    answer.acquire().await.unwrap().forget();
                }
            }
        });
        let short = Duration::from_millis(300);
        let (a_saw, b_saw) = (Recording::new(), Recording::new());
        let a = Outbox::multi_node(shop.pool.clone())
            .interval(NEVER)
            .claim_locking_as("a", short)
            .store(slow.shared())
            .on("Order", "OrderPlaced", a_saw.clone())
            .start()
            .await
            .unwrap();
        taken.notified().await;
        assert_eq!(shop.row("1").await.locked_by.as_deref(), Some("a"));
        let b = Outbox::multi_node(shop.pool.clone())
            .interval(Duration::from_millis(5))
            .claim_locking_as("b", short)
            .on("Order", "OrderPlaced", b_saw.clone())
            .start()
            .await
            .unwrap();
        let row = until_status(&shop, "1", DONE).await;
        b.close().await.unwrap();
        // Now a hears that it had the row, and does all that it does with it before it closes.
        answer.add_permits(Semaphore::MAX_PERMITS / 2);
        a.close().await.unwrap();
        assert_eq!((a_saw.ids(), b_saw.ids().len()), (Vec::new(), 1));
        assert_eq!(shop.row("1").await, row);
    }
}

/// How giving back fails.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The database is unavailable.
    Outage,
    /// It is there, and refuses.
    Refusal,
    /// Somebody holds the rows for the moment, so that they are passed over.
    PassedOver,
}

/// A store that takes no claim back for the first so many times.
struct Keeping {
    inner: Arc<dyn Store>,
    trouble: Trouble,
    left: AtomicUsize,
}

impl Keeping {
    fn around(shop: &Shop<impl Database>, trouble: Trouble, times: usize) -> Arc<Self> {
        Arc::new(Self { inner: shop.store.clone(), trouble, left: AtomicUsize::new(times) })
    }

    /// Whether it has failed as often as it was to.
    fn is_over(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

impl Store for Keeping {
    forward!(
        migrate,
        check,
        insert,
        poll,
        claim,
        settle,
        census,
        troubled,
        query_dead,
        count_dead,
        replay_dead,
        purge
    );

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let source = match (left, self.trouble) {
            (Err(_), _) => return self.inner.release(rows),
            (Ok(_), Trouble::Outage) => sqlx::Error::PoolTimedOut,
            (Ok(_), Trouble::Refusal) => sqlx::Error::RowNotFound,
            (Ok(_), Trouble::PassedOver) => {
                return Box::pin(async { self.inner.release(&rows[1..]).await });
            }
        };
        Box::pin(async { Err(Error::Database { doing: "failing on purpose", source }) })
    }
}

async fn owners(shop: &Shop<impl Database>, ids: &[&str]) -> Vec<Option<String>> {
    let mut owners = Vec::new();
    for id in ids {
        owners.push(shop.row(id).await.locked_by);
    }
    owners
}

database_suite! {
    over shop on 1 thread

    async fn rows_that_were_refused_and_could_not_be_given_back_are_given_back_with_the_next_look(shop) {
        for trouble in [Trouble::Outage, Trouble::Refusal, Trouble::PassedOver] {
            let shop = shop.another().await;
            shop.insert(&orders(3)).await;
            let ids = ["0000", "0001", "0002"];
            let store = Keeping::around(&shop, trouble, 1);
            let none = |_: Event, _: u32| false;
            let settings = Settings::default().claim_locking_as("a", NEVER);
            let poller = settings.build(store.clone(), none, metrics()).unwrap();
            let looked = poller.poll().await;
            let (a, kept) = (Some("a".to_owned()), owners(&shop, &ids).await);
            match trouble {
                Trouble::PassedOver => assert_eq!((looked.is_ok(), kept), (true, vec![a, None, None])),
                _ => assert_eq!((looked.is_ok(), kept), (false, vec![a; 3]), "{trouble:?}"),
            }
            // Its own claims last for ever, so it takes nothing by itself: what it gives back it had kept in mind.
            poller.poll().await.unwrap();
            assert_eq!(owners(&shop, &ids).await, vec![None; 3], "{trouble:?}");
        }
    }

    async fn a_claim_that_nobody_stands_for_is_given_back_however_often_that_fails_at_first(shop) {
        for (trouble, times) in [(Trouble::Outage, 3), (Trouble::Refusal, 6)] {
            let shop = shop.another().await;
            let store = Keeping::around(&shop, trouble, times);
            // Its poller leaves young rows alone, so it does not take again what it gives back.
            let a = Outbox::multi_node(shop.pool.clone())
                .interval(NEVER)
                .hot_grace(NEVER)
                .claim_locking_as("a", NEVER)
                .skip_recent(NEVER)
                .store(store.clone())
                .on("Order", "OrderPlaced", Recording::new())
                .start()
                .await
                .unwrap();
            let mut tx = shop.pool.begin().await.unwrap();
            let appended = a.writer().append(&mut tx, order("1")).await.unwrap();
            tx.commit().await.unwrap();
            drop(appended);
            eventually("the claim to go", async || {
                a.nudge();
                shop.row("1").await.locked_by.is_none()
            })
            .await;
            assert!(store.is_over(), "{trouble:?}");
            a.close().await.unwrap();
        }
    }
}

/// How a store renews claims that are asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewing {
    /// As the database does.
    Well,
    /// The first question is never answered.
    FirstIsSwallowed,
    /// Somebody holds every row for the moment, so that none is renewed.
    PassedOver,
}

/// A store that is slow to insert, cannot look for events, or renews as it is told to.
struct Slack {
    inner: Arc<dyn Store>,
    before_insert: Duration,
    insert_takes: Duration,
    looks: Looks,
    renewing: Renewing,
    renewals: AtomicUsize,
}

/// What becomes of the question for events that are said to be committed.
#[derive(Clone)]
enum Looks {
    Answered,
    Failing,
    After(Arc<Semaphore>),
}

impl Slack {
    fn around(shop: &Shop<impl Database>) -> Self {
        Self {
            inner: shop.store.clone(),
            before_insert: Duration::ZERO,
            insert_takes: Duration::ZERO,
            looks: Looks::Answered,
            renewing: Renewing::Well,
            renewals: AtomicUsize::new(0),
        }
    }

    fn renewals(&self) -> usize {
        self.renewals.load(Ordering::SeqCst)
    }
}

impl Store for Slack {
    forward!(
        migrate,
        check,
        poll,
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

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            tokio::time::sleep(self.before_insert).await;
            self.inner.insert(connection, events, born).await?;
            tokio::time::sleep(self.insert_takes).await;
            Ok(())
        })
    }

    fn present<'a>(
        &'a self,
        connection: Option<&'a mut dyn Connection>,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            match &self.looks {
                Looks::Answered => {}
                Looks::Failing => {
                    let source = sqlx::Error::PoolTimedOut;
                    return Err(Error::Database { doing: "failing on purpose", source });
                }
                Looks::After(answer) => answer.acquire().await.unwrap().forget(),
            }
            self.inner.present(connection, ids).await
        })
    }

    fn renew<'a>(&'a self, at: At, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        let before = self.renewals.fetch_add(1, Ordering::SeqCst);
        match self.renewing {
            Renewing::PassedOver => Box::pin(async { Ok(Vec::new()) }),
            Renewing::FirstIsSwallowed if before == 0 => Box::pin(std::future::pending()),
            _ => self.inner.renew(at, rows),
        }
    }

    fn still_claimed<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        self.inner.still_claimed(rows)
    }
}

database_suite! {
    over shop on 1 thread

    /// A claim counts from before the insert here and from the insert there. In between it has run out for this node, which
    /// does not deliver, and still keeps everybody from the row.
    async fn a_claim_that_has_run_out_here_only_is_given_back_and_does_not_wait_for_the_interval(shop) {
        let grace = Duration::from_millis(900);
        let store = Arc::new(Slack { before_insert: grace * 2 / 3, ..Slack::around(&shop) });
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .hot_grace(grace)
            .interval(NEVER)
            .store(store)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("1")).await.unwrap();
        tokio::time::sleep(grace / 2).await;
        tx.commit().await.unwrap();
        until_status(&shop, "1", DONE).await;
        assert_eq!(recorder.ids(), ["1"]);
        outbox.close().await.unwrap();
    }
}

/// A row is written, and its claim begins, before the answer to the insert is there.
#[tokio::test]
async fn a_claim_that_a_row_is_born_with_counts_from_before_the_insert() {
    let shop = Shop::open().await; // what counts here is this node's clock
    let grace = Duration::from_secs(3);
    let store = Arc::new(Slack { insert_takes: grace / 2, ..Slack::around(&shop) });
    let (seen, asked) = (Arc::new(AtomicUsize::new(usize::MAX)), store.clone());
    let when_handled = seen.clone();
    let outbox = Outbox::multi_node(shop.pool.clone())
        .claim_locking(NEVER)
        .hot_grace(grace)
        .interval(NEVER)
        .store(store)
        .on("Order", "OrderPlaced", move |_: Event| {
            when_handled.store(asked.renewals(), Ordering::SeqCst);
            async {}
        })
        .start()
        .await
        .unwrap();
    commit(&outbox, vec![order("1")]).await;
    until_status(&shop, "1", DONE).await;
    outbox.close().await.unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1, "half of it was over, so it was renewed before");
}

/// One by one they would cost a statement for each event, and a node that is behind would fall behind even more.
#[tokio::test]
async fn claims_that_many_events_wait_for_are_renewed_together() {
    let shop = Shop::open().await; // what counts here is this node's clock
    let grace = Duration::from_secs(3);
    let store = Arc::new(Slack { insert_takes: grace * 2 / 5, ..Slack::around(&shop) });
    let recorder = Recording::new();
    let outbox = Outbox::multi_node(shop.pool.clone())
        .claim_locking(NEVER)
        .hot_grace(grace)
        .interval(NEVER)
        .store(store.clone())
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    commit(&outbox, orders(200)).await;
    recorder.until_answered(200).await;
    outbox.close().await.unwrap();
    assert!((1..=3).contains(&store.renewals()), "{} renewals", store.renewals());
}

#[tokio::test]
async fn a_renewal_that_is_swallowed_leaves_time_for_the_next() {
    let shop = Shop::open().await; // what counts here is this node's clock
    shop.insert(&[order("1")]).await;
    let renewing = Renewing::FirstIsSwallowed;
    let store = Arc::new(Slack { renewing, ..Slack::around(&shop) });
    let gate = Slow::gated();
    let outbox = Outbox::multi_node(shop.pool.clone())
        .claim_locking(Duration::from_secs(3))
        .interval(NEVER)
        .store(store.clone())
        .on("Order", "OrderPlaced", gate.clone())
        .start()
        .await
        .unwrap();
    gate.until_began(1).await;
    eventually("another renewal", async || store.renewals() > 1).await;
    gate.open();
    outbox.close().await.unwrap();
    assert_eq!(shop.row("1").await.status, DONE);
}

database_suite! {
    over shop on 1 thread

    async fn a_claim_that_could_not_be_renewed_because_somebody_holds_the_row_is_not_lost(shop) {
        shop.insert(&orders(2)).await;
        let store = Arc::new(Slack { renewing: Renewing::PassedOver, ..Slack::around(&shop) });
        let gate = Slow::gated();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(Duration::from_secs(6)) // renewed when a third is over
            .hot_grace(Duration::from_millis(60)) // and from then on every 20 ms
            .interval(NEVER)
            .worker_count(1)
            .store(store.clone())
            .on("Order", "OrderPlaced", gate.clone())
            .start()
            .await
            .unwrap();
        gate.until_began(1).await;
        let before = store.renewals();
        eventually("renewals", async || store.renewals() > before + 2).await;
        gate.open();
        until_status(&shop, "0001", DONE).await;
        outbox.close().await.unwrap();
    }

    async fn an_event_that_cannot_be_looked_for_is_given_back_and_found_by_the_poller(shop) {
        let store = Arc::new(Slack { looks: Looks::Failing, ..Slack::around(&shop) });
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .hot_grace(NEVER)
            .interval(NEVER)
            .store(store)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let mut tx = shop.pool.begin().await.unwrap();
        let appended = outbox.writer().append(&mut tx, order("1")).await.unwrap();
        tx.commit().await.unwrap();
        appended.committed();
        until_status(&shop, "1", DONE).await;
        outbox.close().await.unwrap();
        assert_eq!(outbox.metrics().enqueue_hot.total(), 0);
    }

    async fn what_is_still_to_be_looked_for_when_a_node_closes_is_given_back(shop) {
        let answer = Arc::new(Semaphore::new(0));
        let store = Arc::new(Slack { looks: Looks::After(answer.clone()), ..Slack::around(&shop) });
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(NEVER)
            .hot_grace(NEVER)
            .interval(NEVER)
            .store(store)
            .on("Order", "OrderPlaced", Recording::new())
            .start()
            .await
            .unwrap();
        for id in ["1", "2"] {
            let mut tx = shop.pool.begin().await.unwrap();
            let appended = outbox.writer().append(&mut tx, order(id)).await.unwrap();
            tx.commit().await.unwrap();
            appended.committed();
            tokio::task::yield_now().await; // the first is being looked for, the second waits behind it
        }
        let closing = tokio::spawn(async move { outbox.close().await });
        tokio::time::sleep(Duration::from_millis(200)).await; // by then it has begun, or the second is delivered too
        answer.add_permits(2);
        closing.await.unwrap().unwrap();
        assert_eq!(owners(&shop, &["1", "2"]).await, [None, None]);
        assert_eq!(shop.row("1").await.status, DONE);
    }

    async fn an_event_whose_claim_cannot_be_renewed_in_time_is_left_to_the_next_claim(shop) {
        let grace = Duration::from_millis(900);
        let (store, switches) = Flaky::around(shop.store.clone());
        switches.renew_fails.store(true, Ordering::SeqCst);
        let recorder = Recording::new();
        let outbox = Outbox::multi_node(shop.pool.clone())
            .claim_locking(grace * 20)
            .hot_grace(grace)
            .interval(Duration::from_millis(20))
            .store(store)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("1")).await.unwrap();
        tokio::time::sleep(grace * 2 / 3).await; // a third of it is left, and a handler may take longer
        tx.commit().await.unwrap();
        until_status(&shop, "1", DONE).await;
        outbox.close().await.unwrap();
        let claims = shop.row("1").await.claim_seq;
        assert_eq!((recorder.ids().len(), claims), (1, 1), "once, and under a claim of the poller's");
    }
}
