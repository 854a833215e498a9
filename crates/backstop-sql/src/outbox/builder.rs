//! Putting an outbox together: one builder, four modes, each offering the settings that mean something in it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::event::{AggregateType, EventType, GLOBAL};
use backstop_core::interceptor::Interceptor;
use backstop_core::retry::Policy;
use backstop_core::setting::Faults;
use backstop_core::{IntoHandler, telemetry};

use super::burials::Burials;
use super::claims::Terms;
use super::guard::Guard;
use super::hook::{Hook, Hooks, WakeAfterCommit};
use super::hot_path::HotPath;
use super::in_flight::Tracker;
use super::mode::{Delivering, Kind, Mode, MultiNode, Ordered, Tunable};
use super::poller::{Locking, new_owner};
use super::purge::{self, Purger, StorePurger};
use super::registry::{BoundHandler, Registry};
use super::report::Reporter;
use super::writer::Writer;
use super::{Inner, Outbox, dispatcher, poller};
use crate::connection::Connections;
use crate::database::Database;
use crate::database::lock::Share;
use crate::renewal::Renewal;
use crate::store::{Born, Done, Order, Rights, SqlStore, Store};
use crate::wake_up::{WakeOthers, WakeUpLoops};
use crate::{Error, Supported, TableName, TimeZone};

/// Gathers the settings of an [`Outbox`]; [`start`](Builder::start) checks them and starts it.
#[must_use = "an outbox does nothing until `start` is called"]
pub struct Builder<DB: Supported, M> {
    pool: sqlx::Pool<DB>,
    pub(super) name: String,
    table: String,
    time_zone: String,
    migrate: bool,
    guard: bool,
    wake_ups: bool,
    reach: Reach,
    registry: Registry,
    duplicate: Option<Error>,
    hooks: Hooks,
    store: Option<Arc<dyn Store>>,
    connections: Option<Arc<dyn Connections>>,
    dispatcher: dispatcher::Settings,
    poller: poller::Settings,
    pub(super) burials: Burials,
    hot_grace: Duration,
    company: Company,
    done: Done,
    purge: Option<purge::Settings>,
    purger: Option<Box<dyn Purger>>,
    metrics_prefix: String,
    recorder: Option<Arc<dyn metrics::Recorder + Send + Sync>>,
    mode: PhantomData<fn() -> M>,
}

/// How the database is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// On connections that are ours for as long as we hold them.
    Direct,
    /// Through a pooler that shares connections between transactions.
    Pooled,
}

/// Who else delivers from the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// Nobody, or nodes of Backstop.
    Ours,
    /// The Java framework too.
    Java,
}

impl<DB: Supported, M: Mode> Builder<DB, M> {
    pub(super) fn new(pool: sqlx::Pool<DB>) -> Self {
        Self {
            pool,
            name: "outbox".to_owned(),
            table: TableName::default().to_string(),
            time_zone: TimeZone::default().to_string(),
            migrate: true,
            guard: true,
            wake_ups: true,
            reach: Reach::Direct,
            registry: Registry::new(),
            duplicate: None,
            hooks: Hooks::default(),
            store: None,
            connections: None,
            dispatcher: dispatcher::Settings::default(),
            poller: poller::Settings::default(),
            burials: Burials::default(),
            hot_grace: Duration::from_secs(30),
            company: Company::Ours,
            done: Done::Keep,
            purge: None,
            purger: None,
            metrics_prefix: telemetry::Outbox::DEFAULT_PREFIX.to_owned(),
            recorder: None,
            mode: PhantomData,
        }
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

    /// The zone that the table's moments are in, where its columns carry none (`DATETIME` on MySQL, `TIMESTAMP` on
    /// PostgreSQL): `UTC` or a fixed distance from it such as `+02:00`. Others that write into the table must mean
    /// the same. Where the columns leave no doubt, anything but UTC is refused. Defaults to `UTC`.
    pub fn time_zone(mut self, zone: impl Into<String>) -> Self {
        self.time_zone = zone.into();
        self
    }

    /// Whether [`start`](Self::start) creates the table or brings it up to date. Without it the table is only
    /// checked. Defaults to yes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether nodes wake each other when one has written rows for another, where the database can do that
    /// (PostgreSQL). It takes up to two connections beside the pool. Defaults to yes.
    pub fn wake_ups(mut self, wake_ups: bool) -> Self {
        self.wake_ups = wake_ups;
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
        self.purge = Some(settings);
        self
    }

    /// Deletes with a purger of one's own.
    pub fn purger(mut self, purger: impl Purger) -> Self {
        self.purger = Some(Box::new(purger));
        self.purge.get_or_insert_default();
        self
    }

    /// What metric names begin with. Defaults to `outbox`.
    pub fn metrics_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.metrics_prefix = prefix.into();
        self
    }

