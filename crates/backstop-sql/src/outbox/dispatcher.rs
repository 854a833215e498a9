//! The dispatcher: workers that draw events, run their handlers and pass on what became of them.

mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::interceptor::{Interceptor, Interceptors};
use backstop_core::retry::{Policy, Retry, SharedPolicy};
use backstop_core::setting::Faults;
use backstop_core::{Event, telemetry};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::burials::Burials;
use super::claims::Renewer;
use super::feed::{Feed, Offer};
use super::in_flight::{InFlight, Tracker};
use super::lease::Leases;
use super::queues::{Limits, Queues, Source};
use super::registry::Registry;
use super::settler::Settler;
use crate::Error;
use crate::renewal::Terms;
use crate::store::{Claim, Store};
use worker::{Delivering, Unfailing, work};

/// What `close` still waits for when the drain time-out is over: aborted handlers, and the writing of what
/// the others finished.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The settings of a [`Dispatcher`]; [`start`](Settings::start) checks them and starts its workers.
#[derive(Clone)]
pub struct Settings {
    pub(super) workers: usize,
    pub(super) hot_capacity: usize,
    pub(super) cold_capacity: usize,
    pub(super) queue_bytes: usize,
    pub(super) retry: Retry,
    pub(super) drain_timeout: Duration,
    pub(super) tracker: Arc<dyn Tracker>,
    pub(super) interceptors: Interceptors,
    /// Whether a deferral breaks a promise of order, and is worth a warning.
    pub(super) strict_order: bool,
    /// How long claims are good for, where rows are claimed.
    pub(super) terms: Option<Terms>,
    /// Where dead events are laid down beside the table.
    pub(super) burials: Arc<Burials>,
    /// The name that handlers are told.
    pub(super) component: Arc<str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 4,
            hot_capacity: 1_000,
            cold_capacity: 1_000,
            queue_bytes: 64 << 20,
            retry: Retry::default(),
            drain_timeout: Duration::from_millis(5_000),
            tracker: Arc::new(InFlight::new()),
            interceptors: Interceptors::default(),
            strict_order: false,
            terms: None,
            burials: Arc::default(),
            component: "outbox".into(),
        }
    }
}

impl Settings {
    /// How many events are handled at the same time. Defaults to 4.
    pub fn worker_count(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many committed events may wait in memory. Defaults to 1000.
    pub fn hot_queue_capacity(mut self, events: usize) -> Self {
        self.hot_capacity = events;
        self
    }

    /// How many polled events may wait in memory. Defaults to 1000.
    pub fn cold_queue_capacity(mut self, events: usize) -> Self {
        self.cold_capacity = events;
        self
    }

    /// How many bytes of events may wait in memory, in each of the two queues. An empty queue takes an event of any size.
    /// Defaults to 64 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// How often a handler is called for an event at most. Defaults to 10.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.retry.max_attempts = attempts;
        self
    }

    /// How long to wait before a retry. Defaults to 200 ms, doubling up to 60 s, spread by half.
    pub fn retry_policy(mut self, policy: impl Policy) -> Self {
        self.retry.policy = SharedPolicy::new(Unfailing(policy));
        self
    }

    /// How long [`close`](Dispatcher::close) waits for handlers. Defaults to 5 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// What remembers the events in flight. Defaults to [`InFlight::new`].
    pub fn tracker(mut self, tracker: impl Tracker) -> Self {
        self.tracker = Arc::new(tracker);
        self
    }

