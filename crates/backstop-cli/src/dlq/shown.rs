//! Entries as an operator reads them. Event fields are hostile text, and a terminal obeys what it is shown.

use backstop_core::Timestamp;
use backstop_disk::dlq::{Details, Entry};
use serde::Serialize;
use serde_json::value::RawValue;

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
    serde_json::to_string(&Shown {
        place: entry.place.to_string(),
        failed_at: entry.failed_at,
        error: &entry.error,
        backstop: entry.details.as_ref(),
        event,
    })
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

/// The text without characters that a terminal acts upon, or that hide or reorder what is around them.
pub(super) fn plain(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            kept.extend(c.escape_unicode());
        } else {
            kept.push(c);
        }
    }
    kept
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_an_event() {
        assert_eq!(plain("a\x1b[2Jb\n\u{202e}é\u{9b}"), "a\\u{1b}[2Jb\\u{a}\\u{202e}é\\u{9b}");
        assert_eq!(plain("ordinary – 日本語 😀"), "ordinary – 日本語 😀");
    }
}
