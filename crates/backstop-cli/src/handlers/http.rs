//! The handler that sends events to a web server.

use std::time::Duration;

use backstop_core::setting::SettingFault;
use backstop_http::{Error, Webhook, WebhookBuilder};

use super::told;
use crate::config::settings::{Format, Http};

/// A batch holds at most so many events, and waits at most so long for others.
const BATCH: usize = 100;
const LINGER: Duration = Duration::from_millis(5);

/// What is wrong with the settings, in the words of the settings file.
pub(super) fn check(settings: &Http) -> Result<(), String> {
    match begun("check", settings).build() {
        Ok(_) => Ok(()),
        Err(Error::Settings { faults, .. }) => {
            let told = told(&faults, key).replace("`allow_network`", "`allowed-networks`");
            Err(told.replace(", which go into a header such as `authorization`", ""))
        }
        Err(other) => Err(other.to_string()),
    }
}

fn key(fault: &SettingFault) -> &'static str {
    match fault.setting {
        "allow_network" => "allowed-networks",
        "secret" => "secrets",
        other => other,
    }
}

/// The webhook of these settings, which tells that its events come from the outbox of that name.
pub(super) fn begun(outbox: &str, settings: &Http) -> WebhookBuilder {
    let Http { url, format, secrets, timeout, allowed_networks } = settings;
    let webhook = Webhook::to(url.reveal()).source(format!("/outbox/{outbox}")).timeout(*timeout);
    let webhook = match format {
        Format::Structured => webhook.structured(),
        Format::Binary => webhook.binary(),
        Format::Batched => webhook.batched(BATCH, LINGER),
    };
    let webhook = secrets.iter().fold(webhook, |webhook, secret| webhook.secret(secret.reveal()));
    allowed_networks.iter().fold(webhook, WebhookBuilder::allow_network)
}
