//! The queue: durable events on a table, taken by any number of workers, each handled at least once.
//!
//! A row of `events` is PENDING until a worker takes it, PROCESSING while a worker has it, and then moves to `event_log` as
//! COMPLETED or FAILED. What a dead worker held is taken over after a time-out.

mod builder;
mod claim;
mod config;
mod operations;
mod purge;
mod report;
pub(crate) mod table;
mod whereabouts;
mod worker;

use std::fmt;
use std::sync::Arc;

use backstop_core::inspect::{Inspect, Report};
use backstop_core::operate::{Changed, Operate, Operation, Refused};
use backstop_core::trace::TraceContext;
use backstop_core::{Event, telemetry};

use crate::connection::Connection;
use crate::database::At;
use crate::purge::Purge;
use crate::wake_up::{WakeOthers, WakeUpLoops};
use crate::{BoxFuture, Error, Supported};

pub use builder::Builder;
pub use claim::Claimed;
pub use config::{Config, OnFailure, Tables, WorkerConfig};
pub use operations::{Counts, Operations};
pub use table::{Filter, Found, Listed, Requeued, Status};
pub use whereabouts::Whereabouts;
pub use worker::Worker;

use claim::Claim;
use report::{Reporter, Sampler};
use table::{Ending, Finish, New, PutBack};
use worker::{Running, Woken};

/// A queue of durable events on two tables. Cheap to clone; all clones are the same queue.
///
/// Whoever publishes needs no worker to be running. A worker in this process takes events as they come; or take them by hand
/// with [`poll`](Queue::poll) and [`finalize`](Queue::finalize). An event is handled at least once: a handler recognises one
/// that it has handled by its id.
///
/// ```
/// use backstop_core::{Event, Failure};
/// use backstop_sql::Queue;
/// use backstop_sql::queue::Worker;
///
/// async fn invoice(order: u32) -> Result<(), Failure> {
///     println!("invoice for order {order}");
///     Ok(())
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("doc.db")).await?;
/// let worker = Worker::new()
///     .concurrency(16)
///     .on("InvoiceRequested", |event: Event| async move { invoice(event.payload()?).await })
///     .otherwise(|event: Event| async move { println!("nobody handles {}", event.event_type()) });
/// let queue = Queue::new(pool).worker(worker).start().await?;
///
/// queue.publish(Event::of("InvoiceRequested").json(&42)?).await?;
///
/// queue.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct Queue<DB: Supported> {
    pool: sqlx::Pool<DB>,
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    tables: table::Tables,
    metrics: Arc<telemetry::Queue>,
    worker: Option<Running>,
    woken: Woken,
    wake_others: WakeOthers,
    loops: WakeUpLoops,
    purge: Option<Purge>,
    reporter: Arc<Reporter>,
    sampler: Sampler,
    closing: tokio::sync::Mutex<()>,
}

impl<DB: Supported> Queue<DB> {
    /// A queue on the pool's database.
    #[expect(clippy::new_ret_no_self, reason = "it is started by what it returns")]
    pub fn new(pool: sqlx::Pool<DB>) -> Builder<DB> {
        Builder::new(pool)
    }

    /// The pool that it was made with.
    pub fn pool(&self) -> &sqlx::Pool<DB> {
        &self.pool
    }
}

/// Publishing.
impl<DB: Supported> Queue<DB> {
    /// Publishes an event in a transaction of its own, and returns the number of its row.
    pub async fn publish(&self, event: Event) -> Result<i64, Error> {
        let ids = self.publish_all(vec![event]).await?;
        ids.first().copied().ok_or(Error::State("the event was not published"))
    }

    /// Publishes events, all or none, and returns the numbers of their rows, in order.
    pub async fn publish_all(&self, events: Vec<Event>) -> Result<Vec<i64>, Error> {
        let ids = self.inner.tables.publish(&self.inner.new_rows(events)?).await?;
        self.inner.published(ids.len());
        Ok(ids)
    }

    /// Publishes an event in your transaction: it exists from the commit on, or never if there is none.
    ///
    /// ```
    /// # use backstop_core::Event;
    /// # use backstop_sql::Queue;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let directory = backstop_testkit::servers::directory();
    /// # let pool = backstop_sql::sqlite::open(directory.file("doc.db")).await?;
    /// # let queue = Queue::new(pool.clone()).start().await?;
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("create table orders (id int)").execute(&mut *tx).await?;
    /// let published = queue.publish_in(&mut *tx, Event::of("InvoiceRequested").json(&42)?).await?;
    /// tx.commit().await?;
    /// published.committed(); // workers look at once, and not at their own interval
    /// # queue.close().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn publish_in(
        &self,
        transaction: &mut dyn Connection,
        event: Event,
    ) -> Result<Published, Error> {
        self.publish_all_in(transaction, vec![event]).await
    }

    /// Publishes events in your transaction, all or none.
    pub async fn publish_all_in(
        &self,
        transaction: &mut dyn Connection,
        events: Vec<Event>,
    ) -> Result<Published, Error> {
        let ids = self.inner.tables.publish_in(transaction, &self.inner.new_rows(events)?).await?;
        self.inner.metrics.published.add(ids.len() as u64);
        Ok(Published { ids, inner: self.inner.clone() })
    }
}