    /// Where metrics are recorded. Defaults to the process's recorder.
    pub fn metrics_recorder(mut self, recorder: Arc<dyn metrics::Recorder + Send + Sync>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Keeps events in a store of one's own. Defaults to the table on the pool.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Takes the outbox's own connections from somewhere else than the pool.
    pub fn connections(mut self, connections: Arc<dyn Connections>) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Checks the settings, creates or checks the table, and starts what the mode has.
    pub async fn start(mut self) -> Result<Outbox<DB>, Error> {
        self.check()?;
        let table = TableName::new(std::mem::take(&mut self.table))?;
        let zone = TimeZone::new(&self.time_zone)?;
        let connections = self.connections.clone().unwrap_or_else(|| DB::connections(self.pool.clone()));
        let database = Database::new(DB::dialect(), connections);
        let database = if self.reach == Reach::Pooled { database.behind_pooler() } else { database };
        let store: Arc<dyn Store> = self.store.clone().unwrap_or_else(|| {
            // Connections of one's own are somebody's decision: there are none beside them.
            let beside = if self.connections.is_none() { DB::beside(&self.pool) } else { None };
            let database = database.clone().zone(zone).beside(beside);
            Arc::new(SqlStore::new(database, DB::outbox(), table.clone()).done(self.done))
        });
        let ready = if self.migrate { store.migrate() } else { store.check() };
        ready.await?;
        let rights = Rights { update: M::MODE != Kind::WriterOnly, delete: self.purge.is_some() };
        store.check_rights(rights).await?;
        let share = match M::MODE {
            Kind::SingleNode | Kind::Ordered => Some(Share::Alone),
            Kind::MultiNode => Some(Share::Claiming),
            Kind::WriterOnly => None,
        };
        // Behind a pooler no session is a node's own, so none can hold a lock; nodes that claim can do without.
        let right = match share.filter(|_| self.guard && self.reach == Reach::Direct) {
            Some(share) => Some(DB::right(&self.pool, &table, share).await?),
            None => None,
        };

        let metrics = Arc::new(match &self.recorder {
            Some(recorder) => telemetry::Outbox::with_recorder(self.metrics_prefix.clone(), recorder),
            None => telemetry::Outbox::new(self.metrics_prefix.clone()),
        });
        let wake_others = WakeOthers::default();
        // A store of one's own may be on another database than the pool.
        let wake_ups =
            if self.wake_ups && self.store.is_none() { DB::wake_ups(&self.pool, &table) } else { None };
        let purge = self.build_purge(&store, Arc::new(database), &metrics)?;
        let (dispatcher, poller) = if M::MODE == Kind::WriterOnly {
            (None, None)
        } else {
            let mut settings = self.dispatcher.clone();
            settings.terms = self.terms();
            settings.burials = self.burials();
            settings.component = self.name.as_str().into();
            let dispatcher = settings.start(store.clone(), self.registry.clone(), metrics.clone())?;
            let poller = self.poller.clone().feeding(
                store.clone(),
                &dispatcher.feed(),
                wake_others.clone(),
                metrics.clone(),
            );
            (Some(dispatcher), Some(poller))
        };
        let hot_path = dispatcher.as_ref().and_then(|it| self.hot_path(&store, it));
        let writer = self.writer(&store, hot_path.clone(), &wake_others, &metrics);
        let renewer = dispatcher.as_ref().and_then(dispatcher::Dispatcher::renewer);
        let renewal = self.terms().zip(renewer).map(|(terms, it)| Renewal::start(it, terms.renew_every()));
        let guard = match (right, &dispatcher, &poller) {
            (Some(right), Some(dispatcher), Some(poller)) => {
                Some(Guard::start(right, dispatcher.feed().leases().clone(), poller.nudged()))
            }
            _ => None,
        };
        let feed = dispatcher.as_ref().map(dispatcher::Dispatcher::feed);
        let reporter = Reporter::new(self.name, store.clone(), feed, metrics.clone());
        let inner = Inner {
            store,
            writer,
            hot_path,
            dispatcher,
            renewal,
            poller,
            purge,
            reporter,
            metrics,
            guard,
            wake_others,
            wake_up_loops: WakeUpLoops::default(),
            closing: tokio::sync::Mutex::default(),
        };
        let heard = self.reach == Reach::Direct;
        inner.start_loops(M::MODE, wake_ups.map(|wake_ups| (wake_ups, heard))).await?;
        Ok(Outbox { pool: self.pool, inner: Arc::new(inner) })
    }

    fn build_purge(
        &mut self,
        store: &Arc<dyn Store>,
        connections: Arc<dyn Connections>,
        metrics: &Arc<telemetry::Outbox>,
    ) -> Result<Option<purge::Purge>, Error> {
        let Some(settings) = self.purge.take() else { return Ok(None) };
        let purger: Box<dyn Purger> = match self.purger.take() {
            Some(purger) => purger,
            None if M::MODE == Kind::WriterOnly => Box::new(StorePurger::by_age(store.clone())),
            None => Box::new(StorePurger::of_ended(store.clone())),
        };
        settings.build(connections, purger, metrics.clone()).map(Some)
    }

    /// How long claims are good for, where the mode has them.
    fn terms(&self) -> Option<Terms> {
        let Locking { timeout, .. } = self.poller.locking.as_ref()?;
        Some(Terms { hot_grace: self.born_for(*timeout), timeout: *timeout })
    }

    /// How long a born claim lasts. The neighbour compares by a clock and a time-out of its own, so beside it no claim
    /// is made to look older than it is.
    fn born_for(&self, timeout: Duration) -> Duration {
        match self.company {
            Company::Ours => self.hot_grace.min(timeout),
            Company::Java => timeout,
        }
    }

    /// The claim that rows are born with, where several nodes share the table.
    fn born(&self) -> Option<Born> {
        self.poller.locking.as_ref().map(|Locking { owner, timeout }| Born {
            owner: owner.clone(),
            age: timeout.saturating_sub(self.born_for(*timeout)),
        })
    }

    /// The way from a commit to the workers, where the mode has one.
    fn hot_path(&self, store: &Arc<dyn Store>, dispatcher: &dispatcher::Dispatcher) -> Option<Arc<HotPath>> {
        if !matches!(M::MODE, Kind::SingleNode | Kind::MultiNode) {
            return None;
        }
        let claim = self.born().as_ref().map(Born::claim);
        Some(HotPath::start(dispatcher.feed(), claim, store.clone(), self.dispatcher.hot_capacity))
    }

    fn writer(
        &mut self,
        store: &Arc<dyn Store>,
        hot_path: Option<Arc<HotPath>>,
        wake_others: &WakeOthers,
        metrics: &Arc<telemetry::Outbox>,
    ) -> Writer {
        let mut hooks = std::mem::take(&mut self.hooks);
        if M::MODE == Kind::WriterOnly {
            hooks.add(Arc::new(WakeAfterCommit(wake_others.clone())));
        }
        Writer::assembled(store.clone(), hooks, self.born(), hot_path, metrics.clone())
    }

    fn check(&mut self) -> Result<(), Error> {
        if let Some(duplicate) = self.duplicate.take() {
            return Err(duplicate);
        }
        let mut faults = Faults::default();
        self.dispatcher.check(&mut faults);
        self.poller.check(&mut faults);
        self.burials.check(&mut faults);
        if M::MODE == Kind::MultiNode && self.poller.locking.is_none() {
            faults.add(
                "claim_locking",
                "is required by multi_node: say how old a claim must be before another node may take the row",
            );
        }
        if matches!(M::MODE, Kind::SingleNode | Kind::Ordered) && self.guard && self.reach == Reach::Pooled {
            faults.add(
                "guard",
                "cannot be kept behind a pooler, which leaves no session to hold a lock: use multi_node, or see to it \
                 yourself that there is one process, and switch it off",
            );
        }
        check_time_zone(&self.time_zone, self.store.is_some(), &mut faults);
        if self.company == Company::Java && self.poller.skip_recent.is_zero() {
            faults.add(
                "skip_recent",
                "must be longer than zero with beside_java: rows that the other side has in memory are unclaimed",
            );
        }
        faults.longer_than_zero("hot_grace", self.hot_grace);
        if let Some(purge) = &self.purge {
            purge.check(&mut faults);
        }
        faults.into_result().map_err(|faults| Error::Settings { faults })
    }
}

/// A store of one's own knows its zone itself: one that is given beside it would be forgotten.
fn check_time_zone(zone: &str, own_store: bool, faults: &mut Faults) {
    match TimeZone::new(zone) {
        Err(_) => {
            faults
                .add("time_zone", "must be UTC or a fixed distance from it such as +02:00, at most 14 hours");
        }
        Ok(zone) if own_store && !zone.is_utc() => {
            faults.add("time_zone", "means nothing with a store of your own: give it to that store");
        }
        Ok(_) => {}
    }
}

impl<DB: Supported, M: Delivering> Builder<DB, M> {
    /// Registers the handler for the events of one type about one kind of aggregate. Each such pair has
    /// exactly one handler; an event that finds none is buried at once.
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
        self.dispatcher = self.dispatcher.interceptor(interceptor);
        self
    }

