//! Putting an outbox together: one builder, four modes, each offering only the settings that have a meaning in it.

mod start;

pub(crate) use start::recorded;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::IntoHandler;
use backstop_core::burial::Bury;
use backstop_core::event::{AggregateType, EventType, GLOBAL};
use backstop_core::interceptor::{Interceptor, Interceptors};
use backstop_core::retry::{Policy, SharedPolicy};

#[cfg(doc)]
use super::Outbox;
use super::config::Config;
use super::dispatcher::unfailing;
use super::hook::{Hook, Hooks};
use super::in_flight::{InFlight, Tracker};
use super::mode::{Delivering, Mode, MultiNode, Tunable};
use super::purge::{self, Purger};
use crate::burials::Burials;
use crate::connection::Connections;
use crate::routes::registry::{BoundHandler, Registry};
use crate::store::{Done, Store};
use crate::{Error, Supported};

/// Gathers the settings of an [`Outbox`]; [`start`](Builder::start) checks them and starts it.
#[must_use = "an outbox does nothing until `start` is called"]
pub struct Builder<DB: Supported, M> {
    pool: sqlx::Pool<DB>,
    config: Config,
    registry: Registry,
    duplicate: Option<Error>,
    hooks: Hooks,
    store: Option<Arc<dyn Store>>,
    connections: Option<Arc<dyn Connections>>,
    tracker: Arc<dyn Tracker>,
    interceptors: Interceptors,
    /// In place of the one that the settings describe.
    policy: Option<SharedPolicy>,
    burials: Burials,
    purger: Option<Box<dyn Purger>>,
    recorder: Option<SharedRecorder>,
    mode: PhantomData<fn() -> M>,
}

impl<DB: Supported, M: Mode> Builder<DB, M> {
    pub(super) fn new(pool: sqlx::Pool<DB>) -> Self {
        Self {
            pool,
            config: Config::default(),
            registry: Registry::new(),
            duplicate: None,
            hooks: Hooks::default(),
            store: None,
            connections: None,
            tracker: Arc::new(InFlight::new()),
            interceptors: Interceptors::default(),
            policy: None,
            burials: Burials::default(),
            purger: None,
            recorder: None,
            mode: PhantomData,
        }
    }

    /// All settings at once, as a settings file has them. Those that have no meaning in this mode are not used.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The name by which operators know it. Defaults to `outbox`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// The table. Defaults to `outbox_event`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.config.database.table = table.into();
        self
    }

    /// The time zone of the table's columns, if they carry none (`DATETIME` on MySQL, `TIMESTAMP` on PostgreSQL):
    /// `UTC` or a fixed distance from it such as `+02:00`. Others that write to the table must use the same zone. If
    /// the columns carry their zone, anything but UTC is refused. Defaults to `UTC`.
    pub fn time_zone(mut self, zone: impl Into<String>) -> Self {
        self.config.database.time_zone = zone.into();
        self
    }

    /// Whether [`start`](Self::start) creates the table or brings it up to date. If not, the table is only checked.
    /// Defaults to yes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.config.database.migrate = migrate;
        self
    }

    /// Whether nodes wake each other when one has written rows for another, where the database supports it
    /// (PostgreSQL). It takes up to two connections beside the pool. Defaults to yes.
    pub fn wake_ups(mut self, wake_ups: bool) -> Self {
        self.config.database.wake_ups = wake_ups;
        self
    }

    /// Adds a hook around the writing of events. Defaults to none.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.add(Arc::new(hook));
        self
    }

    /// Deletes rows that have been DONE or DEAD for longer than the retention; in writer-only mode rows of
    /// any status, by when they were created. Defaults to keeping everything.
    pub fn purge(mut self, settings: purge::Settings) -> Self {
        self.config.purge = settings.config;
        self.config.purge.enabled = true;
        self
    }

    /// Deletes with your own purger.
    pub fn purger(mut self, purger: impl Purger) -> Self {
        self.purger = Some(Box::new(purger));
        self.config.purge.enabled = true;
        self
    }

    /// What metric names begin with. Several outboxes in a process may share it: each metric has the label `outbox`
    /// with the outbox's name. Defaults to `outbox`.
    pub fn metrics_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.metrics.name_prefix = Some(prefix.into());
        self
    }

    /// Where metrics are recorded. Defaults to the process's recorder.
    pub fn metrics_recorder(mut self, recorder: Arc<dyn metrics::Recorder + Send + Sync>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Keeps events in your own store. Defaults to the table on the pool.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Takes the outbox's own connections from here and not from the pool.
    pub fn connections(mut self, connections: Arc<dyn Connections>) -> Self {
        self.connections = Some(connections);
        self
    }
}

