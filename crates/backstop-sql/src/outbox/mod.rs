//! The transactional outbox: append in a transaction, deliver after its commit.
//!
//! The names used here: types that name events, an [`Event`](backstop_core::Event), the [`Writer`] and its
//! [`Hook`]s, a [`BoundHandler`] with its [`Outcome`](backstop_core::Outcome) or
//! [`Failure`](backstop_core::Failure), and the [`Status`](crate::store::Status) of a row.
//!
//! ```
//! # // Rules: O-020, O-021, O-022, O-023, O-024, O-025, O-026, O-027, O-032, O-041.
//! use backstop_core::event::{AggregateType, EventType};
//! use backstop_core::{Event, Failure, Handler, Outcome, failure};
//! use backstop_sql::connection::Connection;
//! use backstop_sql::outbox::{BoundHandler, Hook, HookError, Writer};
//! use backstop_sql::store::Status;
//!
//! enum Shop {
//!     Order,
//! }
//! enum Orders {
//!     Placed,
//! }
//!
//! impl AggregateType for Shop {
//!     fn name(&self) -> &str {
//!         "Order"
//!     }
//! }
//! impl EventType for Orders {
//!     fn name(&self) -> &str {
//!         "OrderPlaced"
//!     }
//! }
//!
//! /// A handler is anything that takes an event and gives an answer.
//! struct Warehouse;
//! impl Handler for Warehouse {
//!     async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
//!         let items: Vec<String> = event.payload()?;
//!         match items.len() {
//!             0 => Ok(Outcome::dead_because("an empty order")),
//!             _ => Err(Failure::transient("timeout", "the warehouse does not answer")),
//!         }
//!     }
//! }
//!
//! /// A hook sees events on their way into the table.
//! struct Counted;
//! impl Hook for Counted {
//!     fn after_write(&self, events: &[Event]) -> Result<(), HookError> {
//!         println!("{} written", events.len());
//!         Ok(())
//!     }
//! }
//!
//! async fn place(writer: &Writer, tx: &mut dyn Connection) -> Result<Vec<String>, backstop_sql::Error> {
//!     let event = Event::of(Orders::Placed).aggregate(Shop::Order, "42").json(&["tea"])?;
//!     Ok(writer.clone().hook(Counted).append(tx, event).await?.ids())
//! }
//! # let _ = place;
//!
//! // An answer is one of three, and a failure has a class to name and a kind to act on.
//! fn shown(answer: Result<Outcome, Failure>) -> String {
//!     match answer {
//!         Ok(Outcome::Done) => "done".to_owned(),
//!         Ok(Outcome::RetryAfter(delay)) => format!("again in {delay:?}"),
//!         Ok(Outcome::Dead(reason)) => format!("dead: {}", reason.unwrap_or_default()),
//!         Err(failed) if failed.kind() == failure::Kind::Permanent => format!("dead: {}", failed.class()),
//!         Err(failed) => format!("tried again: {}", failed.class()),
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let warehouse = BoundHandler::new(Shop::Order, Orders::Placed, Warehouse);
//! assert_eq!((warehouse.aggregate_type(), warehouse.event_type()), ("Order", "OrderPlaced"));
//! assert_eq!(shown(warehouse.handle(Event::of_json(Orders::Placed, "[]").unwrap()).await), "dead: an empty order");
//! let order = Event::of_json(Orders::Placed, r#"["tea"]"#).unwrap();
//! assert_eq!(shown(warehouse.handle(order).await), "tried again: timeout");
//! let unreadable = Event::of_json(Orders::Placed, "7").unwrap();
//! assert_eq!(shown(warehouse.handle(unreadable).await), "dead: payload");
//! # });
//!
//! // A row is in one of four states, which its column holds as a number.
//! let stored = |status: Status| match status {
//!     Status::New | Status::Done | Status::Retry | Status::Dead => status as u8,
//! };
//! assert_eq!([Status::New, Status::Done, Status::Retry, Status::Dead].map(stored), [0, 1, 2, 3]);
//! ```

mod builder;
mod claims;
mod config;
mod dead;
pub mod dispatcher;
mod feed;
mod gate;
mod guard;
mod hook;
mod hot_path;
mod in_flight;
mod lease;
mod ledger;
mod mode;
pub mod poller;
pub mod purge;
pub(crate) mod report;
mod sampling;
mod settler;
pub mod store;
mod transaction;
mod whereabouts;
mod writer;

use std::fmt;
use std::sync::Arc;

use backstop_core::inspect::{Inspect, Report};
use backstop_core::operate::{self, Changed, Operate, Refused};
use backstop_core::telemetry;