    /// Adds several interceptors, in their order.
    pub fn interceptors(mut self, interceptors: impl IntoIterator<Item = Arc<dyn Interceptor>>) -> Self {
        self.dispatcher = self.dispatcher.interceptors(interceptors);
        self
    }

    /// What remembers the events in flight. Defaults to [`InFlight::new`](super::InFlight::new).
    pub fn tracker(mut self, tracker: impl Tracker) -> Self {
        self.dispatcher = self.dispatcher.tracker(tracker);
        self
    }

    /// How long to rest between two looks at the table. Defaults to 5 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.poller = self.poller.interval(interval);
        self
    }

    /// How many rows are read at once. Defaults to 50.
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.poller = self.poller.batch_size(rows);
        self
    }

    /// Rows younger than this are left to the hot path. Defaults to zero.
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.poller = self.poller.skip_recent(age);
        self
    }

    /// How many bytes of events may wait in memory, in each of the two queues. An empty queue takes an event of any size.
    /// Defaults to 64 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.dispatcher = self.dispatcher.queue_bytes(bytes);
        self
    }

    /// What becomes of a row whose event was handled. Defaults to [`Done::Keep`].
    pub fn done(mut self, done: Done) -> Self {
        self.done = done;
        self
    }

    /// Whether a second process on the same table is refused at its start if it or the first one runs in a single-node
    /// mode (`single_node`, `ordered`). For this each process holds a lock: on a connection beside the pool, or with
    /// SQLite in a file beside the database. If that connection is lost and another process takes the table meanwhile,
    /// this one delivers nothing until the other stops. Behind a pooler that shares connections no such lock can be
    /// held: `multi_node` does without it, and a single-node mode must switch it off. Defaults to yes.
    pub fn guard(mut self, guard: bool) -> Self {
        self.guard = guard;
        self
    }

    /// How long [`close`](Outbox::close) waits for handlers. Defaults to 5 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.dispatcher = self.dispatcher.drain_timeout(timeout);
        self
    }
}

