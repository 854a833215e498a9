//! A record: one failed event with its error, as one line of JSON.
//!
//! ```text
//! {"event":<CloudEvent>,"error":"<message>"}
//! ```
//!
//! With [`Setup::details`](super::Setup::details) a third key, `backstop`, holds more. Readers
//! ignore keys that they do not know.

use backstop_core::burial::Cause;
use backstop_core::{CloudEvent, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Error;

/// How large a record may be: 64 MiB. One must fit into memory to be read.
pub const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024;

/// Keys, quotes and braces, a few escapes, and mostly the details.
const ROOM_BESIDE_EVENT_AND_ERROR: usize = 192;

/// What is known about a failed event beyond its error, under the key `backstop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The version of this object: 1.
    pub schema: u32,
    /// How many attempts there were.
    pub attempts: u32,
    /// When the first attempt failed, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed_at: Option<Timestamp>,
    /// When the last attempt failed.
    pub last_failed_at: Timestamp,
    /// Where the event was to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl Details {
    /// The version that is written.
    pub const SCHEMA: u32 = 1;

    pub(super) fn of(cause: &Cause, target: Option<&str>) -> Self {
        Self {
            schema: Self::SCHEMA,
            attempts: cause.attempts,
            first_failed_at: cause.first_failed_at,
            last_failed_at: cause.failed_at,
            target: target.map(str::to_owned),
        }
    }
}

/// A record as it was read.
pub(super) struct Record {
    pub(super) event: CloudEvent,
    pub(super) error: String,
    pub(super) details: Option<Details>,
}

