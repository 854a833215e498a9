//! Putting an outbox together: settings with their defaults, checked all at once before anything starts.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::event::{AggregateType, EventType};
use backstop_core::handler::SharedHandler;
use backstop_core::retry::{Policy, Retry, SharedPolicy};
use backstop_core::{Handler, telemetry};

use super::dispatcher::Dispatcher;
use super::poller::{self, Poller};
use super::registry::Registry;
use super::report::Reporter;
use super::{Inner, Outbox, dispatcher};
use crate::store::Store;
use crate::stores::SqlStore;
use crate::{Error, Supported, TableName};

/// Gathers the settings of an [`Outbox`]; [`start`](Builder::start) checks them and starts it.
#[must_use = "an outbox does nothing until `start` is called"]
pub struct Builder<DB: Supported> {
    pool: sqlx::Pool<DB>,
    name: String,
    table: String,
    locking: Option<Locking>,
    handlers: Vec<(String, String, SharedHandler)>,
    retry: Retry,
    dispatcher: dispatcher::Config,
    poller: poller::Config,
    drain_timeout: Duration,
    metrics_prefix: String,
}

/// How rows are claimed, where several nodes share the table.
#[derive(Debug, Clone)]
pub(super) enum Locking {
    Missing,
    Claims { owner: Arc<str>, timeout: Duration },
}

impl<DB: Supported> Builder<DB> {
    pub(super) fn new(pool: sqlx::Pool<DB>, locking: Option<Locking>) -> Self {
        Self {
            pool,
            name: "outbox".to_owned(),
            table: TableName::default().to_string(),
            locking,
            handlers: Vec::new(),
            retry: Retry::default(),
            dispatcher: dispatcher::Config::default(),
            poller: poller::Config::default(),
            drain_timeout: Duration::from_millis(5_000),
            metrics_prefix: telemetry::Outbox::DEFAULT_PREFIX.to_owned(),
        }
    }

    /// Registers the handler for the events of one type about one kind of aggregate. Each such pair has
    /// exactly one handler; an event that finds none is buried at once.
    pub fn on(
        mut self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        handler: impl Handler,
    ) -> Self {
        let handler = SharedHandler::new(handler);
        self.handlers.push((aggregate_type.name().to_owned(), event_type.name().to_owned(), handler));
        self
    }

    /// The name by which operators know it. Defaults to `outbox`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The table. Defaults to `outbox_event`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How old a claim must be before another node may take the row; required by
    /// [`multi_node`](Outbox::multi_node). It must be longer than the slowest handler takes.
    pub fn claim_locking(self, timeout: Duration) -> Self {
        let owner = format!("node-{}", backstop_core::event::next_id());
        self.claim_locking_as(owner, timeout)
    }

    /// [`claim_locking`](Self::claim_locking) under an owner's name of one's own, at most 128 characters.
    /// It must be new at each start, or a restarted node takes its old claims for its own.
    pub fn claim_locking_as(mut self, owner: impl Into<String>, timeout: Duration) -> Self {
        self.locking = Some(Locking::Claims { owner: owner.into().into(), timeout });
        self
    }

    /// How many events are handled at the same time. Defaults to 4.
    pub fn worker_count(mut self, workers: usize) -> Self {
        self.dispatcher.workers = workers;
        self
    }

    /// How many committed events may wait in memory. Defaults to 1000.
    pub fn hot_queue_capacity(mut self, events: usize) -> Self {
        self.dispatcher.hot_capacity = events;
        self
    }

    /// How many polled events may wait in memory. Defaults to 1000.
    pub fn cold_queue_capacity(mut self, events: usize) -> Self {
        self.dispatcher.cold_capacity = events;
        self
    }

    /// How often a handler is called for an event at most. Defaults to 10.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.retry.max_attempts = attempts;
        self
    }

    /// How long to wait before a retry. Defaults to 200 ms, doubling up to 60 s, spread by half.
    pub fn retry_policy(mut self, policy: impl Policy) -> Self {
        self.retry.policy = SharedPolicy::new(policy);
        self
    }

    /// How often the table is looked at. Defaults to 5 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.poller.interval = interval;
        self
    }

    /// How many rows are read at once. Defaults to 50.
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.poller.batch_size = rows;
        self
    }

    /// Rows younger than this are left to the hot path. Defaults to zero.
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.poller.skip_recent = age;
        self
    }

    /// How long [`close`](Outbox::close) waits for handlers. Defaults to 5 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// What metric names begin with. Defaults to `outbox`.
    pub fn metrics_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.metrics_prefix = prefix.into();
        self
    }

    /// Checks the settings, creates or updates the table, and starts delivering.
    pub async fn start(self) -> Result<Outbox<DB>, Error> {
        self.check()?;
        let mut registry = Registry::default();
        for (aggregate_type, event_type, handler) in self.handlers {
            registry.register(aggregate_type, event_type, handler)?;
        }
        let table = TableName::new(self.table)?;
        let store: Arc<dyn Store> =
            Arc::new(SqlStore::new(DB::dialect(), DB::connections(self.pool.clone()), table));
        store.migrate().await?;

        let metrics = Arc::new(telemetry::Outbox::new(self.metrics_prefix));
        let dispatcher =
            Dispatcher::start(store.clone(), registry, self.retry, self.dispatcher, metrics.clone());
        let locking = match self.locking {
            Some(Locking::Claims { owner, timeout }) => Some((owner, timeout)),
            None | Some(Locking::Missing) => None,
        };
        let poller = Poller::start(store.clone(), dispatcher.feed(), self.poller, locking, metrics.clone());
        let reporter = Reporter::new(self.name, store.clone(), metrics.clone());
        let inner = Inner { store, dispatcher, poller, reporter, metrics, drain_timeout: self.drain_timeout };
        Ok(Outbox { pool: self.pool, inner: Arc::new(inner) })
    }

    fn check(&self) -> Result<(), Error> {
        let positive = "must be at least 1";
        let lasting = "must be longer than zero";
        let faults = [
            (self.dispatcher.workers == 0, "worker_count", positive),
            (self.dispatcher.hot_capacity == 0, "hot_queue_capacity", positive),
            (self.dispatcher.cold_capacity == 0, "cold_queue_capacity", positive),
            (self.retry.max_attempts == 0, "max_attempts", positive),
            (self.poller.batch_size == 0, "batch_size", positive),
            (self.poller.interval.is_zero(), "interval", lasting),
            (
                matches!(self.locking, Some(Locking::Missing)),
                "claim_locking",
                "is required by multi_node: say how old a claim must be before another node may take the row",
            ),
            (
                matches!(&self.locking, Some(Locking::Claims { timeout, .. }) if timeout.is_zero()),
                "claim_locking",
                lasting,
            ),
            (
                matches!(&self.locking, Some(Locking::Claims { owner, .. }) if !(1..=128).contains(&owner.chars().count())),
                "claim_locking_as",
                "needs an owner's name of 1 to 128 characters",
            ),
        ];
        match faults.into_iter().find(|(broken, ..)| *broken) {
            Some((_, setting, rule)) => Err(Error::Setting { setting, rule }),
            None => Ok(()),
        }
    }
}
