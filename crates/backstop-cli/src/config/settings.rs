//! The settings as types, deserialised from values that the walk has checked: the components' Configs, and what the daemon
//! puts around them.

use std::fmt;

use backstop_core::config::Secret;
use backstop_disk::dlq;
use backstop_sql::{Tls, outbox, queue};
use serde::Deserialize;

use crate::handlers;

/// Everything that the file says, with all defaults.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) outbox: Vec<Outbox>,
    pub(crate) queue: Vec<Queue>,
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

/// An outbox, with what the daemon does for it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Outbox {
    /// Where it stands in the settings, for messages.
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) database: Database<outbox::Table>,
    pub(crate) dlq: Option<String>,
    pub(crate) handlers: Vec<Handler>,
    /// All but its name and its table, which stand above.
    #[serde(flatten)]
    parts: outbox::Config,
}

impl Outbox {
    /// Its settings as the library has them.
    pub(crate) fn config(&self) -> outbox::Config {
        outbox::Config {
            name: self.name.clone(),
            database: self.database.table.clone(),
            ..self.parts.clone()
        }
    }
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

/// A queue, with what the daemon does for it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Queue {
    /// Where it stands in the settings, for messages.
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) database: Database<queue::Tables>,
    pub(crate) dlq: Option<String>,
    pub(crate) handlers: Vec<Handler>,
    /// All but its name and its tables, which stand above.
    #[serde(flatten)]
    parts: queue::Config,
}

impl Queue {
    /// Its settings as the library has them.
    pub(crate) fn config(&self) -> queue::Config {
        queue::Config { name: self.name.clone(), database: self.database.table.clone(), ..self.parts.clone() }
    }
}

/// A component on a database, of which a file may have several.
pub(crate) trait OnDatabase {
    /// What one is called, and what several are.
    const WORDS: (&str, &str);

    fn name(&self) -> &str;
}

impl OnDatabase for Outbox {
    const WORDS: (&str, &str) = ("outbox", "outboxes");

    fn name(&self) -> &str {
        &self.name
    }
}

impl OnDatabase for Queue {
    const WORDS: (&str, &str) = ("queue", "queues");

    fn name(&self) -> &str {
        &self.name
    }
}

/// The database of a component, and its tables there.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Database<T> {
    pub(crate) url: Secret,
    pub(crate) pool_size: u32,
    pub(crate) tls: Tls,
    #[serde(flatten)]
    pub(crate) table: T,
}

/// Which events go where. A queue has neither of the options that come first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Handler {
    pub(crate) path: String,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) dlq: Option<String>,
    pub(crate) event_type: Vec<String>,
    pub(crate) log: Option<handlers::Log>,
    pub(crate) http: Option<backstop_http::Config>,
    pub(crate) kafka: Option<backstop_kafka::Config>,
}

impl Handler {
    /// Whether it is for all events that have no other handler.
    pub(crate) fn is_for_the_rest(&self) -> bool {
        self.event_type.iter().any(|name| name == "*")
    }
}
