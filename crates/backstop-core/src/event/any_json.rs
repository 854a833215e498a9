//! Events from JSON that others wrote: a CloudEvent is the event that it says it is, and any other JSON is the payload of one.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Event, Stored, cloudevents};
use crate::Timestamp;

/// Reads an event from JSON text. What is not a CloudEvent with JSON data becomes the payload of an event with the id and the
/// moment given, whose type is the text's member `type`, if that is a text, and empty otherwise.
///
/// ```
/// use backstop_core::{Timestamp, event::any_json};
///
/// let event = any_json::read(r#"{"type":"OrderPlaced","total":1.10}"#.to_owned(), "7", Timestamp::UNIX_EPOCH)?;
/// assert_eq!((event.id(), event.event_type()), ("7", "OrderPlaced"));
/// assert_eq!(event.payload_json(), r#"{"type":"OrderPlaced","total":1.10}"#);
/// assert!(any_json::read("no JSON".to_owned(), "7", Timestamp::UNIX_EPOCH).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn read(text: String, id: &str, occurred_at: Timestamp) -> Result<Event, serde_json::Error> {
    if let Ok(received) = cloudevents::from_json(&text) {
        return Ok(received.event);
    }
    let json: &RawValue = serde_json::from_str(&text)?;
    Ok(Event::restore(Stored {
        id: id.to_owned(),
        event_type: type_of(json),
        occurred_at,
        aggregate_type: None,
        aggregate_id: None,
        tenant_id: None,
        headers: BTreeMap::new(),
        payload_json: text,
        available_at: None,
    }))
}

/// The member `type`, if it is a text; else nothing.
fn type_of(json: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
    }
    serde_json::from_str::<Typed>(json.get()).map(|typed| typed.r#type).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Event, serde_json::Error> {
        super::read(text.to_owned(), "7", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_cloud_event_is_the_event_that_went_in() {
        let event = Event::of("OrderPlaced").aggregate("Order", "42").header("a", "b").json(&[1.5]).unwrap();
        assert_eq!(read(&cloudevents::to_json(&event, "/queue/orders").unwrap()).unwrap(), event);
    }

    #[test]
    fn other_json_is_the_payload_and_its_member_type_names_the_type() {
        for (text, event_type) in [
            (r#"{"type":"OrderPlaced","total":1.10}"#, "OrderPlaced"),
            (r#"{"type":7}"#, ""),
            (r#"{"kind":"OrderPlaced"}"#, ""),
            ("[1, 2]", ""),
            (r#""text""#, ""),
            // A CloudEvent whose data is not JSON: the handler gets all of it.
            (r#"{"specversion":"1.0","id":"1","source":"/s","type":"Scan","data_base64":"AAA="}"#, "Scan"),
        ] {
            let event = read(text).unwrap();
            assert_eq!((event.event_type(), event.payload_json(), event.id()), (event_type, text, "7"));
        }
    }

    #[test]
    fn what_is_no_json_is_told_without_its_text() {
        let error = read("secret").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
