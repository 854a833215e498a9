//! Building events: every rule is checked here, once, and every fault is named.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::Datelike as _;
use serde::Serialize;

use super::{AggregateType, Envelope, Event, GLOBAL, next_id, payload};
use crate::clock::{Clock, SystemClock, Timestamp, to_micros};
use crate::codec::{Codec, Json};

/// How long each part of an event may be: what its column holds, in characters, and the payload in bytes.
pub mod limits {
    /// Characters of an event id.
    pub const EVENT_ID: usize = 36;
    /// Characters of an event type.
    pub const EVENT_TYPE: usize = 128;
    /// Characters of an aggregate type.
    pub const AGGREGATE_TYPE: usize = 64;
    /// Characters of an aggregate id.
    pub const AGGREGATE_ID: usize = 128;
    /// Characters of a tenant id.
    pub const TENANT_ID: usize = 64;
    /// Bytes of a payload: 1 MiB.
    pub const PAYLOAD_BYTES: usize = 1_048_576;
    /// Levels of arrays and objects in a payload: as many as JSON readers accept by default.
    pub const PAYLOAD_DEPTH: usize = 128;
    /// The last year that a moment may be in: the databases and the formats on the wire know no later one.
    pub const LAST_YEAR: i32 = 9999;
}

/// Gathers the parts of an [`Event`]. Nothing is checked until the end, and then everything at once.
///
/// End with [`json`](Self::json), which takes any value that serialises, or give the text with
/// [`payload_json`](Self::payload_json) and [`build`](Self::build).
#[derive(Clone)]
#[must_use = "a builder makes no event until `json` or `build` is called"]
pub struct EventBuilder {
    id: Option<String>,
    event_type: String,
    occurred_at: Option<Timestamp>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    headers: BTreeMap<String, String>,
    payload_json: Option<String>,
    available_at: Option<Timestamp>,
    deliver_after: Option<Delay>,
}

/// A delay as it was given: from outside it may be negative.
#[derive(Clone, Copy)]
enum Delay {
    Ahead(Duration),
    Negative,
}

impl EventBuilder {
    pub(super) fn new(event_type: &str) -> Self {
        Self {
            id: None,
            event_type: event_type.to_owned(),
            occurred_at: None,
            aggregate_type: None,
            aggregate_id: None,
            tenant_id: None,
            headers: BTreeMap::new(),
            payload_json: None,
            available_at: None,
            deliver_after: None,
        }
    }

    /// The id. Defaults to a new [ULID](next_id).
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// When it happened. Defaults to now.
    pub fn occurred_at(mut self, at: Timestamp) -> Self {
        self.occurred_at = Some(at);
        self
    }

    /// What it happened to: the kind of thing and which one.
    pub fn aggregate(self, aggregate_type: impl AggregateType, aggregate_id: impl Into<String>) -> Self {
        self.aggregate_type(aggregate_type).aggregate_id(aggregate_id)
    }

    /// The kind of thing it happened to. Defaults to [`GLOBAL`].
    pub fn aggregate_type(mut self, aggregate_type: impl AggregateType) -> Self {
        self.aggregate_type = Some(aggregate_type.name().to_owned());
        self
    }

    /// Which thing it happened to. Defaults to none.
    pub fn aggregate_id(mut self, aggregate_id: impl Into<String>) -> Self {
        self.aggregate_id = Some(aggregate_id.into());
        self
    }

    /// Whose thing it is. Defaults to none.
    pub fn tenant_id(mut self, tenant_id: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant_id.into());
        self
    }

    /// Adds one header, in place of an earlier one of that name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Adds headers, in place of earlier ones of the same names. Defaults to none.
    pub fn headers<N: Into<String>, V: Into<String>>(
        mut self,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.headers.extend(headers.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// When it may be delivered at the earliest. Defaults to at once.
    pub fn available_at(mut self, at: Timestamp) -> Self {
        self.available_at = Some(at);
        self
    }

    /// How long after it happened it may be delivered. Defaults to at once.
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_after = Some(Delay::Ahead(delay));
        self
    }

    /// [`deliver_after`](Self::deliver_after) for a number that came from outside, where it may be negative.
    pub fn deliver_after_ms(mut self, millis: i64) -> Self {
        let delay = u64::try_from(millis).map(Duration::from_millis);
        self.deliver_after = Some(delay.map_or(Delay::Negative, Delay::Ahead));
        self
    }

    /// The payload as JSON text, which is carried unchanged. Required, unless [`json`](Self::json) gives it.
    pub fn payload_json(mut self, text: impl Into<String>) -> Self {
        self.payload_json = Some(text.into());
        self
    }

    /// Finishes the event with a payload made from a value.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Event, InvalidEvent> {
        match Json.write(value) {
            Ok(text) => self.payload_json(text).build(),
            Err(error) => Err(InvalidEvent::one("payload", format!("cannot be written as JSON ({error})"))),
        }
    }

    /// Finishes the event, or names every fault in it.
    pub fn build(self) -> Result<Event, InvalidEvent> {
        let mut faults = Faults::default();
        let id = self.id.unwrap_or_else(next_id);
        let aggregate_type = self.aggregate_type.unwrap_or_else(|| GLOBAL.to_owned());
        let occurred_at = self.occurred_at.map_or_else(|| SystemClock.now(), to_micros);

        faults.check_name("event_id", &id, limits::EVENT_ID);
        faults.check_name("event_type", &self.event_type, limits::EVENT_TYPE);
        faults.check_name("aggregate_type", &aggregate_type, limits::AGGREGATE_TYPE);
        if let Some(aggregate_id) = &self.aggregate_id {
            faults.check_name("aggregate_id", aggregate_id, limits::AGGREGATE_ID);
        }
        if let Some(tenant_id) = &self.tenant_id {
            faults.check_name("tenant_id", tenant_id, limits::TENANT_ID);
        }
        faults.check_headers(&self.headers);
        faults.check_payload(self.payload_json.as_deref());
        faults.check_year("occurred_at", occurred_at);
        let available_at = faults.check_delivery_time(occurred_at, self.available_at, self.deliver_after);

        match self.payload_json {
            Some(payload_json) if faults.0.is_empty() => Ok(Event(Arc::new(Envelope {
                id,
                event_type: self.event_type,
                occurred_at,
                aggregate_type,
                aggregate_id: self.aggregate_id,
                tenant_id: self.tenant_id,
                headers: self.headers,
                payload_json,
                available_at,
            }))),
            _ => Err(InvalidEvent { faults: faults.0 }),
        }
    }
}