/// Events that a transaction holds. If nobody says that it has committed, workers find them at their own interval.
#[must_use = "call `committed` after the commit, so that workers look at once"]
pub struct Published {
    ids: Vec<i64>,
    inner: Arc<Inner>,
}

impl Published {
    /// The numbers of the rows, in order.
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// The transaction has committed: workers here and elsewhere are woken.
    pub fn committed(self) {
        self.inner.wake();
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// By hand.
impl<DB: Supported> Queue<DB> {
    /// Takes the earliest event that can be taken: one that waits, or one that was abandoned. Never waits; `None` if there is
    /// none. It counts as abandoned after the time-out, since nobody renews it.
    ///
    /// ```
    /// # use backstop_core::Event;
    /// # use backstop_sql::Queue;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let directory = backstop_testkit::servers::directory();
    /// # let pool = backstop_sql::sqlite::open(directory.file("doc.db")).await?;
    /// # let queue = Queue::new(pool).start().await?;
    /// # queue.publish(Event::of("InvoiceRequested").json(&42)?).await?;
    /// # fn route(event: &Event) -> Result<(), String> { Ok(()) }
    /// while let Some(claimed) = queue.poll().await? {
    ///     let success = route(claimed.event()).is_ok();
    ///     queue.finalize(&claimed, success).await?;
    /// }
    /// # queue.close().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn poll(&self) -> Result<Option<Claimed>, Error> {
        self.inner.poll(At::Database).await
    }

    /// The same as of a moment, for tests.
    #[doc(hidden)]
    pub async fn poll_at(&self, at: At) -> Result<Option<Claimed>, Error> {
        self.inner.poll(at).await
    }

    /// Moves an event to the log as COMPLETED or FAILED. Saying the same twice has no effect the second time.
    ///
    /// If the event was taken over meanwhile, nothing is changed, and this is [`Error::TakenOver`].
    pub async fn finalize(&self, claimed: &Claimed, success: bool) -> Result<(), Error> {
        let ending = if success { Ending::Completed } else { Ending::Failed };
        self.inner.finalize(claimed.claim, ending, None).await
    }

    /// Moves an event to the log as FAILED, with the reason.
    pub async fn finalize_failed(&self, claimed: &Claimed, reason: &str) -> Result<(), Error> {
        self.inner.finalize(claimed.claim, Ending::Failed, Some(reason.to_owned())).await
    }

    /// Moves an event to the log by its number, whoever holds it: for scripts that have nothing else. A worker that is
    /// handling it gets [`Error::TakenOver`].
    ///
    /// An event that is in the log stays as it is; one that nobody has taken is [`Error::NotProcessing`], and one that is
    /// nowhere [`Error::NotQueued`].
    pub async fn finalize_by_id(&self, id: i64, success: bool) -> Result<(), Error> {
        let ending = if success { Ending::Completed } else { Ending::Failed };
        if self.inner.tables.finish_by_id(At::Database, id, ending, None).await? {
            self.inner.ended(ending);
            return Ok(());
        }
        match self.inner.tables.find(At::Database, id).await? {
            None => Err(Error::NotQueued { id }),
            Some(found) if found.listed.status.has_ended() => Ok(()),
            Some(found) => Err(Error::NotProcessing { id, status: found.listed.status.name() }),
        }
    }

    /// Sets an event back to PENDING as if it had not been taken.
    pub async fn give_back(&self, claimed: &Claimed) -> Result<(), Error> {
        let Claim { id, attempt, .. } = claimed.claim;
        let rows = [PutBack::untouched(claimed.claim)];
        if self.inner.tables.put_back(At::Database, &rows).await? == 0 {
            return Err(Error::TakenOver { id, attempt });
        }
        self.inner.metrics.given_back.increment();
        self.inner.wake();
        Ok(())
    }
}

/// For operators.
impl<DB: Supported> Queue<DB> {
    /// Counts, lists, single events, requeues and purges.
    pub fn operations(&self) -> Operations {
        self.inner.operations()
    }

    /// Its counters.
    pub fn metrics(&self) -> &telemetry::Queue {
        &self.inner.metrics
    }

    /// How many events this process has taken and not finished.
    pub fn in_hand(&self) -> usize {
        self.inner.worker.as_ref().map_or(0, Running::in_hand)
    }

    /// Where its events are, how they move, and which are in trouble.
    pub async fn report(&self) -> Report {
        self.inner.report().await
    }

    /// The queue as a component that a dashboard can watch.
    pub fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::new(Watched(self.inner.clone()))
    }

    /// Takes no more events, lets handlers finish within the drain time-out, cancels those that do not, and sets back to
    /// PENDING what was not handled. Closing again has no effect; if the caller stops waiting, closing goes on by itself, and
    /// the next call waits for it.
    pub async fn close(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        let closed = tokio::spawn(async move { inner.close().await }).await;
        closed.unwrap_or(Err(Error::State("closing the queue was interrupted")))
    }
}