/// Writes a record with the newline that ends it.
pub(super) fn line(event: &CloudEvent, error: &str, details: Option<&Details>) -> Result<Vec<u8>, Error> {
    let least = event.as_json().len() + error.len();
    if least > MAX_RECORD_BYTES {
        return Err(too_large(least));
    }
    let mut line = Vec::with_capacity(least + ROOM_BESIDE_EVENT_AND_ERROR);
    line.extend_from_slice(br#"{"event":"#);
    push_on_one_line(&mut line, event.as_json());
    line.extend_from_slice(br#","error":"#);
    push_json(&mut line, error)?;
    if let Some(details) = details {
        line.extend_from_slice(br#","backstop":"#);
        push_json(&mut line, details)?;
    }
    line.extend_from_slice(b"}\n");
    if line.len() > MAX_RECORD_BYTES {
        return Err(too_large(line.len()));
    }
    Ok(line)
}

fn too_large(bytes: usize) -> Error {
    Error::TooLarge { bytes, limit: MAX_RECORD_BYTES }
}

/// JSON has no line breaks inside its strings, so those that there are mean no more than a space.
fn push_on_one_line(line: &mut Vec<u8>, json: &str) {
    let begin = line.len();
    line.extend_from_slice(json.trim().as_bytes());
    let added = &mut line[begin..];
    if added.contains(&b'\n') || added.contains(&b'\r') {
        added.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
}

fn push_json(line: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    serde_json::to_writer(line, value)
        .map_err(|error| Error::Write { doing: "write an event as JSON", source: error.into() })
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    event: &'a RawValue,
    error: String,
    #[serde(borrow)]
    backstop: Option<&'a RawValue>,
}

/// Reads a record, or says why it is not one. Line breaks and unknown keys do not matter.
pub(super) fn read(line: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    // What serde says about a wrong type quotes the value, and values stay out of errors.
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| {
        format!("not a record ({:?} error at column {})", error.classify(), error.column())
    })?;
    let event = CloudEvent::from_json(line.event.get())
        .map_err(|_| "its event is not a CloudEvent: id, source and type must be strings".to_owned())?;
    // Somebody else may use the key for something else.
    let details = line.backstop.and_then(|raw| serde_json::from_str(raw.get()).ok());
    Ok(Record { event, error: line.error, details })
}

#[cfg(test)]
mod tests {
    use backstop_core::Clock;
    use backstop_testkit::clock::ManualClock;
    use serde_json::Value;

    use super::*;

    const EVENT: &str =
        r#"{"specversion":"1.0","id":"42","source":"/shop","type":"t","data":{"n":1.10,"s":"a\nb"}}"#;

    fn text(event: &CloudEvent, error: &str, details: Option<&Details>) -> String {
        String::from_utf8(line(event, error, details).unwrap()).unwrap()
    }

    /// Rules: D-019, D-020, D-021, D-022, D-023, D-024.
    #[test]
    fn a_record_is_one_object_on_one_line_with_two_keys_and_the_event_as_it_was() {
        let event = CloudEvent::from_json(EVENT).unwrap();
        let written = text(&event, "timeout: \"no\"\nanswer", None);
        assert_eq!(written, format!("{{\"event\":{EVENT},\"error\":\"timeout: \\\"no\\\"\\nanswer\"}}\n"));
        assert_eq!(written.matches('\n').count(), 1);
        let object: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(object.as_object().unwrap().keys().collect::<Vec<_>>(), ["error", "event"]);

        let read = read(written.as_bytes()).unwrap();
        assert_eq!((read.event, read.error.as_str()), (event, "timeout: \"no\"\nanswer"));
        assert_eq!(read.details, None);
    }

    /// Rules: D-020.
    #[test]
    fn an_event_that_came_on_many_lines_is_kept_on_one() {
        let pretty = "{\r\n \"id\": \"1\",\n\"source\":\"s\",\"type\":\"t\",\n\"data\": \"a\\nb\"\n}\n";
        let written = text(&CloudEvent::from_json(pretty).unwrap(), "e", None);
        assert_eq!(written.trim_end().lines().count(), 1, "{written}");
        let (kept, came): (Value, Value) =
            (serde_json::from_str(&written).unwrap(), serde_json::from_str(pretty).unwrap());
        assert_eq!(kept["event"], came);
    }

    #[test]
    fn details_are_a_third_key_and_are_read_back() {
        let details = Details::of(&Cause::new("e", ManualClock::new().now()), Some("warehouse"));
        let written = text(&CloudEvent::from_json(EVENT).unwrap(), "e", Some(&details));
        assert!(written.ends_with(concat!(
            r#","error":"e","backstop":{"schema":1,"attempts":1,"first_failed_at":"2030-01-01T00:00:00Z","#,
            r#""last_failed_at":"2030-01-01T00:00:00Z","target":"warehouse"}}"#,
            "\n"
        )));
        assert_eq!(read(written.as_bytes()).unwrap().details, Some(details));
    }

    #[test]
    fn readers_take_any_order_of_keys_blanks_unknown_keys_and_a_missing_newline() {
        for text in [
            format!("{{\"error\": \"e\", \"event\": {EVENT}}}"),
            format!(" {{\"event\":{EVENT},\"error\":\"e\",\"attempts\":[3],\"backstop\":\"mine\"}}\r\n"),
        ] {
            let record = read(text.as_bytes()).unwrap();
            assert_eq!((record.event.as_json(), record.error.as_str()), (EVENT, "e"));
            assert_eq!(record.details, None);
        }
    }

    #[test]
    fn what_is_no_record_is_told_without_quoting_it() {
        for (wrong, why) in [
            (&b""[..], "not a record"),
            (b"{\"event\":{\"id\":\"1\"", "Eof"),
            (b"\xff\xfe", "not UTF-8"),
            (b"{\"error\":\"secret\"}", "not a record"),
            (b"{\"event\":\"secret\",\"error\":\"e\"}", "not a CloudEvent"),
            (b"{\"event\":{\"id\":\"secret\"},\"error\":\"e\"}", "not a CloudEvent"),
            (b"[1]", "not a record"),
        ] {
            let Err(told) = read(wrong) else { panic!("{wrong:?} was read") };
            assert!(told.contains(why) && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let event = CloudEvent::from_json(EVENT).unwrap();
        // Too large by itself, and only with the keys around it.
        for bytes in [MAX_RECORD_BYTES, MAX_RECORD_BYTES - EVENT.len()] {
            let refused = line(&event, &"x".repeat(bytes), None).unwrap_err();
            assert!(matches!(refused, Error::TooLarge { .. }), "{bytes}");
        }
    }
}
