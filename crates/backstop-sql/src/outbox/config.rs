//! The settings of an outbox, each declared once: what it means, its default, its key in a settings file, and its
//! rule. The settings of its parts are declared in the files of those parts.

use std::time::Duration;

use backstop_core::config::{Parsed, ValueKind};
use backstop_core::retry::Exponential;
use backstop_core::setting::Faults;

use super::{claims, dispatcher, poller};
use crate::{TableName, TimeZone, purge};

backstop_core::config! {
    /// The settings of an outbox. [`Builder::config`](super::Builder::config) takes them all at once, and the builder has a
    /// method for each.
    ///
    /// ```
    /// use backstop_sql::outbox::Config;
    ///
    /// let mut config = Config::default();
    /// config.dispatcher.worker_count = 16;
    /// assert_eq!(config.database.table, "outbox_event");
    /// ```
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// The name by which operators know it, and the label `outbox` of its metrics.
        name: String = "outbox".to_owned() => "name": one(ValueKind::Text);
        /// Where the table is.
        database: Table = Table::default() => "database": group;
        /// How events are handed to their handlers.
        dispatcher: dispatcher::Config = dispatcher::Config::default() => "dispatcher": group;
        /// How long a failed event waits. Each delay is spread by half, up or down.
        retry: Exponential = Exponential::default() => "retry": group;
        /// How the poller looks for due rows.
        poller: poller::Config = poller::Config::default() => "poller": group;
        /// How several nodes share the table.
        claim_locking: claims::Config = claims::Config::default() => "claim-locking": group;
        /// When old rows are deleted.
        purge: purge::Config = purge::Config::default() => "purge": group;
        /// What `/metrics` shows.
        metrics: Metrics = Metrics::default() => "metrics": group;
        /// How long writing a dead letter may take. After that the row becomes DEAD without one, and none is tried
        /// for as long again.
        dead_letter_timeout: Duration = Duration::from_secs(30) => "dead-letter-timeout": one(ValueKind::TIME);
        /// The `source` of dead letters, which are CloudEvents.
        source: Option<String> = None => "source": one(ValueKind::Text), unset("`/outbox/` and the name");
    }
    rules: fit_together;
}

backstop_core::config! {
    /// The table of an outbox.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Table {
        /// The table.
        table: String = TableName::default().to_string() => "table": one(ValueKind::Parsed(&TABLE));
        /// The time zone of the table's columns, if they carry none: `DATETIME` on MySQL, `TIMESTAMP` on PostgreSQL.
        /// Otherwise leave it at `UTC`.
        time_zone: String = "UTC".to_owned() => "time-zone": one(ValueKind::Parsed(&TIME_ZONE));
        /// Whether the Java framework delivers from the same table. It needs mode `multi-node` and `poller.skip-recent`.
        beside_java: bool = false => "beside-java": one(ValueKind::Flag);
        /// Whether the start creates the table or brings it up to date. If not, the table is only checked at the
        /// start, and `backstop migrate` creates or updates it.
        migrate: bool = true => "migrate": one(ValueKind::Flag);
        /// Whether nodes wake each other when one has written rows, where the database supports it (PostgreSQL).
        wake_ups: bool = true => "wake-ups": one(ValueKind::Flag);
        /// Whether the database is reached through a pooler that shares connections between transactions, such as
        /// PgBouncer. PostgreSQL only.
        behind_pooler: bool = false => "behind-pooler": one(ValueKind::Flag);
        /// Whether a second process on the same table is refused at its start if it or the first one runs in a
        /// single-process mode (`single-node`, `ordered`). For this each process holds a lock: on a connection beside
        /// the pool, or with SQLite in a file beside the database. If that connection is lost and another process
        /// takes the table meanwhile, this one delivers nothing until the other stops. Behind a pooler no such lock
        /// can be held: write `false` there in a single-process mode, and make sure yourself that only one process
        /// runs.
        guard: bool = true => "guard": one(ValueKind::Flag);
    }
}

backstop_core::config! {
    /// What an outbox or a queue counts, and under which names.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Metrics {
        /// Whether it appears in `/metrics`.
        enabled: bool = true => "enabled": one(ValueKind::Flag);
        /// What the names of its metrics begin with. Several may share it: the label `outbox` or `queue` has the name of each.
        name_prefix: Option<String> = None => "name-prefix": one(ValueKind::Text), unset("`outbox`; of a queue, `queue`");
    }
}

/// The name of a table.
pub(crate) const TABLE: Parsed = Parsed {
    word: "table name",
    rule: "a letter or underscore followed by letters, digits or underscores, at most 63 in all",
    secret: false,
    check: |text| TableName::new(text).map(drop).map_err(|_| format!("must be {}", TABLE.rule)),
};

/// UTC, or a fixed distance from it.
const TIME_ZONE: Parsed = Parsed {
    word: "`UTC`, or a distance from it such as `+02:00`",
    rule: "UTC or a fixed distance from it such as +02:00, at most 14 hours",
    secret: false,
    check: |text| TimeZone::new(text).map(drop).map_err(|_| format!("must be {}", TIME_ZONE.rule)),
};

/// What must hold between settings, whatever the mode.
fn fit_together(config: &Config, faults: &mut Faults) {
    if config.retry.max < config.retry.base {
        faults.under("retry", |faults| faults.add("max-delay-ms", "must not be shorter than base-delay-ms"));
    }
    if config.database.beside_java && config.poller.skip_recent.is_zero() {
        faults.under("poller", |faults| {
            faults.add(
                "skip-recent",
                "must be longer than zero with database.beside-java, such as 10s: the rows that the Java framework has in memory \
                 are unclaimed",
            );
        });
    }
}
