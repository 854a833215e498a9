//! Putting a queue together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::setting::Faults;
use backstop_core::{config, telemetry};

use super::config::Config;
use super::report::{Reporter, Sampler};
use super::table::Tables;
use super::worker::{Running, Woken, Worker};
use super::{Inner, Queue};
use crate::database::Database;
use crate::outbox::{Metrics, recorded};
use crate::purge;
use crate::wake_up::{WakeOthers, WakeUpLoops};
use crate::{Error, Supported, TableName};

/// Gathers the settings of a [`Queue`]; [`start`](Builder::start) checks them and starts it.
#[must_use = "a queue does nothing until `start` is called"]
pub struct Builder<DB: Supported> {
    pool: sqlx::Pool<DB>,
    config: Config,
    worker: Option<Worker>,
    recorder: Option<Arc<dyn metrics::Recorder + Send + Sync>>,
}

impl<DB: Supported> Builder<DB> {
    pub(super) fn new(pool: sqlx::Pool<DB>) -> Self {
        Self { pool, config: Config::default(), worker: None, recorder: None }
    }

    /// All settings at once, as a settings file has them, those of the worker included. A worker that is given
    /// [afterwards](Self::worker) brings its own.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The worker that handles events in this process. Without one the queue publishes, and is polled by hand.
    pub fn worker(mut self, worker: Worker) -> Self {
        self.config.worker = worker.config.clone();
        self.worker = Some(worker);
        self
    }

    /// The worker, with the settings that [`config`](Self::config) has.
    pub fn handlers(mut self, worker: Worker) -> Self {
        self.worker = Some(worker);
        self
    }

    /// The name by which operators know it. Defaults to `queue`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// The table of events that wait or are being handled. Defaults to `events`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.config.database.table = table.into();
        self
    }

    /// The table of finished events. Defaults to `event_log`.
    pub fn log_table(mut self, table: impl Into<String>) -> Self {
        self.config.database.log_table = table.into();
        self
    }

    /// Whether [`start`](Self::start) creates the tables or brings them up to date. If not, they are only checked. Defaults
    /// to yes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.config.database.migrate = migrate;
        self
    }

    /// Whether nodes wake each other when one has published, where the database supports it (PostgreSQL). It takes up to two
    /// connections beside the pool. Defaults to yes.
    pub fn wake_ups(mut self, wake_ups: bool) -> Self {
        self.config.database.wake_ups = wake_ups;
        self
    }

    /// The database is reached through a pooler that shares connections between transactions, such as PgBouncer. PostgreSQL
    /// only.
    pub fn behind_pooler(mut self, behind_pooler: bool) -> Self {
        self.config.database.behind_pooler = behind_pooler;
        self
    }

    /// After how long an event that somebody has taken counts as abandoned. Must be the same for everybody who takes from
    /// these tables. Defaults to 5 minutes.
    pub fn abandoned_timeout(mut self, timeout: Duration) -> Self {
        self.config.abandoned_timeout = timeout;
        self
    }

    /// How often an event is taken at most; then it has FAILED. Defaults to no limit, and to 10 if the worker retries.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.max_attempts = Some(attempts);
        self
    }

    /// Deletes events from the log that ended longer ago than the retention. Defaults to keeping everything.
    pub fn purge(mut self, settings: purge::Settings) -> Self {
        self.config.purge = settings.config;
        self.config.purge.enabled = true;
        self
    }

    /// The `source` of the CloudEvents that are published. Defaults to `/queue/` and the name.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.config.source = Some(source.into());
        self
    }

    /// Where metrics are recorded. Defaults to the process's recorder.
    pub fn metrics_recorder(mut self, recorder: Arc<dyn metrics::Recorder + Send + Sync>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// What metric names begin with. Several queues in a process may share it: each metric has the label `queue` with the
    /// queue's name. Defaults to `queue`.
    pub fn metrics_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.metrics.name_prefix = Some(prefix.into());
        self
    }

    /// Checks the settings, creates or checks the tables, and starts the worker, if there is one.
    pub async fn start(mut self) -> Result<Queue<DB>, Error> {
        self.check()?;
        let config = self.config;
        let (events, log) =
            (TableName::new(&config.database.table)?, TableName::new(&config.database.log_table)?);
        let is_direct = !config.database.behind_pooler;
        let database = Database::new(DB::dialect(), DB::connections(self.pool.clone()));
        let database = if is_direct { database } else { database.behind_pooler() };
        let database = database.reserve(DB::reserve(&self.pool));
        let tables = Tables::new(database, DB::queue(), events.clone(), log);
        if config.database.migrate {
            tables.migrate().await?;
        } else {
            tables.check().await?;
        }
        let Metrics { enabled, name_prefix } = &config.metrics;
        let prefix = name_prefix.as_deref().unwrap_or(telemetry::Queue::DEFAULT_PREFIX);
        let metrics = recorded(*enabled, self.recorder.as_ref(), |recorder| {
            telemetry::Queue::named(prefix, &config.name, recorder)
        });
        let metrics = Arc::new(metrics);
        let (woken, wake_others, loops) = (Woken::default(), WakeOthers::default(), WakeUpLoops::default());
        let purge = super::purge::build(&config, &tables, &metrics)?;
        if let Some(purge) = &purge {
            purge.start()?;
        }
        let has_worker = self.worker.is_some();
        let worker =
            self.worker.map(|worker| Running::start(worker, &config, &tables, &metrics, woken.clone()));
        let wake_ups = if config.database.wake_ups { DB::wake_ups(&self.pool, &events) } else { None };
        if let Some(wake_ups) = wake_ups {
            if has_worker && is_direct {
                loops.start_listening(wake_ups.clone(), woken.by_others.clone(), woken.hears.clone());
            }
            loops.start_waking(wake_others.clone(), wake_ups);
        }
        let reporter = Arc::new(Reporter::new(&config, tables.clone(), metrics.clone()));
        let inner = Arc::new(Inner {
            config,
            tables,
            metrics,
            worker,
            woken,
            wake_others,
            loops,
            purge,
            reporter,
            sampler: Sampler::default(),
            closing: tokio::sync::Mutex::default(),
        });
        inner.sampler.start(&inner);
        Ok(Queue { pool: self.pool, inner })
    }

    fn check(&mut self) -> Result<(), Error> {
        if let Some(worker) = &mut self.worker {
            worker.check()?;
        }
        let mut faults = Faults::default();
        config::Config::check(&self.config, &mut faults);
        if self.config.database.behind_pooler && !DB::dialect().has_poolers() {
            faults.under("database", |faults| faults.add("behind-pooler", "is for PostgreSQL only"));
        }
        faults.into_result().map_err(|faults| Error::Settings { faults })
    }
}

impl<DB: Supported> fmt::Debug for Builder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}
