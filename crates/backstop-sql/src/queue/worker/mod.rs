//! The worker: takes events in batches, hands each to the handler of its type, and records the results.

mod buffer;
mod finalizer;
mod handling;
mod in_hand;
mod pace;
mod passing;
mod take_over;
mod taker;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::burial::Bury;
use backstop_core::event::{EventType, GLOBAL};
use backstop_core::interceptor::{Interceptor, Interceptors};
use backstop_core::lifecycle::Lifecycle;
use backstop_core::retry::{Policy, Retry, SharedPolicy};
use backstop_core::{Event, IntoHandler, Shutdown, Timestamp, telemetry};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::claim::{Claim, Row};
use super::config::{Config, OnFailure, WorkerConfig};
use super::table::Tables;
use crate::Error;
use crate::burials::Burials;
use crate::outbox::dispatcher::unfailing;
use crate::renewal::Renewal;
use crate::routes::held::HeldRoutes;
use crate::routes::registry::Registry;
use buffer::Buffer;
use finalizer::{Finalizer, Outgoing, Trouble};
use handling::Handling;
use in_hand::InHand;
use take_over::{LanePass, TakeOver};
use taker::Taker;

/// What is left to those who end when time is up.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Handlers by event type, and how they are run. [`Builder::worker`](super::Builder::worker) takes it.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::queue::{OnFailure, Worker};
///
/// let worker = Worker::new()
///     .concurrency(16)
///     .on_failure(OnFailure::Retry)
///     .on("InvoiceRequested", |event: Event| async move { println!("{}", event.payload_json()) })
///     .otherwise(|event: Event| async move { println!("no idea what {} is", event.event_type()) });
/// # let _ = worker;
/// ```
#[must_use = "a worker does nothing until its queue is started"]
pub struct Worker {
    pub(super) config: WorkerConfig,
    registry: Registry,
    duplicate: Option<Error>,
    interceptors: Interceptors,
    policy: Option<SharedPolicy>,
    burials: Burials,
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

impl Worker {
    /// A worker without handlers.
    pub fn new() -> Self {
        Self {
            config: WorkerConfig::default(),
            registry: Registry::by_type(),
            duplicate: None,
            interceptors: Interceptors::default(),
            policy: None,
            burials: Burials::default(),
        }
    }

    /// The handler of events of a type. A second one for the same type is an error at the start.
    pub fn on<By>(mut self, event_type: impl EventType, handler: impl IntoHandler<By>) -> Self {
        let registered = self.registry.register(GLOBAL, event_type, handler);
        self.duplicate = self.duplicate.or(registered.err());
        self
    }

    /// The handler of all events that have no other. Without it they have FAILED, with the reason.
    pub fn otherwise<By>(mut self, handler: impl IntoHandler<By>) -> Self {
        let registered = self.registry.otherwise(handler);
        self.duplicate = self.duplicate.or(registered.err());
        self
    }

    /// Adds code that runs around every handler, inside what was added before.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.add(Arc::new(interceptor));
        self
    }

    /// How long a failed event waits, in your own words, with [`OnFailure::Retry`].
    pub fn retry_policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(unfailing(policy));
        self
    }

    /// Where a copy of each event goes that has FAILED, before it is recorded as such.
    pub fn dead_letters(mut self, burial: impl Bury) -> Self {
        self.burials.set_all(burial);
        self
    }

    /// Fails if two handlers are for the same events, or if there is none.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        match self.duplicate.take() {
            Some(duplicate) => Err(duplicate),
            None if self.registry.names().is_empty() => Err(Error::State(
                "the worker has no handler: give it one with `on` or `otherwise`, or leave the worker out",
            )),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("config", &self.config)
            .field("routes", &self.registry.names())
            .finish_non_exhaustive()
    }
}

/// An event in this process's hands.
#[derive(Debug)]
struct Taken {
    claim: Claim,
    created_at: Timestamp,
    event: Result<Event, String>,
    /// Whether its row names its type.
    has_type: bool,
    /// Whether it is to find out if its route, which is held, can be opened.
    is_probe: bool,
    /// The right to handle an event of a worker that died, which ends when the result is recorded.
    lane: Option<LanePass>,
}

impl Taken {
    fn of(row: Row) -> Self {
        let Row { claim, created_at, has_type, event } = row;
        Self { claim, created_at, event, has_type, is_probe: false, lane: None }
    }

    fn bytes(&self) -> usize {
        self.event.as_ref().map_or(0, |event| event.payload_json().len())
    }
}

/// A worker that runs.
pub(super) struct Running {
    taking: Lifecycle,
    taking_over: Lifecycle,
    buffer: Arc<Buffer>,
    in_hand: InHand,
    handlers: tokio::sync::Mutex<Option<Handlers>>,
    renewal: Renewal,
    trouble: Arc<Mutex<Option<Trouble>>>,
    failing: Arc<Mutex<Option<String>>>,
    held: HeldRoutes<i64>,
    drain_timeout: Duration,
}

struct Handlers {
    tasks: JoinSet<()>,
    cancel: Shutdown,
    finalizer: Finalizer,
}