    /// Adds an interceptor around every handler. Defaults to none.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.add(Arc::new(interceptor));
        self
    }

    /// Adds several interceptors, in their order.
    pub fn interceptors(mut self, interceptors: impl IntoIterator<Item = Arc<dyn Interceptor>>) -> Self {
        interceptors.into_iter().for_each(|interceptor| self.interceptors.add(interceptor));
        self
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        faults.at_least_one("worker_count", self.workers);
        faults.at_least_one("hot_queue_capacity", self.hot_capacity);
        faults.at_least_one("cold_queue_capacity", self.cold_capacity);
        faults.at_least_one("queue_bytes", self.queue_bytes);
        faults.at_least_one("max_attempts", self.retry.max_attempts);
    }

    /// Checks the settings and starts the workers. Store, registry and metrics are required; the store brings
    /// the pool with it.
    ///
    /// ```compile_fail,E0061
    /// # // Rules: O-270, O-271.
    /// # use std::sync::Arc;
    /// # use backstop_core::telemetry;
    /// use backstop_sql::outbox::dispatcher;
    ///
    /// dispatcher::Settings::default().start(Arc::new(telemetry::Outbox::new("outbox")));
    /// ```
    ///
    /// ```compile_fail,E0061
    /// # // Rules: O-269.
    /// use backstop_sql::{TableName, store::SqlStore};
    ///
    /// SqlStore::on(TableName::default());
    /// ```
    pub fn start(
        self,
        store: Arc<dyn Store>,
        registry: Registry,
        metrics: Arc<telemetry::Outbox>,
    ) -> Result<Dispatcher, Error> {
        let mut faults = Faults::default();
        self.check(&mut faults);
        faults.into_result().map_err(|faults| Error::Settings { faults })?;
        Ok(Dispatcher::new(self, store, registry, metrics))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("worker_count", &self.workers)
            .field("hot_queue_capacity", &self.hot_capacity)
            .field("cold_queue_capacity", &self.cold_capacity)
            .field("queue_bytes", &self.queue_bytes)
            .field("max_attempts", &self.retry.max_attempts)
            .field("drain_timeout", &self.drain_timeout)
            .finish_non_exhaustive()
    }
}

/// An event on its way to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The event.
    pub event: Event,
    /// Where it comes from, which decides the queue it waits in.
    pub source: Source,
    /// How many tries have failed before.
    pub attempts: u32,
    /// The claim under which it is delivered.
    pub claim: Option<Claim>,
    /// How often its row had been claimed or replayed: if given, what becomes of it is written only while that is so.
    pub generation: Option<i64>,
}

impl Queued {
    /// An event that has just been committed.
    pub fn hot(event: Event) -> Self {
        Self { event, source: Source::Hot, attempts: 0, claim: None, generation: None }
    }

    /// An event read from its row.
    pub fn cold(event: Event, attempts: u32) -> Self {
        Self { event, source: Source::Cold, attempts, claim: None, generation: None }
    }
}

/// Runs handlers: events wait in a hot and a cold queue, workers draw them two to one, and what became of
/// them is written in batches.
///
/// Part of an [`Outbox`](super::Outbox); also usable alone, as here with rows fed by hand:
///
/// ```
/// use std::sync::Arc;
/// use backstop_core::{Event, telemetry};
/// use backstop_sql::{TableName, outbox::{Queued, Registry, dispatcher}, store::{SqlStore, Store}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
/// let store: Arc<dyn Store> = Arc::new(SqlStore::on(pool, TableName::default()));
/// store.migrate().await?;
/// let registry = Registry::new();
/// registry.register("Order", "OrderPlaced", |_: Event| async {})?;
///
/// let metrics = Arc::new(telemetry::Outbox::new("outbox"));
/// let dispatcher = dispatcher::Settings::default().worker_count(8).start(store, registry, metrics)?;
/// let event = Event::of("OrderPlaced").aggregate("Order", "1").json(&())?;
/// assert!(dispatcher.enqueue(Queued::cold(event, 0)));
/// dispatcher.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct Dispatcher {
    feed: Feed,
    store: Arc<dyn Store>,
    renewer: Option<Arc<Renewer>>,
    running: Arc<Mutex<Option<Running>>>,
    drain_timeout: Duration,
}

struct Running {
    workers: JoinSet<()>,
    settler: Settler,
}

