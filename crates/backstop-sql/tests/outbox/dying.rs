//! Stores on which events die meanwhile, as while what made them fail is still broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_core::Timestamp;
use backstop_core::delivery::Settlement;
use backstop_core::inspect::Count;
use backstop_sql::connection::Connections;
use backstop_sql::store::{After, At, DeadEvent, DeadFilter, Settle, Store};
use backstop_sql::{BoxFuture, Error};

use crate::harness::{Database, Shop, order};

/// A store on which another event dies with every replay.
pub(crate) struct Dying {
    inner: Arc<dyn Store>,
    /// Says that there are too many dead events to count.
    uncountable: bool,
    connections: Arc<dyn Connections>,
    died: Arc<AtomicUsize>,
}

impl Dying {
    /// The store, and how many have died in it.
    pub(crate) fn around(
        shop: &Shop<impl Database>,
        uncountable: bool,
    ) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
        let died = Arc::new(AtomicUsize::new(0));
        let (inner, connections) = (shop.store.clone(), shop.connections.clone());
        (Arc::new(Self { inner, uncountable, connections, died: died.clone() }), died)
    }

    async fn one_more(&self) {
        let number = self.died.fetch_add(1, Ordering::SeqCst);
        let id = format!("died-{number}");
        let mut tx = self.connections.transaction("BEGIN").await.unwrap();
        self.inner.insert(&mut tx, &[order(&id)], None).await.unwrap();
        tx.commit().await.unwrap();
        let settlement = Settlement::Dead { error: "still broken".to_owned() };
        self.inner
            .settle(At::Database, &[Settle { id, claim: None, attempts: None, generation: None, settlement }])
            .await
            .unwrap();
    }
}

impl Store for Dying {
    forward!(migrate, check, insert, poll, claim, release, settle, census, troubled, query_dead, purge);

    fn count_dead<'a>(&'a self, _filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>> {
        panic!("an operation does not look at all dead events before it changes the first")
    }

    fn count_dead_up_to<'a>(
        &'a self,
        filter: &'a DeadFilter,
        cap: u32,
    ) -> BoxFuture<'a, Result<Count, Error>> {
        if self.uncountable {
            return Box::pin(async { Ok(Count { events: 0, capped: true }) });
        }
        self.inner.count_dead_up_to(filter, cap)
    }

    fn newest_dead(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>> {
        self.inner.newest_dead()
    }

    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.one_more().await;
            self.inner.replay_dead(at, ids).await
        })
    }
}

/// A store on which an event, once it was looked at, is replayed by somebody else and dies of something else.
pub(crate) struct DyingAgain {
    inner: Arc<dyn Store>,
    id: String,
}

impl DyingAgain {
    pub(crate) fn around(shop: &Shop<impl Database>, id: &str) -> Arc<dyn Store> {
        Arc::new(Self { inner: shop.store.clone(), id: id.to_owned() })
    }

    async fn die_again(&self) {
        self.inner.replay_dead(At::Database, std::slice::from_ref(&self.id)).await.unwrap();
        let (id, settlement) = (self.id.clone(), Settlement::Dead { error: "something else".to_owned() });
        let settle = Settle { id, claim: None, attempts: None, generation: None, settlement };
        self.inner.settle(At::Database, &[settle]).await.unwrap();
    }
}

impl Store for DyingAgain {
    forward!(
        migrate,
        check,
        insert,
        poll,
        claim,
        release,
        settle,
        census,
        troubled,
        count_dead,
        replay_dead,
        discard_dead,
        purge
    );

    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>> {
        Box::pin(async move {
            let found = self.inner.query_dead(filter, after, limit).await;
            self.die_again().await;
            found
        })
    }
}
