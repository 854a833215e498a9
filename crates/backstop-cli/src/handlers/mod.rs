//! Handlers made from settings: where an event goes once it is claimed.

mod log;

use std::sync::Arc;

use backstop_core::Handler as Handles;
use backstop_core::handler::SharedHandler;
use backstop_core::inspect::Inspect;
use backstop_core::setting::SettingFault;
use backstop_core::target;
use backstop_http::Webhook;
use backstop_kafka::Publisher;

use crate::config::settings::Handler;

pub(crate) use log::Config as Log;
#[cfg(test)]
pub(crate) use log::Level;

/// Where the events of a handler go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Log(&'a Log),
    Http(&'a backstop_http::Config),
    Kafka(&'a backstop_kafka::Config),
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

    /// The name of its target, if it has one that can be unavailable.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Self::Log(_) => None,
            Self::Http(config) => Some(config.target_name()),
            Self::Kafka(config) => Some(config.target_name().to_owned()),
        }
    }

    /// What keeps a handler from being made of the settings, found without making one.
    pub(crate) fn faults(&self) -> Vec<SettingFault> {
        match self {
            Self::Log(_) => Vec::new(),
            Self::Http(config) => match Webhook::of((*config).clone()).check() {
                Err(backstop_http::Error::Settings { faults, .. }) => faults,
                _ => Vec::new(),
            },
            Self::Kafka(config) => match Publisher::of((*config).clone()).check() {
                Err(backstop_kafka::Error::Settings { faults, .. }) => faults,
                _ => Vec::new(),
            },
        }
    }
}

/// What the handlers of a daemon share: connections, where their settings are equal.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    http: backstop_http::Connections,
    kafka: backstop_kafka::Connections,
}

/// A handler that was made, and the name of its target if it has one that can be unavailable.
pub(crate) struct Made {
    pub(crate) handler: SharedHandler,
    pub(crate) target: Option<(String, Arc<dyn Inspect>)>,
}

impl Made {
    fn alone(handler: impl Handles) -> Self {
        Self { handler: SharedHandler::new(handler), target: None }
    }

    /// With a target that the dashboard shows.
    fn towards(handler: impl Handles, target: target::Target) -> Self {
        Self { target: Some((target.name().to_owned(), Arc::new(target))), ..Self::alone(handler) }
    }
}

/// Whose events a handler handles: those of an outbox or of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner<'a> {
    Outbox(&'a str),
    Queue(&'a str),
}

impl<'a> Owner<'a> {
    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Outbox(name) | Self::Queue(name) => name,
        }
    }

    /// The source of its events, unless the settings say something else.
    fn source(self) -> String {
        match self {
            Self::Outbox(name) => format!("/outbox/{name}"),
            Self::Queue(name) => format!("/queue/{name}"),
        }
    }
}

/// Makes the handler of these settings, for that owner. The number says which of its targets with that name this one is,
/// from 1 on.
pub(crate) fn build(
    owner: Owner<'_>,
    number: u32,
    target: Target<'_>,
    shared: &Shared,
) -> anyhow::Result<Made> {
    match target {
        Target::Log(config) => Ok(Made::alone(log::Log::new(owner, *config))),
        Target::Http(config) => {
            let mut config = config.clone();
            config.target.source.get_or_insert_with(|| owner.source());
            let webhook = Webhook::of(config).component(owner.name()).number(number);
            let webhook = webhook.connections(&shared.http).build()?;
            let target = webhook.target().clone();
            Ok(Made::towards(webhook, target))
        }
        Target::Kafka(config) => {
            let mut config = config.clone();
            config.target.source.get_or_insert_with(|| owner.source());
            let publisher = Publisher::of(config).component(owner.name()).number(number);
            let publisher = publisher.connections(&shared.kafka).build()?;
            let target = publisher.target().clone();
            Ok(Made::towards(publisher, target))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn handlers_with_equal_settings_share_their_connections() {
        let shared = Shared::default();
        let hook = |path: &str| backstop_http::Config::to(format!("https://example.com/{path}"));
        let topic = |name: &str| backstop_kafka::Config::to("127.0.0.1:9", name);
        let hooks = [hook("placed"), hook("paid")];
        let topics = [topic("orders"), topic("refunds")];
        let targets = hooks.iter().map(Target::Http).chain(topics.iter().map(Target::Kafka));
        let owner = Owner::Outbox("orders");
        let made: Vec<_> = targets.map(|target| build(owner, 1, target, &shared).unwrap()).collect();
        assert_eq!((made.len(), shared.http.count(), shared.kafka.count()), (4, 1, 1));
        let other = backstop_http::Config { idle_connections: 1, ..hook("other") };
        let other = build(owner, 1, Target::Http(&other), &shared).unwrap();
        assert_eq!(shared.http.count(), 2);
        drop((made, other));
        assert_eq!((shared.http.count(), shared.kafka.count()), (0, 0));
    }
}
