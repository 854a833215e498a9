//! The handler that writes events to a topic.

use backstop_core::setting::SettingFault;
use backstop_kafka::{Error, Publisher, PublisherBuilder};

use super::told;
use crate::config::settings::{Kafka, RecordFormat};

/// What is wrong with the settings, in the words of the settings file.
pub(super) fn check(settings: &Kafka) -> Result<(), String> {
    match begun("check", settings).check() {
        Ok(()) => Ok(()),
        Err(Error::Settings { faults, .. }) => Err(told(&faults, key)),
        Err(other) => Err(other.to_string()),
    }
}

/// The publisher of these settings, which tells that its events come from the outbox of that name.
pub(super) fn begun(outbox: &str, settings: &Kafka) -> PublisherBuilder {
    let Kafka { bootstrap_servers, topic, format, client_id, timeout, linger, compression } = settings;
    let publisher = Publisher::to(bootstrap_servers.join(","), topic)
        .source(format!("/outbox/{outbox}"))
        .client_id(client_id)
        .timeout(*timeout)
        .linger(*linger)
        .property("compression.type", compression);
    match format {
        RecordFormat::Binary => publisher.binary(),
        RecordFormat::Structured => publisher.structured(),
    }
}

fn key(fault: &SettingFault) -> &'static str {
    match fault.setting {
        "bootstrap_servers" => "bootstrap-servers",
        other => other,
    }
}
