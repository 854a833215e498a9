//! A handler that writes a line for each event: to try a daemon out, and to see what would be sent.

use backstop_core::config;
use backstop_core::{Event, Failure, Handler, Outcome};

use super::Owner;

backstop_core::choice! {
    /// How loud a line is.
    pub(crate) enum Level {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
    }
}

config! {
    /// What the handler is set up with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Config {
        /// How loud the line is. It names the event and never shows its payload.
        level: Level = Level::Info => "level": one(Level::KIND);
    }
}

/// Writes who an event is, and never what it says.
#[derive(Debug)]
pub(crate) struct Log {
    /// One of the two has a name.
    outbox: Option<String>,
    queue: Option<String>,
    level: Level,
}

impl Log {
    pub(crate) fn new(owner: Owner<'_>, config: Config) -> Self {
        let (outbox, queue) = match owner {
            Owner::Outbox(name) => (Some(name.to_owned()), None),
            Owner::Queue(name) => (None, Some(name.to_owned())),
        };
        Self { outbox, queue, level: config.level }
    }
}

/// The level of a line must be known when the program is built.
macro_rules! line {
    ($level:ident, $log:expr, $event:expr) => {
        tracing::$level!(
            outbox = $log.outbox.as_deref(),
            queue = $log.queue.as_deref(),
            event_id = $event.id(),
            event_type = $event.event_type(),
            aggregate_type = $event.aggregate_type(),
            aggregate_id = $event.aggregate_id(),
            payload_bytes = $event.payload_json().len(),
            "event"
        )
    };
}

impl Handler for Log {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        match self.level {
            Level::Error => line!(error, self, event),
            Level::Warn => line!(warn, self, event),
            Level::Info => line!(info, self, event),
            Level::Debug => line!(debug, self, event),
        }
        Ok(Outcome::Done)
    }
}
