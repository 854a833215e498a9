//! The purge: deletes rows that are older than they need to be, a batch at a time.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::Shutdown;
use backstop_core::config::ValueKind;
use backstop_core::lifecycle::Lifecycle;
use futures_util::FutureExt;
use tokio::sync::Mutex;

use crate::connection::{Connection, Connections};
use crate::database::At;
use crate::database::session::{Session, Setup};
use crate::{BoxFuture, Error};

backstop_core::config! {
    /// Which rows are deleted, and how often.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// Whether rows are deleted when they are old enough.
        enabled: bool = false => "enabled": one(ValueKind::Flag);
        /// How long rows that have ended are kept: DONE or DEAD in an outbox, COMPLETED or FAILED in the log of a queue; in
        /// `writer-only`, rows of any status.
        retention: Duration = Duration::from_hours(7 * 24) => "retention": one(ValueKind::TIME_OR_ZERO);
        /// How many rows one statement deletes, which limits how long it holds locks.
        batch_size: u32 = 500 => "batch-size": one(ValueKind::AT_LEAST_ONE);
        /// How long to rest between two purges.
        interval: Duration = Duration::from_secs(3_600) => "interval-seconds": one(ValueKind::SECONDS);
    }
    setters: Settings.config;
}

/// The settings of a [`Purge`]; `build` checks them.
#[derive(Debug, Clone)]
#[must_use = "settings purge nothing"]
pub struct Settings {
    pub(crate) config: Config,
}

impl Default for Settings {
    fn default() -> Self {
        Self { config: Config { enabled: true, ..Config::default() } }
    }
}

impl Settings {
    /// Checks the settings and makes a purge that is not running yet. It tells `counted` how many rows it deletes.
    pub(crate) fn build_counting(
        self,
        connections: Arc<dyn Connections>,
        purger: impl Purger,
        counted: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<Purge, Error> {
        Error::unless_fit(&self.config)?;
        let (purger, counted) = (Box::new(purger), Box::new(counted));
        let cycle = Cycle { connections, purger, counted, config: self.config };
        Ok(Purge { cycle: Arc::new(Mutex::new(cycle)), lifecycle: Lifecycle::default() })
    }
}

/// Deletes old rows.
pub trait Purger: Send + Sync + 'static {
    /// Deletes at most `limit` rows older than `age` on the connection given, and returns how many. The caller, who
    /// gives the connection, controls the transaction.
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>>;
}

impl Purger for Box<dyn Purger> {
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        (**self).purge(connection, at, age, limit)
    }
}

/// Deletes old rows at an interval, or once.
pub struct Purge {
    /// Locked for a cycle, so that no two overlap.
    cycle: Arc<Mutex<Cycle>>,
    lifecycle: Lifecycle,
}

impl Purge {
    /// Purges in the background from now on. Starting again has no effect; starting after
    /// [`close`](Self::close) is an error.
    pub fn start(&self) -> Result<(), Error> {
        let cycle = self.cycle.clone();
        let started = self.lifecycle.start(move |shutdown| purge_until(shutdown, cycle));
        let closed = Error::State("the purge was closed and cannot be started again: build a new one");
        started.then_some(()).ok_or(closed)
    }

    /// Purges once: batch after batch until one is not full. Returns how many rows were deleted.
    pub async fn run_once(&self) -> Result<u64, Error> {
        self.cycle.lock().await.run(&Shutdown::new()).await
    }

    /// Stops purging, after the batch that is under way. Closing again has no effect; if the caller stops waiting,
    /// the next call waits for that batch.
    pub async fn close(&self) {
        self.lifecycle.close("purge").await;
    }
}

impl fmt::Debug for Purge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purge").field("lifecycle", &self.lifecycle).finish_non_exhaustive()
    }
}

async fn purge_until(shutdown: Shutdown, cycle: Arc<Mutex<Cycle>>) {
    while !shutdown.has_begun() {
        let cycle = cycle.lock().await;
        // A purger of somebody's own may panic: that must not end purging unseen.
        match AssertUnwindSafe(cycle.run(&shutdown)).catch_unwind().await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot purge; trying again at the next interval"),
            Err(_) => tracing::error!("the purger panicked; trying again at the next interval"),
        }
        let interval = cycle.config.interval;
        drop(cycle);
        let _ = shutdown.interrupts(tokio::time::sleep(interval)).await;
    }
}

struct Cycle {
    connections: Arc<dyn Connections>,
    purger: Box<dyn Purger>,
    counted: Box<dyn Fn(u64) + Send + Sync>,
    config: Config,
}

impl Cycle {
    async fn run(&self, shutdown: &Shutdown) -> Result<u64, Error> {
        let Config { retention, batch_size, .. } = self.config;
        let mut purged = 0;
        loop {
            // A connection for each batch, committed by itself: no transaction spans batches.
            let mut session = Session::ours(self.connections.connection().await?, Setup::default());
            let deleted = self.purger.purge(&mut session, At::Database, retention, batch_size).await?;
            drop(session);
            purged += deleted;
            (self.counted)(deleted);
            if deleted < u64::from(batch_size) || shutdown.has_begun() {
                break;
            }
        }
        tracing::info!(purged, "purged rows older than the retention");
        Ok(purged)
    }
}