/// How the taker is woken.
#[derive(Debug, Clone, Default)]
pub(super) struct Woken {
    pub(super) by_others: Arc<Notify>,
    /// Whether wake-ups of others are received.
    pub(super) hears: Arc<AtomicBool>,
}

impl Running {
    pub(super) fn start(
        worker: Worker,
        config: &Config,
        tables: &Tables,
        metrics: &Arc<telemetry::Queue>,
        woken: Woken,
    ) -> Self {
        let settings = config.worker.clone();
        let in_hand = InHand::new(tables.clone(), config.abandoned_timeout, metrics.clone());
        let renewal = Renewal::start(Arc::new(in_hand.clone()), in_hand.renew_every());
        let scheduled = Arc::new(Notify::new());
        let finalizer = Finalizer::start(tables.clone(), in_hand.clone(), metrics.clone(), scheduled.clone());
        let (buffer, failing) = (Arc::new(Buffer::new()), Arc::default());
        let mut burials = worker.burials;
        burials.source = config.source();
        burials.patience = settings.dead_letter_timeout;
        let max_attempts = match settings.on_failure {
            OnFailure::Fail => 1,
            OnFailure::Retry => config.limit().unwrap_or(u32::MAX),
        };
        let policy = worker.policy.unwrap_or_else(|| SharedPolicy::new(config.retry));
        let held = HeldRoutes::new(worker.registry, false);
        let handling = Arc::new(Handling {
            component: config.name.as_str().into(),
            held: held.clone(),
            retry: Retry { max_attempts, policy },
            limit: config.limit(),
            interceptors: worker.interceptors,
            burials,
            in_hand: in_hand.clone(),
            metrics: metrics.clone(),
        });
        let cancel = Shutdown::new();
        let mut tasks = JoinSet::new();
        for _ in 0..settings.concurrency {
            let results = finalizer.sender();
            tasks.spawn(handling.clone().run(buffer.clone(), cancel.clone(), results));
        }
        let taker = Taker {
            tables: tables.clone(),
            buffer: buffer.clone(),
            in_hand: in_hand.clone(),
            held: held.clone(),
            metrics: metrics.clone(),
            settings: settings.clone(),
            timeout: config.abandoned_timeout,
            woken,
            scheduled,
            failing: Arc::clone(&failing),
        };
        let take_over = TakeOver {
            tables: tables.clone(),
            buffer: buffer.clone(),
            in_hand: in_hand.clone(),
            metrics: metrics.clone(),
            timeout: config.abandoned_timeout,
            idle_wait: settings.idle_wait,
        };
        let taking = Lifecycle::started(|shutdown| taker.run(shutdown));
        let taking_over = Lifecycle::started(|shutdown| take_over.run(shutdown));
        let trouble = finalizer.trouble();
        let handlers = tokio::sync::Mutex::new(Some(Handlers { tasks, cancel, finalizer }));
        let drain_timeout = settings.drain_timeout;
        Self {
            taking,
            taking_over,
            buffer,
            in_hand,
            handlers,
            renewal,
            trouble,
            failing,
            held,
            drain_timeout,
        }
    }

    /// Handlers by event type, and which of them are not called for now.
    pub(super) fn routes(&self) -> &HeldRoutes<i64> {
        &self.held
    }

    /// How many events are in this process's hands.
    pub(super) fn in_hand(&self) -> usize {
        self.in_hand.len()
    }

    /// Why no events are taken, if they are not.
    pub(super) fn failing(&self) -> Option<String> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many results cannot be written, and why.
    pub(super) fn trouble(&self) -> Option<(usize, String)> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.map(|Trouble { events, error }| (events, error))
    }

    /// Takes no more, lets handlers finish in time, cancels the others, and sets back what was not handled.
    pub(super) async fn close(&self) -> Result<(), Error> {
        // Locked to the end, so that a second call waits for the first.
        let mut handlers = self.handlers.lock().await;
        let Some(Handlers { mut tasks, cancel, finalizer }) = handlers.take() else { return Ok(()) };
        tokio::join!(self.taking.close("taking events"), self.taking_over.close("taking events over"));
        let results = finalizer.sender();
        for taken in self.buffer.close() {
            let _ = results.send(Outgoing::of(handling::untouched(taken.claim), taken.lane)).await;
        }
        drop(results);
        let mut drained = timeout(self.drain_timeout, all_ended(&mut tasks)).await.is_ok();
        if !drained {
            tracing::warn!(
                handlers = tasks.len(),
                "handlers did not finish in time; they are cancelled, and their events go back to PENDING"
            );
            cancel.begin();
            // A handler that blocks its thread cannot be cancelled, and is not waited for: its event is taken over later.
            drained = timeout(LAST_WORDS, all_ended(&mut tasks)).await.is_ok();
            tasks.abort_all();
        }
        let written = finalizer.close(self.drain_timeout.max(LAST_WORDS)).await;
        // Last, so that claims are kept alive while handlers finish.
        self.renewal.close().await;
        if drained && written { Ok(()) } else { Err(Error::Drain(self.drain_timeout)) }
    }
}

async fn all_ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
