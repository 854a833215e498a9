//! A store that notes how it is asked, and can be held up in the middle of a look at the table.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::Event;
use backstop_core::inspect::Troubled;
use backstop_sql::connection::Connection;
use backstop_sql::store::{
    After, At, Born, Census, Claim, DeadEvent, DeadFilter, Due, Purgeable, Row, Settle, Store,
};
use backstop_sql::{BoxFuture, Error};
use tokio::sync::Semaphore;

/// How due rows were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Poll(Due),
    Claim { owner: String, timeout: Duration, due: Due },
}

impl Asked {
    /// Which rows were wanted, either way.
    pub(crate) fn due(&self) -> Due {
        match self {
            Self::Poll(due) | Self::Claim { due, .. } => *due,
        }
    }

    /// Who claimed, if it was a claim.
    pub(crate) fn owner(&self) -> Option<&str> {
        match self {
            Self::Poll(_) => None,
            Self::Claim { owner, .. } => Some(owner),
        }
    }
}

/// The store.
pub(crate) struct Watched {
    inner: Arc<dyn Store>,
    asked: Mutex<Vec<Asked>>,
    gate: Semaphore,
    gate_after: Semaphore,
}

impl Watched {
    pub(crate) fn around(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            asked: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            gate_after: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    /// Every look at the table until now.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until the table was looked at for the first time, and tells how.
    pub(crate) async fn first_asked(&self) -> Asked {
        backstop_testkit::eventually("a look at the table", async || !self.asked().is_empty()).await;
        self.asked()[0].clone()
    }

    /// Holds up every look from now on, after it was noted and before the rows are read.
    pub(crate) fn hold_up(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets so many looks go on, those that are held up or those to come.
    pub(crate) fn let_go(&self, looks: usize) {
        self.gate.add_permits(looks);
    }

    /// Holds up every look from now on, after the rows were read.
    pub(crate) fn hold_up_after(&self) {
        self.gate_after.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets one look that is held up after its reading go on.
    pub(crate) fn let_one_go_after(&self) {
        self.gate_after.add_permits(1);
    }

    async fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
        self.gate.acquire().await.unwrap().forget();
    }
}

impl Store for Watched {
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
            self.note(Asked::Poll(due)).await;
            let rows = self.inner.poll(due).await;
            self.gate_after.acquire().await.unwrap().forget();
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
            self.note(Asked::Claim { owner: owner.to_string(), timeout, due }).await;
            self.inner.claim(owner, timeout, due).await
        })
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