use crate::renewal::Renewal;
use crate::store::Store;
use crate::wake_up::{WakeOthers, WakeUpLoops, WakeUps};
use crate::{BoxFuture, Error, Supported};

pub use crate::routes::registry::{BoundHandler, Registry};
pub use backstop_core::interceptor::{self, Interceptor};
pub use builder::Builder;
pub(crate) use builder::recorded;
pub use claims::Config as ClaimLocking;
pub(crate) use config::TABLE;
pub use config::{Config, Metrics, Table};
pub use dead::{BroughtBack, DeadEvents, Operation, Redriven, Stopped};
pub use dispatcher::Dispatcher;
pub use feed::{Queued, Source};
pub use hook::{Hook, HookError};
pub use in_flight::{Hold, InFlight, Tracker};
pub use mode::{Delivering, Mode, MultiNode, Ordered, SingleNode, Tunable, WriterOnly};
pub use poller::{PollHandler, Poller};
pub use purge::{Purge, Purger, StorePurger};
pub use transaction::Transaction;
pub use whereabouts::{ClaimedBy, EventState, Failed, Whereabouts};
pub use writer::{Appended, Writer};

/// The routes that an outbox holds, and how it probes them: behind the place of the last probe.
type HeldRoutes = crate::routes::held::HeldRoutes<store::Place>;
type Probe = crate::routes::held::Probe<store::Place>;

use guard::Guard;
use hot_path::HotPath;
use mode::ModeKind;
use report::Reporter;
use sampling::{Sampler, Sampling};

/// A running outbox: begins transactions, delivers the events appended in them, and shows what waits.
///
/// Cheap to clone; all clones are the same outbox. Ends with [`close`](Outbox::close), which lets handlers finish;
/// events that are not finished by then stay in the table and are delivered after the next start.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::Outbox;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("doc.db")).await?;
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
    writer: Writer,
    hot_path: Option<Arc<HotPath>>,
    dispatcher: Option<Dispatcher>,
    renewal: Option<Renewal>,
    poller: Option<Poller>,
    purge: Option<Purge>,
    reporter: Reporter,
    sampling: Option<Arc<Sampling>>,
    sampler: Sampler,
    metrics: Arc<telemetry::Outbox>,
    guard: Option<Guard>,
    wake_others: WakeOthers,
    wake_up_loops: WakeUpLoops,
    closing: tokio::sync::Mutex<()>,
}

impl<DB: Supported> Outbox<DB> {
    /// An outbox for a process that has its table to itself: rows are delivered right after their commit,
    /// and a poller finds the rows that this misses. No row is ever locked.
    ///
    /// Like the other three it takes the pool first, so there is no outbox without a database.
    pub fn single_node(pool: sqlx::Pool<DB>) -> Builder<DB, SingleNode> {
        Builder::new(pool)
    }

    /// An outbox for several processes on one table: for a short time a row belongs to the node that wrote it,
    /// and pollers claim rows before they deliver them. Needs [`claim_locking`](Builder::claim_locking).
    pub fn multi_node(pool: sqlx::Pool<DB>) -> Builder<DB, MultiNode> {
        Builder::new(pool)
    }

    /// An outbox that delivers in the order of creation: one process, one worker, one attempt. An event that fails
    /// is dead at once, so that no later one overtakes it while it waits; replay it when the cause is gone.
    pub fn ordered(pool: sqlx::Pool<DB>) -> Builder<DB, Ordered> {
        Builder::new(pool)
    }

    /// An outbox that only writes: change-data capture or another process delivers.
    pub fn writer_only(pool: sqlx::Pool<DB>) -> Builder<DB, WriterOnly> {
        Builder::new(pool)
    }

    /// Begins a transaction in which business statements run and events are appended.
    pub async fn begin(&self) -> Result<Transaction<DB>, Error> {
        let transaction = DB::begin(&self.pool).await.map_err(Error::database("beginning a transaction"))?;
        Ok(Transaction::new(transaction, self.inner.writer.clone()))
    }

