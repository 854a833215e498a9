//! The event: an immutable envelope around a payload that is JSON text and stays text.

pub mod any_json;
mod builder;
mod cloud_event;
pub mod cloudevents;
mod id;
mod payload;
mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::Timestamp;
use crate::codec::{Codec, CodecError, Json};
use crate::trace::{self, TraceContext};

pub use builder::{EventBuilder, Fault, InvalidEvent, limits};
pub use cloud_event::CloudEvent;
pub use id::next_id;
pub use types::{AggregateType, EventType, GLOBAL};

/// Something that happened, to be told to others.
///
/// Made with [`Event::of`], immutable from then on, and cheap to clone. The payload is carried as the
/// text it came in, never through a parsed value, so numbers, key order and duplicate keys survive.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::Event;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order { total: u32 }
///
/// let event = Event::of("OrderPlaced")
///     .aggregate("Order", "42")
///     .tenant_id("acme")
///     .header("source", "checkout")
///     .deliver_after(Duration::from_secs(60))
///     .json(&Order { total: 99 })?;
///
/// assert_eq!(event.payload_json(), r#"{"total":99}"#);
/// assert_eq!(event.payload::<Order>()?.total, 99);
/// assert!(event.is_delayed());
///
/// let refused = Event::of("").json(&()).unwrap_err();
/// assert_eq!(refused.to_string(), "invalid event: event_type must not be empty");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Nothing changes an event once it is built:
///
/// ```compile_fail,E0596
/// # // Rules: O-155.
/// let event = backstop_core::Event::of_json("OrderPlaced", "{}").unwrap();
/// event.headers().insert("late".into(), "change".into());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Event(Arc<Envelope>);

#[derive(Clone, PartialEq, Eq)]
struct Envelope {
    id: String,
    event_type: String,
    occurred_at: Timestamp,
    aggregate_type: String,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    headers: BTreeMap<String, String>,
    payload_json: String,
    available_at: Option<Timestamp>,
}

/// The parts of an event as a store kept them, for [`Event::restore`].
#[derive(Clone)]
#[expect(missing_docs, reason = "each is the event's field of that name")]
pub struct Stored {
    pub id: String,
    pub event_type: String,
    pub occurred_at: Timestamp,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub tenant_id: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub payload_json: String,
    pub available_at: Option<Timestamp>,
}

impl Event {
    /// Starts an event of the given type: a string, or a value of an enum that is an [`EventType`].
    pub fn of(event_type: impl EventType) -> EventBuilder {
        EventBuilder::new(event_type.name())
    }

    /// The short form: an event from its type and the JSON text of its payload.
    pub fn of_json(
        event_type: impl EventType,
        payload_json: impl Into<String>,
    ) -> Result<Self, InvalidEvent> {
        Self::of(event_type).payload_json(payload_json).build()
    }

    /// An event as a store kept it. Nothing is checked again: a row in a table must be delivered or shown, even if it
    /// was written by other rules than ours.
    pub fn restore(stored: Stored) -> Self {
        Self(Arc::new(Envelope {
            id: stored.id,
            event_type: stored.event_type,
            aggregate_type: stored.aggregate_type.unwrap_or_else(|| GLOBAL.to_owned()),
            aggregate_id: stored.aggregate_id,
            tenant_id: stored.tenant_id,
            headers: stored.headers,
            payload_json: stored.payload_json,
            available_at: stored.available_at.filter(|at| *at > stored.occurred_at),
            occurred_at: stored.occurred_at,
        }))
    }

    /// The same event within a trace, unless it names one itself.
    pub fn in_trace(self, trace: &TraceContext) -> Self {
        if self.header(trace::TRACEPARENT).is_some() {
            return self;
        }
        let mut envelope = Arc::unwrap_or_clone(self.0);
        // Without its trace it means nothing, and must not be taken for a part of this one.
        envelope.headers.remove(trace::TRACESTATE);
        envelope.headers.extend(trace.headers().map(|(name, value)| (name.to_owned(), value.to_owned())));
        Self(Arc::new(envelope))
    }

    /// The id: unique, and the key by which consumers remove duplicates.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// What kind of thing happened.
    pub fn event_type(&self) -> &str {
        &self.0.event_type
    }

    /// When it happened.
    pub fn occurred_at(&self) -> Timestamp {
        self.0.occurred_at
    }

    /// The kind of thing it happened to; [`GLOBAL`] if none was named.
    pub fn aggregate_type(&self) -> &str {
        &self.0.aggregate_type
    }

    /// Which thing it happened to.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.0.aggregate_id.as_deref()
    }

    /// Whose thing it is, in an application of many tenants. Passed on, never acted upon.
    pub fn tenant_id(&self) -> Option<&str> {
        self.0.tenant_id.as_deref()
    }

    /// Further facts by name.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.0.headers
    }

    /// The header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers.get(name).map(String::as_str)
    }

    /// The payload as it was given.
    pub fn payload_json(&self) -> &str {
        &self.0.payload_json
    }

    /// Reads the payload as a value of type `T`.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        self.payload_with(&Json)
    }

    /// Reads the payload with your own codec.
    pub fn payload_with<T: DeserializeOwned>(&self, codec: &impl Codec) -> Result<T, PayloadError> {
        codec.read(self.payload_json()).map_err(|source| PayloadError {
            event_type: self.event_type().to_owned(),
            wanted: std::any::type_name::<T>(),
            source,
        })
    }

    /// When it may be delivered at the earliest; `None` means at once.
    pub fn available_at(&self) -> Option<Timestamp> {
        self.0.available_at
    }

    /// Whether its delivery is set to a later time than the one at which it happened.
    pub fn is_delayed(&self) -> bool {
        self.available_at().is_some_and(|at| at > self.occurred_at())
    }
}

/// Shows everything an operator may see in a log: names and sizes, never a payload or a header's value.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id())
            .field("event_type", &self.event_type())
            .field("aggregate_type", &self.aggregate_type())
            .field("aggregate_id", &self.aggregate_id())
            .field("tenant_id", &self.tenant_id())
            .field("occurred_at", &self.occurred_at())
            .field("available_at", &self.available_at())
            .field("headers", &self.headers().keys().collect::<Vec<_>>())
            .field("payload", &format_args!("{} bytes", self.payload_json().len()))
            .finish()
    }
}

/// A payload that does not have the shape that its reader expects. Trying again cannot help.
#[derive(Debug, thiserror::Error)]
#[error("the payload of {event_type} cannot be read as {wanted}")]
pub struct PayloadError {
    event_type: String,
    wanted: &'static str,
    source: CodecError,
}