type SharedRecorder = Arc<dyn metrics::Recorder + Send + Sync>;

impl<DB: Supported, M: Delivering> Builder<DB, M> {
    /// Registers the handler for the events of one type about one kind of aggregate. Each such pair has
    /// exactly one handler; an event without a handler is buried at once.
    pub fn on<By>(
        mut self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        handler: impl IntoHandler<By>,
    ) -> Self {
        let registered = self.registry.register(aggregate_type, event_type, handler);
        self.duplicate = self.duplicate.or(registered.err());
        self
    }

    /// Registers the handler for the events of one type that name no aggregate type.
    pub fn on_global<By>(self, event_type: impl EventType, handler: impl IntoHandler<By>) -> Self {
        self.on(GLOBAL, event_type, handler)
    }

    /// Registers the handler for all events that have no other handler. Without it they are buried at once.
    pub fn otherwise<By>(mut self, handler: impl IntoHandler<By>) -> Self {
        let registered = self.registry.otherwise(handler);
        self.duplicate = self.duplicate.or(registered.err());
        self
    }

    /// Registers a handler that knows its own pair.
    pub fn on_bound(mut self, handler: BoundHandler) -> Self {
        let registered = self.registry.register_bound(handler);
        self.duplicate = self.duplicate.or(registered.err());
        self
    }

    /// Takes the handlers of a registry, which may grow while the outbox runs. Those registered here before
    /// are not used.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
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

    /// What remembers the events in flight. Defaults to [`InFlight::new`](super::InFlight::new).
    pub fn tracker(mut self, tracker: impl Tracker) -> Self {
        self.tracker = Arc::new(tracker);
        self
    }

    /// How long to rest between two looks at the table. Defaults to 5 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.config.poller.interval = interval;
        self
    }

    /// How many rows are read at once. Defaults to 50.
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.config.poller.batch_size = rows;
        self
    }

    /// Rows younger than this are left to the hot path. Defaults to zero.
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.config.poller.skip_recent = age;
        self
    }

    /// How many bytes of events may wait in memory, in each of the two queues. An empty queue takes an event of any size.
    /// Defaults to 64 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.config.dispatcher.queue_bytes = bytes;
        self
    }

    /// What happens to a row whose event was handled. Defaults to [`Done::Keep`].
    pub fn done(mut self, done: Done) -> Self {
        self.config.dispatcher.done = done;
        self
    }

    /// Whether a second process on the same table is refused at its start if it or the first one runs in a
    /// single-process mode (`single_node`, `ordered`). For this each process holds a lock: on a connection beside the
    /// pool, or with SQLite in a file beside the database. If that connection is lost and another process takes the
    /// table meanwhile, this one delivers nothing until the other stops. Behind a pooler that shares connections no
    /// such lock can be held: `multi_node` does without it, and a single-process mode must switch it off. Defaults to
    /// yes.
    pub fn guard(mut self, guard: bool) -> Self {
        self.config.database.guard = guard;
        self
    }

    /// Writes a copy of every event that dies to a dead-letter directory, or to another [`Bury`], before its row
    /// becomes DEAD.
    ///
    /// The copy is a CloudEvent with the error that buried it. It is written when the attempts are used up, after a
    /// permanent failure and for [`Outcome::Dead`](backstop_core::Outcome::Dead); a retry or a deferral writes
    /// nothing. If it cannot be written, a warning says so, `letter.failed` is counted, and the row still becomes
    /// DEAD. A row that cannot be decoded has no event to copy. Defaults to none.
    pub fn dead_letters(mut self, burial: impl Bury) -> Self {
        self.burials.set_all(burial);
        self
    }

    /// [`dead_letters`](Self::dead_letters) for the events of one handler, in place of the one for all.
    pub fn dead_letters_of(
        mut self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        burial: impl Bury,
    ) -> Self {
        self.burials.set_of(aggregate_type.name(), event_type.name(), burial);
        self
    }

    /// How long writing a dead letter may take. After that the row becomes DEAD without one, and none is tried for as
    /// long again: a disk that hangs must not hold up the workers. Those that were not tried count as
    /// `letter.failed`. Defaults to 30 s.
    pub fn dead_letter_timeout(mut self, timeout: Duration) -> Self {
        self.config.dead_letter_timeout = timeout;
        self
    }

    /// The `source` of dead letters, which are CloudEvents. Defaults to `/outbox/` and the name.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.config.source = Some(source.into());
        self
    }

    /// How long [`close`](Outbox::close) waits for handlers. Defaults to 5 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.config.dispatcher.drain_timeout = timeout;
        self
    }
}