impl Inner {
    fn new_rows(&self, events: Vec<Event>) -> Result<Vec<New>, Error> {
        let (source, trace) = (self.config.source(), TraceContext::current());
        let traced = |event: Event| match &trace {
            Some(trace) => event.in_trace(trace),
            None => event,
        };
        events.into_iter().map(|event| New::of(traced(event), &source)).collect()
    }

    fn published(&self, events: usize) {
        if events > 0 {
            self.metrics.published.add(events as u64);
            self.wake();
        }
    }

    /// Workers look at once.
    fn wake(&self) {
        self.woken.by_others.notify_one();
        self.wake_others.ask();
    }

    async fn poll(&self, at: At) -> Result<Option<Claimed>, Error> {
        loop {
            let Some(row) = self.take_one(at).await? else { return Ok(None) };
            let claim = row.claim;
            let (ending, error) = match (row.event, self.config.limit()) {
                (_, Some(limit)) if claim.attempt > limit => {
                    (Ending::GivenUp, format!("given up after {limit} attempts: nobody finished it"))
                }
                (Ok(event), _) => return Ok(Some(Claimed { claim, event, created_at: row.created_at })),
                (Err(unreadable), _) => (Ending::Failed, unreadable),
            };
            tracing::error!(id = claim.id, error, "an event has failed");
            self.finalize(claim, ending, Some(error)).await?;
        }
    }

    async fn take_one(&self, at: At) -> Result<Option<claim::Row>, Error> {
        for which in self.tables.eligible(at, self.config.abandoned_timeout).await? {
            let rows = self.tables.claim(which, at, 1).await?;
            if let Some(row) = rows.into_iter().next() {
                self.metrics.taken.increment();
                if matches!(which, table::Which::Abandoned(_)) {
                    self.metrics.taken_over.increment();
                }
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    async fn finalize(&self, claim: Claim, ending: Ending, error: Option<String>) -> Result<(), Error> {
        let finish = Finish { claim, ending, error };
        if !self.tables.finish(At::Database, &[finish]).await?.is_empty() {
            self.ended(ending);
            return Ok(());
        }
        let Claim { id, attempt, .. } = claim;
        match self.tables.find(At::Database, id).await?.map(|found| found.listed) {
            None => Err(Error::NotQueued { id }),
            Some(listed) if listed.status.has_ended() && listed.attempts == attempt => Ok(()),
            Some(Listed { status: Status::Pending, .. }) => {
                Err(Error::NotProcessing { id, status: Status::Pending.name() })
            }
            Some(_) => {
                self.metrics.late.increment();
                Err(Error::TakenOver { id, attempt })
            }
        }
    }

    fn ended(&self, ending: Ending) {
        match ending {
            Ending::Completed => self.metrics.completed.increment(),
            Ending::Failed | Ending::GivenUp => self.metrics.failed.increment(),
        }
    }

    fn operations(&self) -> Operations {
        let (timeout, woken) = (self.config.abandoned_timeout, self.woken.by_others.clone());
        Operations::assembled(
            self.tables.clone(),
            timeout,
            self.metrics.clone(),
            woken,
            self.wake_others.clone(),
        )
    }

    async fn report(&self) -> Report {
        self.reporter.report(self.worker.as_ref()).await
    }

    async fn close(&self) -> Result<(), Error> {
        // Held to the end, so that a second call waits for the first.
        let _closing = self.closing.lock().await;
        self.sampler.close().await;
        if let Some(purge) = &self.purge {
            purge.close().await;
        }
        self.loops.close_listening().await;
        let closed = match &self.worker {
            Some(worker) => {
                let closed = worker.close().await;
                // Others can take at once what was given back.
                self.wake_others.ask();
                closed
            }
            None => Ok(()),
        };
        self.loops.close().await;
        closed
    }
}

impl<DB: Supported> Clone for Queue<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), inner: self.inner.clone() }
    }
}

impl<DB: Supported> fmt::Debug for Queue<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.inner.reporter.name()).finish_non_exhaustive()
    }
}

struct Watched(Arc<Inner>);

impl Inspect for Watched {
    fn report(&self) -> BoxFuture<'_, Report> {
        Box::pin(self.0.report())
    }

    fn operable(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

impl Operate for Watched {
    fn operate<'a>(&'a self, operation: &'a Operation) -> BoxFuture<'a, Result<Changed, Refused>> {
        Box::pin(async move {
            let Operation::Replay { ids } = operation else { return Err(Refused::NotOffered) };
            let numbers: Option<Vec<i64>> = ids.iter().map(|id| id.parse().ok()).collect();
            let numbers = numbers
                .ok_or_else(|| Refused::Failed("the ids of a queue's events are numbers".to_owned()))?;
            let requeued = self.0.operations().requeue(&numbers, false).await;
            let Requeued { processing, failed } =
                requeued.map_err(|error| Refused::Failed(error.to_string()))?;
            let changed = processing + failed;
            Ok(Changed::new(changed, format!("{changed} of {} events are set back to PENDING", ids.len())))
        })
    }
}
