//! The settings of a dispatcher.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::calling::panicked;
use backstop_core::interceptor::{Interceptor, Interceptors};
use backstop_core::retry::{Exponential, Jitter, Policy, Retry, SharedPolicy};
use backstop_core::setting::Faults;
use backstop_core::telemetry;

use super::Dispatcher;
use crate::Error;
use crate::outbox::burials::Burials;
use crate::outbox::claims::Terms;
use crate::outbox::in_flight::{InFlight, Tracker};
use crate::outbox::registry::Registry;
use crate::store::Store;

/// The settings of a [`Dispatcher`]; [`start`](Settings::start) checks them and starts its workers.
#[derive(Clone)]
pub struct Settings {
    pub(in crate::outbox) workers: usize,
    pub(in crate::outbox) hot_capacity: usize,
    pub(in crate::outbox) cold_capacity: usize,
    pub(in crate::outbox) queue_bytes: usize,
    pub(in crate::outbox) retry: Retry,
    pub(in crate::outbox) drain_timeout: Duration,
    pub(in crate::outbox) tracker: Arc<dyn Tracker>,
    pub(in crate::outbox) interceptors: Interceptors,
    /// Whether a deferral breaks a promise of order, and is worth a warning.
    pub(in crate::outbox) strict_order: bool,
    /// How long claims are good for, where rows are claimed.
    pub(in crate::outbox) terms: Option<Terms>,
    /// Where dead events are laid down beside the table.
    pub(in crate::outbox) burials: Arc<Burials>,
    /// The name that handlers are told.
    pub(in crate::outbox) component: Arc<str>,
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

    pub(in crate::outbox) fn check(&self, faults: &mut Faults) {
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

/// A user's policy: when it panics, the standard one answers, because its worker must go on.
struct Unfailing<P>(P);

impl<P: Policy> Policy for Unfailing<P> {
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.0.delay(attempt, jitter))).unwrap_or_else(|panic| {
            let failure = panicked("the retry policy", &*panic);
            tracing::error!(%failure, attempt, "a delay cannot be computed; the standard one is used");
            Exponential::default().delay(attempt, jitter)
        })
    }
}