impl<DB: Supported, M: Tunable> Builder<DB, M> {
    /// How many events are handled at the same time. Defaults to 4.
    pub fn worker_count(mut self, workers: usize) -> Self {
        self.config.dispatcher.worker_count = workers;
        self
    }

    /// How many committed events may wait in memory. Defaults to 1000.
    pub fn hot_queue_capacity(mut self, events: usize) -> Self {
        self.config.dispatcher.hot_queue_capacity = events;
        self
    }

    /// How many polled events may wait in memory. Defaults to 1000.
    pub fn cold_queue_capacity(mut self, events: usize) -> Self {
        self.config.dispatcher.cold_queue_capacity = events;
        self
    }

    /// How often a handler is called for an event at most. Defaults to 10.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.dispatcher.max_attempts = attempts;
        self
    }

    /// How long to wait before a retry. Defaults to 200 ms, doubling up to 60 s, spread by half.
    pub fn retry_policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(unfailing(policy));
        self
    }
}

#[cfg(feature = "postgres")]
impl<M: Mode> Builder<sqlx::Postgres, M> {
    /// Whether the database is reached through a pooler that shares connections between transactions, as
    /// `PgBouncer` does in transaction mode. Then no statement is prepared, each statement is a transaction, and two
    /// things that need a session of their own are missing: receiving wake-ups, and the lock that
    /// [`guard`](Builder::guard) holds, which the single-process modes must then switch off. Defaults to no.
    pub fn behind_pooler(mut self, pooled: bool) -> Self {
        self.config.database.behind_pooler = pooled;
        self
    }
}

impl<DB: Supported> Builder<DB, MultiNode> {
    /// How old a claim must be before another node may take the row. Required; a living node renews its
    /// claims, so this is how long the events of a node that died wait for another.
    pub fn claim_locking(mut self, timeout: Duration) -> Self {
        let claims = &mut self.config.claim_locking;
        (claims.enabled, claims.lock_timeout) = (true, timeout);
        self
    }

    /// [`claim_locking`](Self::claim_locking) with your own name for the owner, of at most 128 characters.
    /// It must be new at each start, or a restarted node takes its old claims for its own.
    pub fn claim_locking_as(mut self, owner: impl Into<String>, timeout: Duration) -> Self {
        self.config.claim_locking.owner_id = Some(owner.into());
        self.claim_locking(timeout)
    }

    /// How long a node that has just written a row keeps it to itself. If the node dies, others deliver the row
    /// after this time. Defaults to 30 s, and is never longer than the claim's time-out.
    pub fn hot_grace(mut self, grace: Duration) -> Self {
        self.config.claim_locking.hot_grace = grace;
        self
    }

    /// Whether the Java framework delivers from the same table, in its mode for several nodes. Then
    /// [`skip_recent`](Self::skip_recent) is required, and born claims last as long as any other, whatever
    /// [`hot_grace`](Self::hot_grace) says. Defaults to no.
    pub fn beside_java(mut self, beside: bool) -> Self {
        self.config.database.beside_java = beside;
        self
    }
}

impl<DB: Supported, M> fmt::Debug for Builder<DB, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}
