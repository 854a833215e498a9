//! A CloudEvent as a sink is given it: its JSON text, and the attributes that tell which one it is.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::Event;
use super::cloudevents::{self, CloudEventError};

/// An event in the JSON format of CloudEvents 1.0, with `id`, `source` and `type` at hand. Cheap to clone.
///
/// The text is carried as it came. Apart from the three attributes nothing in it is checked: an event that another
/// system wrote must be passed on or stored, even where [`Event`]'s rules are stricter.
///
/// ```
/// use backstop_core::{CloudEvent, Event};
///
/// let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
/// let sent = CloudEvent::of(&order, "/outbox/orders")?;
/// assert_eq!((sent.id(), sent.source(), sent.event_type()), (order.id(), "/outbox/orders", "OrderPlaced"));
///
/// let received = CloudEvent::from_json(sent.as_json())?;
/// assert_eq!(received, sent);
/// assert_eq!(received.to_event()?, order);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CloudEvent(Arc<Carried>);

#[derive(PartialEq, Eq)]
struct Carried {
    attributes: Attributes,
    json: String,
}

#[derive(PartialEq, Eq, Deserialize)]
struct Attributes {
    id: String,
    source: String,
    #[serde(rename = "type")]
    event_type: String,
}

impl CloudEvent {
    /// An event of ours, and the source that it is said to come from.
    pub fn of(event: &Event, source: &str) -> Result<Self, CloudEventError> {
        let json = cloudevents::to_json(event, source)?;
        let attributes = Attributes {
            id: event.id().to_owned(),
            source: source.to_owned(),
            event_type: event.event_type().to_owned(),
        };
        Ok(Self(Arc::new(Carried { attributes, json })))
    }

    /// A CloudEvent from its text. Refused if it is not a JSON object, or if `id`, `source` or `type` is not a
    /// string; each may be empty.
    pub fn from_json(text: impl Into<String>) -> Result<Self, CloudEventError> {
        let json = text.into();
        let attributes = serde_json::from_str(&json)?;
        Ok(Self(Arc::new(Carried { attributes, json })))
    }

    /// The id. Unique within its source only.
    pub fn id(&self) -> &str {
        &self.0.attributes.id
    }

    /// The system that it comes from.
    pub fn source(&self) -> &str {
        &self.0.attributes.source
    }

    /// What kind of thing happened.
    pub fn event_type(&self) -> &str {
        &self.0.attributes.event_type
    }

    /// The whole CloudEvent as JSON text.
    pub fn as_json(&self) -> &str {
        &self.0.json
    }

    /// The event in our envelope, whose rules it must keep: see [`cloudevents::from_json`].
    pub fn to_event(&self) -> Result<Event, CloudEventError> {
        Ok(cloudevents::from_json(self.as_json())?.event)
    }
}

/// Shows what an operator may see in a log, never the data.
impl fmt::Debug for CloudEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudEvent")
            .field("id", &self.id())
            .field("source", &self.source())
            .field("type", &self.event_type())
            .field("json", &format_args!("{} bytes", self.as_json().len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_carried_as_it_came_however_odd() {
        let text = "{ \"type\":\"t\",\n \"data\":{\"n\":1.10,\"n\":2}, \"id\":\"\", \"specversion\":\"7\", \"source\":\"s\" }";
        let event = CloudEvent::from_json(text).unwrap();
        assert_eq!((event.id(), event.source(), event.event_type()), ("", "s", "t"));
        assert_eq!(event.as_json(), text);
        assert!(event.to_event().is_err(), "the envelope's rules are stricter");
    }

    #[test]
    fn what_cannot_be_told_apart_from_others_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"id":"1","source":"s"}"#,
            r#"{"id":1,"source":"s","type":"t"}"#,
            r#"{"id":"1","source":"s","type":"t""#,
            r#"{"id":"1","source":"s","type":"t"} x"#,
        ] {
            assert!(CloudEvent::from_json(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_never_shows_the_data() {
        let event =
            CloudEvent::from_json(r#"{"id":"1","source":"s","type":"t","data":"4111-1111"}"#).unwrap();
        assert_eq!(format!("{event:?}"), r#"CloudEvent { id: "1", source: "s", type: "t", json: 53 bytes }"#);
    }
}
