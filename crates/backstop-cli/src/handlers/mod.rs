//! Handlers made from settings: where an event goes once it is claimed.
//!
//! Each kind is a file of its own.

mod http;
mod kafka;
mod log;

use backstop_core::handler::SharedHandler;
use backstop_core::setting::SettingFault;

use crate::config::settings::{self, Handler, Http, Kafka};

/// Where the events of a handler go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Log(&'a settings::Log),
    Http(&'a Http),
    Kafka(&'a Kafka),
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
            Self::Kafka(settings) => kafka::check(settings),
        }
    }
}

/// Makes the handler of these settings, for the outbox of that name.
pub(crate) fn build(outbox: &str, target: Target<'_>) -> anyhow::Result<SharedHandler> {
    match target {
        Target::Log(settings) => Ok(SharedHandler::new(log::Log::new(outbox, settings))),
        Target::Http(settings) => Ok(SharedHandler::new(http::webhook(outbox, settings)?)),
        Target::Kafka(settings) => Ok(SharedHandler::new(kafka::publisher(outbox, settings)?)),
    }
}

/// All faults in one line, each setting by its key in the settings file.
fn told(faults: &[SettingFault], key: impl Fn(&SettingFault) -> &'static str) -> String {
    let told: Vec<_> = faults.iter().map(|fault| format!("{} {}", key(fault), fault.rule)).collect();
    told.join("; ")
}
