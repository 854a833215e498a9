//! Entries as an operator reads them.

use backstop_core::Timestamp;
use backstop_disk::dlq::{Details, Entry};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::plain::{is_invisible, plain};

/// One line: place, time, type, id, error.
pub(super) fn entry_as_line(entry: &Entry) -> String {
    let time = entry.failed_at.map_or("-".to_owned(), |at| at.to_rfc3339_opts_millis());
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

/// JSON that means the same and shows a terminal nothing that it acts upon.
fn escaped(json: &str) -> String {
    let mut kept = String::with_capacity(json.len());
    for c in json.chars() {
        // In a string JSON has escaped these; elsewhere they are room.
        if c < ' ' {
            kept.push(' ');
        } else if c.is_control() || is_invisible(c) {
            kept.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            kept.push(c);
        }
    }
    kept
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

trait Millis {
    fn to_rfc3339_opts_millis(&self) -> String;
}

impl Millis for Timestamp {
    fn to_rfc3339_opts_millis(&self) -> String {
        self.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_means_the_same_after_it_was_escaped() {
        let json = "{\"a\":\t\"\u{9b}2J\u{202e}\u{e0041}\u{7f}é\"}";
        let plain = escaped(json);
        assert_eq!(plain, r#"{"a": "\u009b2J\u202e\udb40\udc41\u007fé"}"#);
        let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(read(&plain), read(json));
    }
}
