//! The settings as types, deserialised from values that the walk has checked: the components' Configs, and what the daemon
//! puts around them.

use std::fmt;
use std::time::Duration;

use backstop_core::config::Secret;
use backstop_disk::dlq;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::handlers;

/// Everything that the file says, with all defaults.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) outbox: Vec<Outbox>,
    pub(crate) dlq: Vec<Dlq>,
    pub(crate) server: backstop_admin::Config,
}

/// A dead-letter directory, with the name that the daemon gives it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dlq {
    /// Where it stands in the settings, for messages.
    pub(crate) path: String,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) config: dlq::Config,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Outbox {
    /// Where it stands in the settings, for messages.
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) database: Database,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) retry: Retry,
    pub(crate) poller: Poller,
    pub(crate) claim_locking: ClaimLocking,
    pub(crate) purge: Purge,
    pub(crate) metrics: Metrics,
    pub(crate) dlq: Option<String>,
    pub(crate) handlers: Vec<Handler>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    SingleNode,
    MultiNode,
    Ordered,
    WriterOnly,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SingleNode => "single-node",
            Self::MultiNode => "multi-node",
            Self::Ordered => "ordered",
            Self::WriterOnly => "writer-only",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
pub(crate) struct Database {
    pub(crate) url: Secret,
    pub(crate) table: String,
    pub(crate) time_zone: String,
    pub(crate) beside_java: bool,
    pub(crate) pool_size: u32,
    pub(crate) migrate: bool,
    pub(crate) wake_ups: bool,
    pub(crate) behind_pooler: bool,
    pub(crate) guard: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Dispatcher {
    pub(crate) worker_count: usize,
    pub(crate) hot_queue_capacity: usize,
    pub(crate) cold_queue_capacity: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) max_attempts: u32,
    #[serde(rename = "drain-timeout-ms", deserialize_with = "millis")]
    pub(crate) drain_timeout: Duration,
    pub(crate) done: Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Done {
    Keep,
    Delete,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    #[serde(rename = "base-delay-ms", deserialize_with = "millis")]
    pub(crate) base_delay: Duration,
    #[serde(rename = "max-delay-ms", deserialize_with = "millis")]
    pub(crate) max_delay: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Poller {
    #[serde(rename = "interval-ms", deserialize_with = "millis")]
    pub(crate) interval: Duration,
    pub(crate) batch_size: u32,
    #[serde(deserialize_with = "millis")]
    pub(crate) skip_recent: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct ClaimLocking {
    pub(crate) enabled: bool,
    #[serde(deserialize_with = "millis")]
    pub(crate) lock_timeout: Duration,
    pub(crate) owner_id: Option<String>,
    #[serde(deserialize_with = "millis")]
    pub(crate) hot_grace: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Purge {
    pub(crate) enabled: bool,
    #[serde(deserialize_with = "millis")]
    pub(crate) retention: Duration,
    pub(crate) batch_size: u32,
    #[serde(rename = "interval-seconds", deserialize_with = "millis")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Metrics {
    pub(crate) enabled: bool,
    pub(crate) name_prefix: Option<String>,
}

/// Which events go where.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Handler {
    pub(crate) path: String,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) event_type: Vec<String>,
    pub(crate) dlq: Option<String>,
    pub(crate) log: Option<handlers::Log>,
    pub(crate) http: Option<backstop_http::Config>,
    pub(crate) kafka: Option<backstop_kafka::Config>,
}

/// Times come from the walk in milliseconds, as `1500ms`.
fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let millis = text.strip_suffix("ms").and_then(|millis| millis.parse().ok());
    millis.map(Duration::from_millis).ok_or_else(|| D::Error::custom("a time must be in milliseconds"))
}
