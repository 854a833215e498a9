//! An event as an operator reads it: one JSON object, or the same on lines.

use std::collections::BTreeMap;

use backstop_core::Event;
use serde::Serialize;
use serde_json::value::RawValue;

/// The event of a row, as far as it can be read.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Told<'a> {
    Event {
        event_type: &'a str,
        aggregate_type: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        aggregate_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tenant_id: Option<&'a str>,
        headers: BTreeMap<&'a str, &'a str>,
        payload: Payload<'a>,
    },
    Unreadable {
        unreadable: &'a str,
    },
}

/// JSON as it is, or what is none as text: a table takes what somebody writes into it.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Payload<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl<'a> Told<'a> {
    pub(crate) fn of(event: &'a Result<Event, String>) -> Self {
        match event {
            Ok(event) => Self::Event {
                event_type: event.event_type(),
                aggregate_type: event.aggregate_type(),
                aggregate_id: event.aggregate_id(),
                tenant_id: event.tenant_id(),
                headers: event.headers().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
                payload: match serde_json::from_str(event.payload_json()) {
                    Ok(json) => Payload::Json(json),
                    Err(_) => Payload::Text(event.payload_json()),
                },
            },
            Err(unreadable) => Self::Unreadable { unreadable },
        }
    }
}

/// A JSON object spread over lines, its keys in this order, with its numbers as they are.
pub(crate) fn on_lines(json: &str, order: &[&str]) -> serde_json::Result<String> {
    // Key by key: a number that went through a parsed value would lose its digits.
    let parts: BTreeMap<String, &RawValue> = serde_json::from_str(json)?;
    let lines: Vec<_> = order
        .iter()
        .filter_map(|key| Some((*key, parts.get(*key)?)))
        .map(|(key, value)| format!("{key}: {}", value.get()))
        .collect();
    Ok(lines.join("\n"))
}
