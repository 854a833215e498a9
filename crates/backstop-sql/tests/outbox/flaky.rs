//! A store that fails when it is told to, around a real one. It renews no claims and foresees no due rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use backstop_core::{Event, Timestamp};
use backstop_sql::connection::Connection;
use backstop_sql::store::{
    After, At, Born, Claim, DeadEvent, DeadFilter, Due, NextDue, Purgeable, Row, Settle, Store,
};
use backstop_sql::{BoxFuture, Error};

/// Which operations fail now, and how often some were asked.
#[derive(Default)]
pub(crate) struct Switches {
    pub(crate) settle_fails: AtomicBool,
    pub(crate) settle_times_out: AtomicBool,
    pub(crate) poll_fails: AtomicBool,
    pub(crate) renew_fails: AtomicBool,
    pub(crate) dead_fails: AtomicBool,
    pub(crate) purge_fails: AtomicBool,
    pub(crate) polls: AtomicUsize,
    pub(crate) settles: AtomicUsize,
    pub(crate) inserts: AtomicUsize,
    /// The poller asks what is due next when a look is over and it is about to rest.
    pub(crate) rests: AtomicUsize,
}

/// The store.
pub(crate) struct Flaky {
    inner: Arc<dyn Store>,
    pub(crate) switches: Arc<Switches>,
}

impl Flaky {
    pub(crate) fn around(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Switches>) {
        let switches = Arc::new(Switches::default());
        (Arc::new(Self { inner, switches: switches.clone() }), switches)
    }
}

fn broken<'a, T>() -> BoxFuture<'a, Result<T, Error>> {
    failing(sqlx::Error::RowNotFound)
}

fn failing<'a, T>(source: sqlx::Error) -> BoxFuture<'a, Result<T, Error>> {
    Box::pin(async { Err(Error::Database { doing: "failing on purpose", source }) })
}

fn on(switch: &AtomicBool) -> bool {
    switch.load(Ordering::SeqCst)
}

impl Store for Flaky {
    forward!(migrate, check, release, census, troubled);

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.switches.inserts.fetch_add(1, Ordering::SeqCst);
        self.inner.insert(connection, events, born)
    }

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        self.switches.polls.fetch_add(1, Ordering::SeqCst);
        if on(&self.switches.poll_fails) { broken() } else { self.inner.poll(due) }
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due<'a>,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        self.switches.polls.fetch_add(1, Ordering::SeqCst);
        if on(&self.switches.poll_fails) { broken() } else { self.inner.claim(owner, timeout, due) }
    }

    fn next_due(&self, _: At, _: Option<Timestamp>) -> BoxFuture<'_, Result<Option<NextDue>, Error>> {
        self.switches.rests.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(None) })
    }

    fn renew<'a>(&'a self, _: At, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        if on(&self.switches.renew_fails) {
            broken()
        } else {
            Box::pin(async { Ok(rows.iter().map(|(id, _)| id.clone()).collect()) })
        }
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        self.switches.settles.fetch_add(1, Ordering::SeqCst);
        if on(&self.switches.settle_times_out) {
            failing(sqlx::Error::PoolTimedOut)
        } else if on(&self.switches.settle_fails) {
            broken()
        } else {
            self.inner.settle(at, settles)
        }
    }

    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>> {
        if on(&self.switches.dead_fails) { broken() } else { self.inner.query_dead(filter, after, limit) }
    }

    fn count_dead<'a>(&'a self, filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>> {
        if on(&self.switches.dead_fails) { broken() } else { self.inner.count_dead(filter) }
    }

    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        if on(&self.switches.dead_fails) { broken() } else { self.inner.replay_dead(at, ids) }
    }

    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        what: Purgeable,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        if on(&self.switches.purge_fails) {
            broken()
        } else {
            self.inner.purge(connection, what, at, age, limit)
        }
    }
}
