//! Entries as an operator reads them.

use backstop_core::Timestamp;
use backstop_disk::dlq::{Details, Entry};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::plain::{escaped, moment, plain};

/// One line: place, time, type, id, error.
pub(super) fn entry_as_line(entry: &Entry) -> String {
    let time = entry.failed_at.map_or("-".to_owned(), moment);
    let parts = [&entry.place.to_string(), &time, entry.event.event_type(), entry.event.id(), &entry.error]
        .map(plain);
    parts.join("  ")
}

/// The whole entry as one JSON object.
pub(super) fn entry_as_json(entry: &Entry) -> serde_json::Result<String> {
    let event: &RawValue = serde_json::from_str(entry.event.as_json())?;
    let json = serde_json::to_string(&Shown {
        place: entry.place.to_string(),
        failed_at: entry.failed_at,
        error: &entry.error,
        backstop: entry.details.as_ref(),
        event,
    })?;
    Ok(escaped(&json))
}

#[derive(Serialize)]
struct Shown<'a> {
    place: String,
    failed_at: Option<Timestamp>,
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backstop: Option<&'a Details>,
    event: &'a RawValue,
}
