//! Handlers made from settings: where an event goes once it is claimed.
//!
//! Each kind is a file of its own. A kind that this build lacks can be written in a settings file and is refused by
//! `backstop check`.

mod http;
mod log;

use anyhow::bail;
use backstop_core::handler::SharedHandler;

use crate::config::settings::{self, Handler, Http, Kafka};

/// Where the events of a handler go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Log(&'a settings::Log),
    Http(&'a Http),
    Kafka(#[expect(dead_code, reason = "this build has no such handlers yet")] &'a Kafka),
}

impl<'a> Target<'a> {
    /// All that the settings name; exactly one is right.
    pub(crate) fn of(handler: &'a Handler) -> Vec<Self> {
        let log = handler.log.as_ref().map(Self::Log);
        let http = handler.http.as_ref().map(Self::Http);
        let kafka = handler.kafka.as_ref().map(Self::Kafka);
        [log, http, kafka].into_iter().flatten().collect()
    }

    /// The key that names it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            Self::Http(_) => "http",
            Self::Kafka(_) => "kafka",
        }
    }

    /// Whether a handler can be made from the settings, without making one.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Log(_) => Ok(()),
            Self::Http(settings) => http::check(settings),
            Self::Kafka(_) => Err(format!("this build has no {} handlers", self.word())),
        }
    }
}

/// Makes the handler of these settings, for the outbox of that name.
pub(crate) fn build(outbox: &str, target: Target<'_>) -> anyhow::Result<SharedHandler> {
    match target {
        Target::Log(settings) => Ok(SharedHandler::new(log::Log::new(outbox, settings))),
        Target::Http(settings) => Ok(SharedHandler::new(http::webhook(outbox, settings)?)),
        Target::Kafka(_) => bail!("this build has no {} handlers", target.word()),
    }
}