/// Like the event's own: names and sizes, never a payload or a header's value.
impl fmt::Debug for EventBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBuilder")
            .field("event_type", &self.event_type)
            .field("aggregate_type", &self.aggregate_type)
            .field("aggregate_id", &self.aggregate_id)
            .finish_non_exhaustive()
    }
}

/// An event that breaks its rules, with every fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidEvent {
    faults: Vec<Fault>,
}

/// One fault of an event: the field, and the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field, by the name of its column where it has one.
    pub field: &'static str,
    /// The rule, worded to follow the field: "must not be empty".
    pub rule: String,
}

impl InvalidEvent {
    /// Every fault, in the order of the fields.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    pub(super) fn one(field: &'static str, rule: impl Into<String>) -> Self {
        Self { faults: vec![Fault { field, rule: rule.into() }] }
    }
}

impl fmt::Display for InvalidEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> =
            self.faults.iter().map(|Fault { field, rule }| format!("{field} {rule}")).collect();
        write!(f, "invalid event: {}", faults.join("; "))
    }
}

impl std::error::Error for InvalidEvent {}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, field: &'static str, rule: impl Into<String>) {
        self.0.push(Fault { field, rule: rule.into() });
    }

    fn check_name(&mut self, field: &'static str, value: &str, max_chars: usize) {
        let chars = value.chars().count();
        if chars == 0 {
            self.add(field, "must not be empty");
        }
        if chars > max_chars {
            self.add(field, format!("must be at most {max_chars} characters, this one has {chars}"));
        }
        if value.contains('\0') {
            self.add(field, "must not contain the NUL character, which databases cannot store");
        }
    }

    fn check_headers(&mut self, headers: &BTreeMap<String, String>) {
        if headers.contains_key("") {
            self.add("headers", "must not have an empty name");
        }
        if let Some((name, _)) =
            headers.iter().find(|(name, value)| name.contains('\0') || value.contains('\0'))
        {
            let name = name.replace('\0', "␀");
            self.add("headers", format!("must not contain the NUL character (header {name:?})"));
        }
    }

    fn check_payload(&mut self, payload_json: Option<&str>) {
        let Some(text) = payload_json else {
            return self.add("payload", "is required: give it with `json` or `payload_json`");
        };
        if text.len() > limits::PAYLOAD_BYTES {
            // Too large to be worth parsing.
            let rule =
                format!("must be at most {} bytes, this one has {}", limits::PAYLOAD_BYTES, text.len());
            return self.add("payload", rule);
        }
        if let Some(rule) = payload::objection(text) {
            self.add("payload", rule);
        }
    }

    fn check_year(&mut self, field: &'static str, moment: Timestamp) {
        if !(1..=limits::LAST_YEAR).contains(&moment.year()) {
            let last = limits::LAST_YEAR;
            self.add(field, format!("must lie in the years 1 to {last}, which every database can store"));
        }
    }

    /// The one moment that follows from the two ways to delay an event.
    fn check_delivery_time(
        &mut self,
        occurred_at: Timestamp,
        available_at: Option<Timestamp>,
        deliver_after: Option<Delay>,
    ) -> Option<Timestamp> {
        match (available_at.map(to_micros), deliver_after) {
            (None, None) => None,
            (Some(at), None) => {
                if at < occurred_at {
                    self.add("available_at", format!("must not be before occurred_at ({occurred_at})"));
                }
                self.check_year("available_at", at);
                Some(at)
            }
            (None, Some(Delay::Ahead(delay))) if !delay.is_zero() => {
                let at = after(occurred_at, delay);
                if at.is_none_or(|at| at.year() > limits::LAST_YEAR) {
                    self.add("deliver_after", format!("must end by the year {}", limits::LAST_YEAR));
                }
                at
            }
            (None, Some(_)) => {
                self.add("deliver_after", "must be longer than zero");
                None
            }
            (Some(_), Some(_)) => {
                self.add("deliver_after", "must not be set together with available_at: give one of the two");
                None
            }
        }
    }
}

/// `start + delay` in whole microseconds, rounded up so that a delay never vanishes.
fn after(start: Timestamp, delay: Duration) -> Option<Timestamp> {
    let micros = i64::try_from(delay.as_nanos().div_ceil(1000)).ok()?;
    start.checked_add_signed(chrono::TimeDelta::microseconds(micros))
}
