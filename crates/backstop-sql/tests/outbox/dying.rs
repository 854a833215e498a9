//! A store on which another event dies with every replay, as while what made them fail is still broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::Event;
use backstop_core::delivery::Settlement;
use backstop_core::inspect::Troubled;
use backstop_sql::connection::Connection;
use backstop_sql::store::{
    After, At, Born, Census, Claim, DeadEvent, DeadFilter, Due, Purgeable, Row, Settle, Store,
};
use backstop_sql::{BoxFuture, Error};
use sqlx::SqlitePool;

use crate::harness::order;

/// The store.
pub(crate) struct Dying {
    inner: Arc<dyn Store>,
    pool: SqlitePool,
    died: Arc<AtomicUsize>,
}

impl Dying {
    /// The store, and how many have died in it.
    pub(crate) fn around(inner: Arc<dyn Store>, pool: SqlitePool) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
        let died = Arc::new(AtomicUsize::new(0));
        (Arc::new(Self { inner, pool, died: died.clone() }), died)
    }

    async fn one_more(&self) {
        let number = self.died.fetch_add(1, Ordering::SeqCst);
        let id = format!("died-{number}");
        let mut tx = self.pool.begin().await.unwrap();
        self.inner.insert(&mut tx, &[order(&id)], None).await.unwrap();
        tx.commit().await.unwrap();
        let settlement = Settlement::Dead { error: "still broken".to_owned() };
        self.inner.settle(At::Database, &[Settle { id, claim: None, settlement }]).await.unwrap();
    }
}

impl Store for Dying {
    fn migrate(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.migrate()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.check()
    }

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.insert(connection, events, born)
    }

    fn poll(&self, due: Due) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        self.inner.poll(due)
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        self.inner.claim(owner, timeout, due)
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.release(rows)
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.settle(at, settles)
    }

    fn census(&self, cap: u32) -> BoxFuture<'_, Result<Census, Error>> {
        self.inner.census(cap)
    }

    fn troubled(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Troubled>, Error>> {
        self.inner.troubled(limit)
    }

    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>> {
        self.inner.query_dead(filter, after, limit)
    }

    fn count_dead<'a>(&'a self, filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.count_dead(filter)
    }

    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.one_more().await;
            self.inner.replay_dead(at, ids).await
        })
    }

    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        what: Purgeable,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.purge(connection, what, at, age, limit)
    }
}