impl<DB: Supported, M: Tunable> Builder<DB, M> {
    /// How many events are handled at the same time. Defaults to 4.
    pub fn worker_count(mut self, workers: usize) -> Self {
        self.dispatcher = self.dispatcher.worker_count(workers);
        self
    }

    /// How many committed events may wait in memory. Defaults to 1000.
    pub fn hot_queue_capacity(mut self, events: usize) -> Self {
        self.dispatcher = self.dispatcher.hot_queue_capacity(events);
        self
    }

    /// How many polled events may wait in memory. Defaults to 1000.
    pub fn cold_queue_capacity(mut self, events: usize) -> Self {
        self.dispatcher = self.dispatcher.cold_queue_capacity(events);
        self
    }

    /// How often a handler is called for an event at most. Defaults to 10.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.dispatcher = self.dispatcher.max_attempts(attempts);
        self
    }

    /// How long to wait before a retry. Defaults to 200 ms, doubling up to 60 s, spread by half.
    pub fn retry_policy(mut self, policy: impl Policy) -> Self {
        self.dispatcher = self.dispatcher.retry_policy(policy);
        self
    }
}

#[cfg(feature = "postgres")]
impl<M: Mode> Builder<sqlx::Postgres, M> {
    /// Whether the database is reached through a pooler that shares connections between transactions, as
    /// `PgBouncer` does in transaction mode. Then nothing is prepared, each statement is a transaction, and what
    /// needs a session of its own is left out: hearing wake-ups, and the lock that [`guard`](Builder::guard) holds, which
    /// the modes for a single node must then switch off. Defaults to no.
    pub fn behind_pooler(mut self, pooled: bool) -> Self {
        self.reach = if pooled { Reach::Pooled } else { Reach::Direct };
        self
    }
}

