//! The settings of a dispatcher.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::calling::panicked;
use backstop_core::config::ValueKind;
use backstop_core::interceptor::{Interceptor, Interceptors};
use backstop_core::retry::{Exponential, Jitter, Policy, SharedPolicy};
use backstop_core::telemetry;

use super::Dispatcher;
use crate::Error;
use crate::burials::Burials;
use crate::outbox::claims::Terms;
use crate::outbox::in_flight::{InFlight, Tracker};
use crate::routes::registry::Registry;
use crate::store::{Done, Store};

backstop_core::config! {
    /// How events are handed to their handlers.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// How many events are handled at the same time.
        worker_count: usize = 4 => "worker-count": one(ValueKind::AT_LEAST_ONE);
        /// How many events committed by this process may wait in memory.
        hot_queue_capacity: usize = 1_000 => "hot-queue-capacity": one(ValueKind::AT_LEAST_ONE);
        /// How many events found by the poller may wait in memory.
        cold_queue_capacity: usize = 1_000 => "cold-queue-capacity": one(ValueKind::AT_LEAST_ONE);
        /// How many bytes of events may wait in memory, in each of the two queues. An empty queue takes an event of any size.
        queue_bytes: usize = 64 << 20 => "queue-bytes": one(ValueKind::Number { min: 1, max: u64::MAX });
        /// How often a handler is called for an event at most; then the event is dead.
        max_attempts: u32 = 10 => "max-attempts": one(ValueKind::Number { min: 1, max: u64::MAX });
        /// How long closing waits for handlers. Events that are not finished by then stay in the table.
        drain_timeout: Duration = Duration::from_secs(5) => "drain-timeout-ms": one(ValueKind::MILLIS_OR_ZERO);
        /// What happens to the row of an event that was handled: it stays as DONE, or it is deleted at once.
        done: Done = Done::Keep => "done": one(Done::KIND);
    }
    setters: Settings.config;
}

/// The settings of a [`Dispatcher`]; [`start`](Settings::start) checks them and starts its workers.
#[derive(Clone)]
#[must_use = "settings dispatch nothing"]
pub struct Settings {
    pub(in crate::outbox) config: Config,
    pub(in crate::outbox) policy: SharedPolicy,
    pub(in crate::outbox) tracker: Arc<dyn Tracker>,
    pub(in crate::outbox) interceptors: Interceptors,
    /// Whether a deferral breaks a promise of order, and is worth a warning.
    pub(in crate::outbox) strict_order: bool,
    /// How long claims are good for, where rows are claimed.
    pub(in crate::outbox) terms: Option<Terms>,
    /// Where copies of dead events are kept beside the table.
    pub(in crate::outbox) burials: Arc<Burials>,
    /// The name of the component that handlers get.
    pub(in crate::outbox) component: Arc<str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Config::default(),
            policy: SharedPolicy::new(Exponential::default()),
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
    /// How long to wait before a retry. Defaults to 200 ms, doubling up to 60 s, spread by half.
    pub fn retry_policy(mut self, policy: impl Policy) -> Self {
        self.policy = unfailing(policy);
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

    /// Checks the settings and starts the workers. Store, registry and metrics are required; the store brings
    /// the pool with it.
    pub fn start(
        self,
        store: Arc<dyn Store>,
        registry: Registry,
        metrics: Arc<telemetry::Outbox>,
    ) -> Result<Dispatcher, Error> {
        Error::unless_fit(&self.config)?;
        Ok(Dispatcher::new(self, store, registry, metrics))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The user's own policy, which may panic.
pub(crate) fn unfailing(policy: impl Policy) -> SharedPolicy {
    SharedPolicy::new(Unfailing(policy))
}

/// A user's policy: when it panics, the standard one answers, because its worker must go on.
struct Unfailing<P>(P);

impl<P: Policy> Policy for Unfailing<P> {
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.0.delay(attempt, jitter))).unwrap_or_else(|panic| {
            let failure = panicked("the retry policy", &*panic);
            tracing::error!(%failure, attempt, "the retry policy failed; the standard delay is used");
            Exponential::default().delay(attempt, jitter)
        })
    }
}
