//! A store that lets a test step in: before a settlement is written, and when due rows have been read.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_core::inspect::Troubled;
use backstop_sql::connection::Connection;
use backstop_sql::store::{
    After, At, Born, Census, Claim, DeadEvent, DeadFilter, Due, Purgeable, Row, Settle, Store,
};
use backstop_sql::{BoxFuture, Error};

type Step = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The store.
pub(crate) struct Spied {
    inner: Arc<dyn Store>,
    before_settle: Option<Step>,
    after_read: Option<Step>,
}

impl Spied {
    pub(crate) fn of(inner: &Arc<dyn Store>) -> Self {
        Self { inner: inner.clone(), before_settle: None, after_read: None }
    }

    /// Runs before settlements are written.
    pub(crate) fn before_settle<F: Future<Output = ()> + Send + 'static>(
        mut self,
        step: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.before_settle = Some(Box::new(move || Box::pin(step())));
        self
    }

    /// Runs when due rows have been read or claimed, and before the poller gets them.
    pub(crate) fn after_read<F: Future<Output = ()> + Send + 'static>(
        mut self,
        step: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.after_read = Some(Box::new(move || Box::pin(step())));
        self
    }

    pub(crate) fn shared(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

async fn run(step: Option<&Step>) {
    if let Some(step) = step {
        step().await;
    }
}

impl Store for Spied {
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
        Box::pin(async move {
            let rows = self.inner.poll(due).await;
            run(self.after_read.as_ref()).await;
            rows
        })
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let rows = self.inner.claim(owner, timeout, due).await;
            run(self.after_read.as_ref()).await;
            rows
        })
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.release(rows)
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            run(self.before_settle.as_ref()).await;
            self.inner.settle(at, settles).await
        })
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
        self.inner.replay_dead(at, ids)
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