impl<DB: Supported> Builder<DB, MultiNode> {
    /// How old a claim must be before another node may take the row. Required; a living node renews its
    /// claims, so this is how long the events of a node that died wait for another.
    pub fn claim_locking(self, timeout: Duration) -> Self {
        self.claim_locking_as(new_owner(), timeout)
    }

    /// [`claim_locking`](Self::claim_locking) under an owner's name of one's own, at most 128 characters.
    /// It must be new at each start, or a restarted node takes its old claims for its own.
    pub fn claim_locking_as(mut self, owner: impl Into<String>, timeout: Duration) -> Self {
        self.poller = self.poller.claim_locking_as(owner, timeout);
        self
    }

    /// How long a node that has just written a row has it to itself. If the node dies, others deliver the row
    /// after this time. Defaults to 30 s, and is never longer than the claim's time-out.
    pub fn hot_grace(mut self, grace: Duration) -> Self {
        self.hot_grace = grace;
        self
    }

    /// Whether the Java framework delivers from the same table, in its mode for several nodes. Then
    /// [`skip_recent`](Self::skip_recent) is required, and born claims last as long as any other, whatever
    /// [`hot_grace`](Self::hot_grace) says. Defaults to no.
    pub fn beside_java(mut self, beside: bool) -> Self {
        self.company = if beside { Company::Java } else { Company::Ours };
        self
    }
}

impl<DB: Supported> Builder<DB, Ordered> {
    /// Strict order: one worker, one try, no hot path, rows in the order of their creation.
    pub(super) fn strict(mut self) -> Self {
        self.dispatcher = self.dispatcher.worker_count(1).max_attempts(1);
        self.dispatcher.strict_order = true;
        self.poller.order = Order::Created;
        self
    }
}

impl<DB: Supported, M> fmt::Debug for Builder<DB, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("table", &self.table)
            .field("dispatcher", &self.dispatcher)
            .field("poller", &self.poller)
            .field("purge", &self.purge)
            .finish_non_exhaustive()
    }
}
