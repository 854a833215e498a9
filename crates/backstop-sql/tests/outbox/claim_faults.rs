//! Claims while the database is slow, or does not take them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::Event;
use backstop_sql::outbox::poller::Settings;
use backstop_sql::store::{Claim, Store};
use backstop_sql::{BoxFuture, Error, Outbox};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Recording;
use tokio::sync::{Notify, Semaphore};

use crate::flaky::Flaky;
use crate::harness::{DONE, NEVER, Shop, metrics, order};
use crate::spied::Spied;
use crate::steps::{orders, until_status};

/// The answer to a claim may take longer than the claim is good for. Counted from the answer it would look fresh here,
/// while another node has long delivered the event.
#[tokio::test]
async fn a_claim_whose_answer_came_when_it_was_over_is_not_acted_upon() {
    let shop = Shop::open().await;
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

/// How giving back fails.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The database is away.
    Outage,
    /// It is there, and refuses.
    Refusal,
}

/// A store that takes no claim back for the first so many times.
struct Keeping {
    inner: Arc<dyn Store>,
    trouble: Trouble,
    left: AtomicUsize,
}

impl Keeping {
    fn around(shop: &Shop, trouble: Trouble, times: usize) -> Arc<Self> {
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
        };
        Box::pin(async { Err(Error::Database { doing: "failing on purpose", source }) })
    }
}

async fn owners(shop: &Shop, ids: &[&str]) -> Vec<Option<String>> {
    let mut owners = Vec::new();
    for id in ids {
        owners.push(shop.row(id).await.locked_by);
    }
    owners
}

#[tokio::test]
async fn rows_that_were_refused_and_could_not_be_given_back_are_given_back_with_the_next_look() {
    for trouble in [Trouble::Outage, Trouble::Refusal] {
        let shop = Shop::open().await;
        shop.insert(&orders(3)).await;
        let ids = ["0000", "0001", "0002"];
        let store = Keeping::around(&shop, trouble, 1);
        let none = |_: Event, _: u32| false;
        let settings = Settings::default().claim_locking_as("a", NEVER);
        let poller = settings.build(store.clone(), none, metrics()).unwrap();
        poller.poll().await.unwrap_err();
        assert_eq!(owners(&shop, &ids).await, vec![Some("a".to_owned()); 3], "{trouble:?}");
        // Its own claims last for ever, so it takes nothing by itself: what it gives back it had kept in mind.
        poller.poll().await.unwrap();
        assert_eq!(owners(&shop, &ids).await, vec![None; 3], "{trouble:?}");
    }
}

#[tokio::test]
async fn a_claim_that_nobody_stands_for_is_given_back_however_often_that_fails_at_first() {
    for (trouble, times) in [(Trouble::Outage, 3), (Trouble::Refusal, 6)] {
        let shop = Shop::open().await;
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

#[tokio::test]
async fn an_event_whose_claim_cannot_be_renewed_in_time_is_left_to_the_next_claim() {
    let grace = Duration::from_millis(900);
    let shop = Shop::open().await;
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
    let claims: i64 =
        sqlx::query_scalar("select claim_seq from outbox_event").fetch_one(&shop.pool).await.unwrap();
    assert_eq!((recorder.ids().len(), claims), (1, 1), "once, and under a claim of the poller's");
}
