//! Handlers made from settings: where an event goes once it is claimed.
//!
//! Each kind is a file of its own.

mod http;
mod kafka;
mod log;

use std::sync::Arc;

use backstop_core::Handler as Handles;
use backstop_core::handler::SharedHandler;
use backstop_core::inspect::Inspect;
use backstop_core::setting::SettingFault;
use backstop_core::target;

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

/// A handler that was made, and its target by name where it has one that can be away.
pub(crate) struct Made {
    pub(crate) handler: SharedHandler,
    pub(crate) target: Option<(String, Arc<dyn Inspect>)>,
}

impl Made {
    fn alone(handler: impl Handles) -> Self {
        Self { handler: SharedHandler::new(handler), target: None }
    }

    /// With a target that the operator's page shows.
    fn towards(handler: impl Handles, target: target::Target) -> Self {
        Self { target: Some((target.name().to_owned(), Arc::new(target))), ..Self::alone(handler) }
    }
}

/// Makes the handler of these settings, for the outbox of that name and some of its events.
pub(crate) fn build(outbox: &str, used_for: &str, target: Target<'_>) -> anyhow::Result<Made> {
    match target {
        Target::Log(settings) => Ok(Made::alone(log::Log::new(outbox, settings))),
        Target::Http(settings) => {
            let webhook = http::begun(outbox, settings).used_for(used_for).build()?;
            let target = webhook.target().clone();
            Ok(Made::towards(webhook, target))
        }
        Target::Kafka(settings) => {
            let publisher = kafka::begun(outbox, settings).used_for(used_for).build()?;
            let target = publisher.target().clone();
            Ok(Made::towards(publisher, target))
        }
    }
}

/// All faults in one line, each setting by its key in the settings file.
fn told(faults: &[SettingFault], key: impl Fn(&SettingFault) -> &'static str) -> String {
    let told: Vec<_> = faults.iter().map(|fault| format!("{} {}", key(fault), fault.rule)).collect();
    told.join("; ")
}
