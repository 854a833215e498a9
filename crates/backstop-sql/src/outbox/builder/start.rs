//! Starting an outbox: its settings are checked together, and its parts are made and started.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use backstop_core::retry::SharedPolicy;
use backstop_core::setting::Faults;
use backstop_core::{config, telemetry};

use super::{Builder, SharedRecorder};
use crate::connection::Connections;
use crate::database::Database;
use crate::database::lock::Share;
use crate::outbox::HeldRoutes;
use crate::outbox::claims::{Locking, Terms};
use crate::outbox::config::{Config, Metrics, Table};
use crate::outbox::dispatcher;
use crate::outbox::guard::Guard;
use crate::outbox::hook::WakeAfterCommit;
use crate::outbox::hot_path::HotPath;
use crate::outbox::mode::{Mode, ModeKind};
use crate::outbox::purge::{self, Purger, StorePurger};
use crate::outbox::report::Reporter;
use crate::outbox::sampling::{Sampler, Sampling};
use crate::outbox::writer::Writer;
use crate::outbox::{Inner, Outbox, poller};
use crate::renewal::Renewal;
use crate::store::{Born, Order, Rights, SqlStore, Store};
use crate::wake_up::{WakeOthers, WakeUpLoops};
use crate::{Error, Supported, TableName, TimeZone};

impl<DB: Supported, M: Mode> Builder<DB, M> {
    /// Checks the settings, creates or checks the table, and starts what the mode has.
    pub async fn start(mut self) -> Result<Outbox<DB>, Error> {
        self.fit_mode();
        self.check()?;
        let config = self.config.clone();
        let table = TableName::new(&config.database.table)?;
        let zone = TimeZone::new(&config.database.time_zone)?;
        let is_direct = !config.database.behind_pooler;
        let connections = self.connections.clone().unwrap_or_else(|| DB::connections(self.pool.clone()));
        let database = Database::new(DB::dialect(), connections);
        let database = if is_direct { database } else { database.behind_pooler() };
        let store: Arc<dyn Store> = self.store.clone().unwrap_or_else(|| {
            // Whoever gives connections has decided where they come from: there are none beside them.
            let reserve = if self.connections.is_none() { DB::reserve(&self.pool) } else { None };
            let database = database.clone().zone(zone).reserve(reserve);
            Arc::new(SqlStore::new(database, DB::outbox(), table.clone()).done(config.dispatcher.done))
        });
        let ready = if config.database.migrate { store.migrate() } else { store.check() };
        ready.await?;
        let rights = Rights { update: M::MODE != ModeKind::WriterOnly, delete: config.purge.enabled };
        store.check_rights(rights).await?;
        let share = match M::MODE {
            ModeKind::SingleNode | ModeKind::Ordered => Some(Share::Alone),
            ModeKind::MultiNode => Some(Share::Claiming),
            ModeKind::WriterOnly => None,
        };
        // Behind a pooler no session is a node's own, so none can hold a lock; nodes that claim can do without.
        let right = match share.filter(|_| config.database.guard && is_direct) {
            Some(share) => Some(DB::right(&self.pool, &table, share).await?),
            None => None,
        };

        let metrics = Arc::new(self.metrics());
        let wake_others = WakeOthers::default();
        // Your own store may be on another database than the pool.
        let may_wake = config.database.wake_ups && self.store.is_none();
        let wake_ups = if may_wake { DB::wake_ups(&self.pool, &table) } else { None };
        let purge = self.build_purge(&store, Arc::new(database), &metrics)?;
        let claims = config.claim_locking.locking().map(|locking| Claims::new(locking, &config));
        let lag_is_told = Arc::new(AtomicBool::new(false));
        let (dispatcher, poller) = if M::MODE == ModeKind::WriterOnly {
            (None, None)
        } else {
            let settings = self.dispatcher(claims.as_ref().map(|claims| claims.terms));
            let dispatcher = settings.start(store.clone(), self.registry.clone(), metrics.clone())?;
            let locking = claims.as_ref().map(|claims| claims.locking.clone());
            let order = if M::MODE == ModeKind::Ordered { Order::Created } else { Order::Due };
            let look = poller::Looking { config: config.poller.clone(), locking, order };
            let (feed, metrics) = (dispatcher.feed(), metrics.clone());
            let poller =
                look.feeding(store.clone(), &feed, wake_others.clone(), metrics, lag_is_told.clone());
            (Some(dispatcher), Some(poller))
        };
        let born = claims.as_ref().map(|claims| claims.born.clone());
        let hot_path = dispatcher.as_ref().filter(|_| M::MODE != ModeKind::Ordered).map(|dispatcher| {
            let (claim, capacity) = (born.as_ref().map(Born::claim), config.dispatcher.hot_queue_capacity);
            HotPath::start(dispatcher.feed(), claim, store.clone(), capacity)
        });
        let writer = self.writer(&store, born, hot_path.clone(), &wake_others, &metrics);
        let renewer = dispatcher.as_ref().and_then(dispatcher::Dispatcher::renewer);
        let renewal = claims.zip(renewer).map(|(claims, it)| Renewal::start(it, claims.terms.renew_every()));
        let guard = match (right, &dispatcher, &poller) {
            (Some(right), Some(dispatcher), Some(poller)) => {
                Some(Guard::start(right, dispatcher.feed().leases().clone(), poller.nudged()))
            }
            _ => None,
        };
        let feed = dispatcher.as_ref().map(dispatcher::Dispatcher::feed);
        let sampling = feed
            .as_ref()
            .map(|feed| Arc::new(self.sampling(&store, feed.held().clone(), &metrics, lag_is_told)));
        let reporter = Reporter::new(config.name, store.clone(), feed, metrics.clone(), sampling.clone());
        let inner = Inner {
            store,
            writer,
            hot_path,
            dispatcher,
            renewal,
            poller,
            purge,
            reporter,
            sampling,
            sampler: Sampler::default(),
            metrics,
            guard,
            wake_others,
            wake_up_loops: WakeUpLoops::default(),
            closing: tokio::sync::Mutex::default(),
        };
        inner.start_loops(M::MODE, wake_ups.map(|wake_ups| (wake_ups, is_direct))).await?;
        Ok(Outbox { pool: self.pool, inner: Arc::new(inner) })
    }

