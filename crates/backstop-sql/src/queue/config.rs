//! The settings of a queue, each declared once: what it means, its default, its key in a settings file, and its rule.

use std::time::Duration;

use backstop_core::config::ValueKind;
use backstop_core::retry::Exponential;
use backstop_core::setting::Faults;

use super::worker::Worker;
use crate::outbox::{Metrics, TABLE};
use crate::purge;

backstop_core::choice! {
    /// What happens to an event whose handler fails.
    #[derive(Default)]
    pub enum OnFailure {
        /// It has FAILED, at the first failure.
        #[default]
        Fail = "fail",
        /// It is tried again later, unless the failure is permanent, until its attempts are used up.
        Retry = "retry",
    }
}

backstop_core::config! {
    /// The settings of a queue. [`Builder::config`](super::Builder::config) takes them all at once, and the builder has a
    /// method for each.
    ///
    /// ```
    /// use backstop_sql::queue::Config;
    ///
    /// let mut config = Config::default();
    /// config.worker.concurrency = 32;
    /// assert_eq!((config.database.table.as_str(), config.database.log_table.as_str()), ("events", "event_log"));
    /// ```
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// The name by which operators know it, and the label `queue` of its metrics.
        name: String = "queue".to_owned() => "name": one(ValueKind::Text);
        /// Where the tables are.
        database: Tables = Tables::default() => "database": group;
        /// After how long an event that a worker has taken counts as abandoned, so that another takes it over. A worker that
        /// runs renews what it has taken. Must be the same for everybody who takes from these tables.
        abandoned_timeout: Duration = Duration::from_secs(300) => "abandoned-timeout": one(ValueKind::TIME);
        /// How often an event is taken at most; then it has FAILED. Take-overs of what a dead worker left behind count.
        max_attempts: Option<u32> = None =>
            "max-attempts": one(ValueKind::Number { min: 1, max: 1_000_000 }), unset("no limit; 10 with `on-failure: retry`");
        /// How long a failed event waits with `on-failure: retry`. Each delay is spread by half, up or down.
        retry: Exponential = Exponential::default() => "retry": group;
        /// When old events are deleted from the log.
        purge: purge::Config = purge::Config::default() => "purge": group;
        /// What `/metrics` shows.
        metrics: Metrics = Metrics::default() => "metrics": group;
        /// The `source` of events that are published, which are CloudEvents.
        source: Option<String> = None => "source": one(ValueKind::Text), unset("`/queue/` and the name");
        ..worker: WorkerConfig = WorkerConfig::default() => {
            concurrency: usize,
            batch_size: u32,
            on_failure: OnFailure,
            idle_wait: Duration,
            drain_timeout: Duration,
            dead_letter_timeout: Duration,
        }
    }
    rules: fit_together;
}

backstop_core::config! {
    /// The settings of a queue's worker. [`Worker`] has a method for each.
    #[derive(Debug, Clone, PartialEq)]
    pub struct WorkerConfig {
        /// How many events are handled at the same time.
        concurrency: usize = 16 => "concurrency": one(ValueKind::AT_LEAST_ONE);
        /// How many events one statement takes at most. A worker takes fewer if its handlers are slow.
        batch_size: u32 = 500 => "batch-size": one(ValueKind::Number { min: 1, max: 10_000 });
        /// What happens to an event whose handler fails.
        on_failure: OnFailure = OnFailure::Fail => "on-failure": one(OnFailure::KIND);
        /// The longest rest of a worker that finds nothing to do. Wake-ups end it early.
        idle_wait: Duration = Duration::from_secs(10) => "idle-wait": one(ValueKind::TIME);
        /// How long closing waits for handlers. What is not finished by then is cancelled and goes back to PENDING.
        drain_timeout: Duration = Duration::from_secs(5) => "drain-timeout-ms": one(ValueKind::MILLIS_OR_ZERO);
        /// How long writing a dead letter may take. After that the event has FAILED without one, and none is tried for as
        /// long again.
        dead_letter_timeout: Duration = Duration::from_secs(30) => "dead-letter-timeout": one(ValueKind::TIME);
    }
    setters: Worker.config;
}

backstop_core::config! {
    /// The tables of a queue.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Tables {
        /// The table of events that wait or are being handled.
        table: String = "events".to_owned() => "table": one(ValueKind::Parsed(&TABLE));
        /// The table of finished events.
        log_table: String = "event_log".to_owned() => "log-table": one(ValueKind::Parsed(&TABLE));
        /// Whether the start creates the tables or brings them up to date. If not, they are only checked at the start, and
        /// `backstop migrate` creates or updates them.
        migrate: bool = true => "migrate": one(ValueKind::Flag);
        /// Whether nodes wake each other when one has published, where the database supports it (PostgreSQL).
        wake_ups: bool = true => "wake-ups": one(ValueKind::Flag);
        /// Whether the database is reached through a pooler that shares connections between transactions, such as
        /// PgBouncer. PostgreSQL only.
        behind_pooler: bool = false => "behind-pooler": one(ValueKind::Flag);
    }
}

impl Config {
    /// How often an event is taken at most, if there is a limit.
    pub(super) fn limit(&self) -> Option<u32> {
        const OF_RETRIES: u32 = 10;
        self.max_attempts.or((self.worker.on_failure == OnFailure::Retry).then_some(OF_RETRIES))
    }

    /// The `source` of events that are published.
    pub(super) fn source(&self) -> String {
        self.source.clone().unwrap_or_else(|| format!("/queue/{}", self.name))
    }
}

/// What must hold between settings.
fn fit_together(config: &Config, faults: &mut Faults) {
    if config.retry.max < config.retry.base {
        faults.under("retry", |faults| faults.add("max-delay-ms", "must not be shorter than base-delay-ms"));
    }
    if config.database.table == config.database.log_table {
        faults.under("database", |faults| faults.add("log-table", "must be another table than `table`"));
    }
}