    /// Runs `work` in a transaction: commits if it returns `Ok`, rolls back if it returns an error or panics.
    ///
    /// ```
    /// # use backstop_core::Event;
    /// # use backstop_sql::{Error, Outbox};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let directory = backstop_testkit::servers::directory();
    /// # let pool = backstop_sql::sqlite::open(directory.file("doc.db")).await?;
    /// # let outbox = Outbox::writer_only(pool).start().await?;
    /// let id = outbox
    ///     .transaction(async |tx| tx.append(Event::of_json("OrderPlaced", "{}")?).await)
    ///     .await?;
    /// assert!(id.is_some());
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    pub async fn transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<DB>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut transaction = self.begin().await?;
        match work(&mut transaction).await {
            Ok(value) => {
                transaction.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // The caller's error is the one that matters; a rollback that fails happens by itself.
                let _ = transaction.rollback().await;
                Err(error)
            }
        }
    }

    /// The writer, for transactions that the outbox did not begin. It appends on a connection that it is given, and
    /// never without one.
    pub fn writer(&self) -> &Writer {
        &self.inner.writer
    }

    /// The dead events: look at them, count them, replay or discard them.
    pub fn dead(&self) -> DeadEvents {
        self.inner.dead()
    }

    /// Deletes old rows now, as the purge does at its interval. Returns how many; none if no purge is set.
    pub async fn purge(&self) -> Result<u64, Error> {
        match &self.inner.purge {
            Some(purge) => purge.run_once().await,
            None => Ok(0),
        }
    }

    /// The table, for tools that look at it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Looks for due rows now, without waiting for the interval.
    pub fn nudge(&self) {
        if let Some(poller) = &self.inner.poller {
            poller.nudge();
        }
    }

    /// What the outbox has counted since it started.
    pub fn metrics(&self) -> &telemetry::Outbox {
        &self.inner.metrics
    }

    /// Where its events are, how they move, and which are in trouble.
    pub async fn report(&self) -> Report {
        self.inner.reporter.report().await
    }

    /// The outbox as a component that a dashboard can watch.
    pub fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::new(Watched(self.inner.clone()))
    }

    /// Stops purging, stops polling, lets the handlers finish within the drain time-out and writes the results. Each
    /// step runs even if the one before failed; closing again has no effect. If the caller stops waiting, closing
    /// goes on by itself, and the next call waits for it.
    pub async fn close(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        let closed = tokio::spawn(async move { inner.close().await }).await;
        closed.unwrap_or(Err(Error::State("closing the outbox was interrupted")))
    }
}

impl Inner {
    fn dead(&self) -> DeadEvents {
        let nudge = self.poller.as_ref().map(Poller::nudged).unwrap_or_default();
        let Self { store, metrics, wake_others, .. } = self;
        DeadEvents::assembled(store.clone(), metrics.clone(), nudge, wake_others.clone())
    }

    /// Starts the poller, the purge and the wake-ups; if one cannot be, what runs already is closed again.
    async fn start_loops(
        &self,
        mode: ModeKind,
        wake_ups: Option<(Arc<dyn WakeUps>, bool)>,
    ) -> Result<(), Error> {
        let started = (self.poller.as_ref().map_or(Ok(()), Poller::start))
            .and_then(|()| self.purge.as_ref().map_or(Ok(()), Purge::start));
        if let (Ok(()), Some(sampling)) = (&started, &self.sampling) {
            self.sampler.start(sampling.clone());
        }
        match (&started, wake_ups) {
            (Ok(()), Some((wake_ups, heard))) => self.start_wake_ups(mode, wake_ups, heard),
            (Ok(()), None) => {}
            (Err(_), _) => drop(self.close().await),
        }
        started
    }

    /// Wakes other nodes if there can be any, and listens for wake-ups if there is a poller to wake.
    fn start_wake_ups(&self, mode: ModeKind, wake_ups: Arc<dyn WakeUps>, heard: bool) {
        if let (Some(poller), true) = (&self.poller, heard) {
            self.wake_up_loops.start_listening(wake_ups.clone(), poller.nudged(), poller.hears());
        }
        if matches!(mode, ModeKind::MultiNode | ModeKind::WriterOnly) {
            self.wake_up_loops.start_waking(self.wake_others.clone(), wake_ups);
        }
    }

    async fn close(&self) -> Result<(), Error> {
        // Held to the end, so that a second call waits for the first.
        let _closing = self.closing.lock().await;
        self.sampler.close().await;
        if let Some(purge) = &self.purge {
            purge.close().await;
        }
        self.wake_up_loops.close_listening().await;
        if let Some(poller) = &self.poller {
            poller.close().await;
        }
        if let Some(hot_path) = &self.hot_path {
            hot_path.close().await;
        }
        let drained = match &self.dispatcher {
            Some(dispatcher) => dispatcher.close().await,
            None => Ok(()),
        };
        // Last, so that claims are kept alive while the handlers finish.
        if let Some(renewal) = &self.renewal {
            renewal.close().await;
            // Other nodes can take at once what was given back.
            self.wake_others.ask();
        }
        self.wake_up_loops.close().await;
        if let Some(guard) = &self.guard {
            guard.close().await;
        }
        drained
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

    fn operable(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

impl Operate for Watched {
    fn operate<'a>(&'a self, operation: &'a operate::Operation) -> BoxFuture<'a, Result<Changed, Refused>> {
        Box::pin(async move { self.0.dead().operate(operation).await })
    }
}