    /// What a mode decides itself: strict order has one worker and one attempt and queues of the usual size, and only nodes that
    /// share a table claim.
    fn fit_mode(&mut self) {
        let Config { dispatcher, claim_locking, purge, .. } = &mut self.config;
        if M::MODE == ModeKind::Ordered {
            let usual = dispatcher::Config::default();
            (dispatcher.worker_count, dispatcher.max_attempts) = (1, 1);
            (dispatcher.hot_queue_capacity, dispatcher.cold_queue_capacity) =
                (usual.hot_queue_capacity, usual.cold_queue_capacity);
        }
        claim_locking.enabled &= M::MODE == ModeKind::MultiNode;
        purge.enabled |= self.purger.is_some();
    }

    fn metrics(&self) -> telemetry::Outbox {
        let Config { name, metrics: Metrics { enabled, name_prefix }, .. } = &self.config;
        let prefix = name_prefix.as_deref().unwrap_or(telemetry::Outbox::DEFAULT_PREFIX);
        recorded(*enabled, self.recorder.as_ref(), |recorder| {
            telemetry::Outbox::named(prefix, name, recorder)
        })
    }

    fn sampling(
        &self,
        store: &Arc<dyn Store>,
        held: HeldRoutes,
        metrics: &Arc<telemetry::Outbox>,
        tells_lag: Arc<AtomicBool>,
    ) -> Sampling {
        let (prefix, name) = (metrics.prefix().to_owned(), self.config.name.clone());
        let (enabled, recorder) = (self.config.metrics.enabled, self.recorder.clone());
        let register = move |route: &str| {
            recorded(enabled, recorder.as_ref(), |recorder| {
                telemetry::Route::named(&prefix, &name, route, recorder)
            })
        };
        Sampling::new(store.clone(), held, metrics.clone(), Box::new(register), tells_lag)
    }

    fn build_purge(
        &mut self,
        store: &Arc<dyn Store>,
        connections: Arc<dyn Connections>,
        metrics: &Arc<telemetry::Outbox>,
    ) -> Result<Option<purge::Purge>, Error> {
        if !self.config.purge.enabled {
            return Ok(None);
        }
        let purger: Box<dyn Purger> = match self.purger.take() {
            Some(purger) => purger,
            None if M::MODE == ModeKind::WriterOnly => Box::new(StorePurger::by_age(store.clone())),
            None => Box::new(StorePurger::of_ended(store.clone())),
        };
        let settings = purge::Settings { config: self.config.purge.clone() };
        settings.build(connections, purger, metrics.clone()).map(Some)
    }

