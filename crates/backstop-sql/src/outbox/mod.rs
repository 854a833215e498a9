//! The transactional outbox: append in a transaction, deliver after its commit.

mod builder;
mod dispatcher;
mod in_flight;
mod poller;
mod queues;
mod registry;
mod report;
mod settler;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::inspect::{Inspect, Report};
use backstop_core::telemetry;

use crate::store::Store;
use crate::{BoxFuture, Error, Supported};

pub use builder::Builder;
pub use transaction::Transaction;

use dispatcher::Dispatcher;
use poller::Poller;
use report::Reporter;

/// A running outbox: begins transactions, delivers what they appended, and shows what waits.
///
/// Cheap to clone; all clones are the same outbox. Ends with [`close`](Outbox::close), which lets
/// handlers finish; what is not finished by then stays in the table and is delivered by the next start.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::Outbox;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let url = format!("sqlite://{}/doc.db?mode=rwc", directory.path().display());
/// # let pool = sqlx::SqlitePool::connect(&url).await?;
/// let outbox = Outbox::single_node(pool)
///     .on("Order", "OrderPlaced", |event: Event| async move {
///         println!("shipping {}", event.payload_json());
///     })
///     .start()
///     .await?;
///
/// let mut tx = outbox.begin().await?; // derefs to the connection, for your own statements
/// sqlx::query("create table stock (item text, pieces int)").execute(&mut *tx).await?;
/// tx.append(Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?).await?;
/// tx.commit().await?; // delivery begins here, never before
///
/// outbox.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct Outbox<DB: Supported> {
    pool: sqlx::Pool<DB>,
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    dispatcher: Dispatcher,
    poller: Poller,
    reporter: Reporter,
    metrics: Arc<telemetry::Outbox>,
    drain_timeout: Duration,
}

impl<DB: Supported> Outbox<DB> {
    /// An outbox for a process that has its table to itself: rows are delivered right after their commit,
    /// and a poller catches what that misses. No row is ever locked.
    pub fn single_node(pool: sqlx::Pool<DB>) -> Builder<DB> {
        Builder::new(pool, None)
    }

    /// An outbox for several processes on one table: the poller claims rows before it delivers them.
    /// Needs [`claim_locking`](Builder::claim_locking).
    pub fn multi_node(pool: sqlx::Pool<DB>) -> Builder<DB> {
        Builder::new(pool, Some(builder::Locking::Missing))
    }

    /// Begins a transaction in which business statements run and events are appended.
    pub async fn begin(&self) -> Result<Transaction<DB>, Error> {
        let transaction = DB::begin(&self.pool).await.map_err(Error::database("beginning a transaction"))?;
        Ok(Transaction::new(transaction, self.inner.clone()))
    }

    /// Looks for due rows now, without waiting for the interval.
    pub fn nudge(&self) {
        self.inner.poller.nudge();
    }

    /// What the outbox has counted since it started.
    pub fn metrics(&self) -> &telemetry::Outbox {
        &self.inner.metrics
    }

    /// Where its events are, how they move, and which are in trouble.
    pub async fn report(&self) -> Report {
        self.inner.reporter.report().await
    }

    /// The outbox as something that can be looked at, for a dashboard.
    pub fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::new(Watched(self.inner.clone()))
    }

    /// Stops polling, lets the handlers finish within the drain time-out and writes what became of their
    /// events. Closing again has no effect.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.poller.close().await;
        self.inner.dispatcher.close(self.inner.drain_timeout).await
    }
}

impl<DB: Supported> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), inner: self.inner.clone() }
    }
}

impl<DB: Supported> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("name", &self.inner.reporter.name()).finish_non_exhaustive()
    }
}

struct Watched(Arc<Inner>);

impl Inspect for Watched {
    fn report(&self) -> BoxFuture<'_, Report> {
        Box::pin(self.0.reporter.report())
    }
}