impl Dispatcher {
    fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        registry: Registry,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        let (hot, cold, bytes) = (settings.hot_capacity, settings.cold_capacity, settings.queue_bytes);
        let queues = Queues::new(Limits { hot, cold, bytes });
        let leases = Leases::new(settings.tracker, settings.terms);
        let feed = Feed::new(queues, leases.clone(), metrics.clone());
        let renew = |terms| Arc::new(Renewer::new(store.clone(), leases, terms));
        let renewer = settings.terms.map(renew);
        let delivering = Arc::new(Delivering {
            registry,
            retry: settings.retry,
            interceptors: settings.interceptors,
            burials: settings.burials,
            component: settings.component,
            renewer: renewer.clone(),
            metrics: metrics.clone(),
        });
        let settler = Settler::start(store.clone(), feed.clone(), metrics, settings.strict_order);
        let mut workers = JoinSet::new();
        for _ in 0..settings.workers {
            workers.spawn(work(feed.clone(), delivering.clone(), settler.sender()));
        }
        let running = Arc::new(Mutex::new(Some(Running { workers, settler })));
        Self { feed, store, renewer, running, drain_timeout: settings.drain_timeout }
    }

    /// What renews the claims of its events, where rows are claimed.
    pub(super) fn renewer(&self) -> Option<Arc<Renewer>> {
        self.renewer.clone()
    }

    /// Queues an event. False when its queue is full or the dispatcher is closing: the event stays in the
    /// table. An event that is in flight already is dropped, since its delivery is under way.
    pub fn enqueue(&self, queued: Queued) -> bool {
        let offer = match queued.source {
            Source::Hot if queued.event.is_delayed() => {
                self.feed.schedule();
                Offer::Refused
            }
            Source::Hot => match self.feed.leases().take(queued.event.id()) {
                Some(lease) => self.feed.offer_hot(&queued.event, queued.claim, lease),
                None => Offer::Duplicate,
            },
            Source::Cold => self.feed.offer_cold(queued),
        };
        offer != Offer::Refused
    }

    /// How many more events the cold queue takes.
    pub fn cold_queue_remaining_capacity(&self) -> usize {
        self.feed.cold_room()
    }

    pub(super) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Stops taking events, lets the workers drain the queues within the drain time-out, then writes what
    /// became of the events. What was not handled by then is aborted and stays in the table. Closing again
    /// has no effect; given up, it goes on by itself, and whoever closes next waits for it.
    pub async fn close(&self) -> Result<(), Error> {
        self.feed.queues.close();
        self.feed.gate().close();
        let closing = Closing {
            feed: self.feed.clone(),
            store: self.store.clone(),
            running: self.running.clone(),
            drain_timeout: self.drain_timeout,
        };
        let closed = tokio::spawn(closing.close()).await;
        closed.unwrap_or(Err(Error::State("closing the dispatcher was interrupted")))
    }
}

/// What it takes to close a dispatcher, whoever still waits for that.
struct Closing {
    feed: Feed,
    store: Arc<dyn Store>,
    running: Arc<Mutex<Option<Running>>>,
    drain_timeout: Duration,
}

impl Closing {
    async fn close(self) -> Result<(), Error> {
        // Locked to the end, so that whoever closes second waits for the first.
        let mut running = self.running.lock().await;
        let Some(Running { mut workers, settler }) = running.take() else { return Ok(()) };
        let began = Instant::now();
        let drained = timeout(self.drain_timeout, all_ended(&mut workers)).await.is_ok();
        if !drained {
            let (hot, cold) = self.feed.queues.depths();
            let running = workers.len();
            tracing::warn!(
                running,
                hot,
                cold,
                "handlers did not finish in time; their events stay in the table"
            );
            workers.abort_all();
            // A handler that blocks its thread cannot be aborted, and is not waited for.
            let _ = timeout(LAST_WORDS, all_ended(&mut workers)).await;
        }
        let left = self.drain_timeout.saturating_sub(began.elapsed());
        let written = settler.close(left.max(LAST_WORDS)).await;
        self.give_claims_back().await;
        if drained && written { Ok(()) } else { Err(Error::Drain(self.drain_timeout)) }
    }

    /// What was claimed and not handled is for any node to take at once.
    async fn give_claims_back(&self) {
        let rows = self.feed.leases().ledger().take_all_claims();
        if rows.is_empty() {
            return;
        }
        match timeout(LAST_WORDS, self.store.release(&rows)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, claims = rows.len(), "cannot give claims back; they run out by themselves");
            }
            Err(_) => tracing::warn!(
                claims = rows.len(),
                "claims were not given back in time; they run out by themselves"
            ),
        }
    }
}

async fn all_ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("depths", &self.feed.queues.depths()).finish_non_exhaustive()
    }
}