    fn dispatcher(&self, terms: Option<Terms>) -> dispatcher::Settings {
        let Config { name, dispatcher, retry, source, dead_letter_timeout, .. } = &self.config;
        let mut burials = self.burials.clone();
        burials.source = source.clone().unwrap_or_else(|| format!("/outbox/{name}"));
        burials.patience = *dead_letter_timeout;
        dispatcher::Settings {
            config: dispatcher.clone(),
            policy: self.policy.clone().unwrap_or_else(|| SharedPolicy::new(*retry)),
            tracker: self.tracker.clone(),
            interceptors: self.interceptors.clone(),
            strict_order: M::MODE == ModeKind::Ordered,
            terms,
            burials: Arc::new(burials),
            component: name.as_str().into(),
        }
    }

    fn writer(
        &mut self,
        store: &Arc<dyn Store>,
        born: Option<Born>,
        hot_path: Option<Arc<HotPath>>,
        wake_others: &WakeOthers,
        metrics: &Arc<telemetry::Outbox>,
    ) -> Writer {
        let mut hooks = std::mem::take(&mut self.hooks);
        if M::MODE == ModeKind::WriterOnly {
            hooks.add(Arc::new(WakeAfterCommit(wake_others.clone())));
        }
        Writer::assembled(store.clone(), hooks, born, hot_path, metrics.clone())
    }

    fn check(&mut self) -> Result<(), Error> {
        if let Some(duplicate) = self.duplicate.take() {
            return Err(duplicate);
        }
        let (mut faults, config) = (Faults::default(), &self.config);
        config::Config::check(config, &mut faults);
        if M::MODE == ModeKind::MultiNode && !config.claim_locking.enabled {
            faults.under("claim-locking", |faults| {
                faults.add(
                    "lock-timeout",
                    "is required by multi_node: say with `claim_locking` how old a claim must be before another node may \
                     take the row",
                );
            });
        }
        let Table { guard, behind_pooler, beside_java, time_zone, .. } = &config.database;
        let mut fault = |setting, rule| faults.under("database", |faults| faults.add(setting, rule));
        if matches!(M::MODE, ModeKind::SingleNode | ModeKind::Ordered) && *guard && *behind_pooler {
            fault(
                "guard",
                "does not work behind a pooler, which leaves no session to hold a lock: use multi-node, or make sure \
                 yourself that only one process runs, and switch the guard off",
            );
        }
        if *behind_pooler && !DB::dialect().has_poolers() {
            fault("behind-pooler", "is for PostgreSQL only");
        }
        if *beside_java && M::MODE != ModeKind::MultiNode {
            fault(
                "beside-java",
                "needs mode multi-node: only claims keep two processes from taking the same row",
            );
        }
        // Your own store knows its zone: one that is given beside it would be ignored.
        if self.store.is_some() && TimeZone::new(time_zone).is_ok_and(|zone| !zone.is_utc()) {
            fault("time-zone", "has no effect with a store of your own: give it to that store");
        }
        faults.into_result().map_err(|faults| Error::Settings { faults })
    }
}

/// Registers metrics with the recorder that was given, or with the process's, or with none.
pub(crate) fn recorded<T>(
    enabled: bool,
    recorder: Option<&SharedRecorder>,
    register: impl FnOnce(&dyn metrics::Recorder) -> T,
) -> T {
    match recorder {
        _ if !enabled => register(&metrics::NoopRecorder),
        Some(recorder) => register(recorder),
        None => metrics::with_recorder(register),
    }
}

/// The claims of a node that shares its table.
struct Claims {
    locking: Locking,
    terms: Terms,
    /// What rows are inserted with.
    born: Born,
}

impl Claims {
    fn new(locking: Locking, config: &Config) -> Self {
        let timeout = locking.timeout;
        // The neighbour compares by a clock and a time-out of its own, so beside it no claim is made to look older than it is.
        let beside_java = config.database.beside_java;
        let hot_grace = if beside_java { timeout } else { config.claim_locking.hot_grace.min(timeout) };
        let born = Born::by(locking.owner.clone(), timeout.saturating_sub(hot_grace));
        Self { terms: Terms { hot_grace, timeout }, born, locking }
    }
}
