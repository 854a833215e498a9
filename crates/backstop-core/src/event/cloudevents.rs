//! CloudEvents 1.0 in and out, in the JSON format, with the payload kept as text both ways.
//!
//! | CloudEvents | event |
//! |---|---|
//! | `id`, `type`, `time` | id, event type, occurred at |
//! | `subject` | aggregate id; left out if that is empty, since a `subject` must not be |
//! | `source` | given by the sender; handed to the receiver |
//! | `aggregatetype`, `tenantid` | aggregate type (absent for [`GLOBAL`]), tenant id |
//! | other extensions, `dataschema` | headers of the same name |
//! | `headers` | JSON text of the headers whose names or values no extension can carry |
//! | `data` | payload; must be JSON |
//!
//! [`available_at`](Event::available_at) does not travel: it is meant for the outbox, and has passed by the time an
//! event leaves it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use chrono::SecondsFormat;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Event, EventBuilder, GLOBAL, InvalidEvent};
use crate::Timestamp;
use crate::codec::{Codec, Json};

/// The content type of one event in the JSON format.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

/// An event that came from elsewhere, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The event.
    pub event: Event,
    /// Its `source`, which names the system that sent it.
    pub source: String,
}

/// Why a text cannot be read as a CloudEvent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloudEventError {
    /// The text is not JSON, or a part of it has the wrong shape.
    #[error("not a CloudEvent in the JSON format: {0}")]
    Malformed(#[from] serde_json::Error),
    /// An attribute breaks a rule of the CloudEvents specification.
    #[error("CloudEvents attribute {name} {rule}")]
    Attribute {
        /// The attribute.
        name: String,
        /// The rule, worded to follow the name.
        rule: &'static str,
    },
    /// The data is not JSON. Over HTTP this is status 415.
    #[error("data must be JSON (datacontenttype application/json or …+json), not {content_type}")]
    NotJson {
        /// What the data says it is.
        content_type: String,
    },
    /// The attributes do not make a valid event.
    #[error(transparent)]
    Event(#[from] InvalidEvent),
}

/// Writes an event in the JSON format.
///
/// ```
/// use backstop_core::{Event, event::cloudevents};
///
/// let event = Event::of("OrderPlaced").aggregate("Order", "42").json(&[1, 2])?;
/// let text = cloudevents::to_json(&event, "/outbox/orders")?;
/// assert!(text.contains(r#""subject":"42""#) && text.ends_with(r#""data":[1,2]}"#));
///
/// let received = cloudevents::from_json(&text)?;
/// assert_eq!((received.event, received.source.as_str()), (event, "/outbox/orders"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_json(event: &Event, source: &str) -> Result<String, CloudEventError> {
    let attributes = attributes(event, source)?;
    let payload_json = event.payload_json();
    let attributes_bytes: usize =
        attributes.iter().map(|(name, value)| name.len() + value.len() + QUOTES).sum();
    let mut text = Vec::with_capacity(attributes_bytes + payload_json.len() + r#"{"data":}"#.len());
    serde_json::to_writer(&mut text, &Outgoing { attributes, payload_json })?;
    String::from_utf8(text).map_err(|error| <serde_json::Error as serde::ser::Error>::custom(error).into())
}

/// What an attribute has around its name and its value.
const QUOTES: usize = r#""":"","#.len();

/// The attributes of an event as text, without its data: what a binding writes as headers.
///
/// ```
/// use backstop_core::{Event, event::cloudevents};
///
/// let event = Event::of("OrderPlaced").aggregate("Order", "42").json(&[1, 2])?;
/// let attributes = cloudevents::attributes(&event, "/outbox/orders")?;
/// assert!(attributes.contains(&("subject", "42".into())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attributes<'a>(
    event: &'a Event,
    source: &'a str,
) -> Result<Vec<(&'a str, Cow<'a, str>)>, CloudEventError> {
    if source.is_empty() {
        return Err(attribute("source", "must not be empty"));
    }
    let time = event.occurred_at().to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let (extensions, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        event.headers().iter().partition(|(name, value)| fits_an_extension(name, value));
    let others = if others.is_empty() { None } else { Some(serde_json::to_string(&others)?) };
    let aggregate_type = Some(event.aggregate_type()).filter(|name| *name != GLOBAL);

    let own = [
        ("specversion", Some("1.0".into())),
        ("id", Some(event.id().into())),
        ("source", Some(source.into())),
        ("type", Some(event.event_type().into())),
        ("subject", event.aggregate_id().filter(|id| !id.is_empty()).map(Cow::from)),
        ("time", Some(time.into())),
        ("datacontenttype", Some("application/json".into())),
        ("aggregatetype", aggregate_type.map(Cow::from)),
        ("tenantid", event.tenant_id().map(Cow::from)),
    ];
    let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let extensions = extensions.into_iter().map(|(name, value)| (name.as_str(), Cow::from(value)));
    Ok(own.chain(extensions).chain(others.map(|text| ("headers", text.into()))).collect())
}

struct Outgoing<'a> {
    attributes: Vec<(&'a str, Cow<'a, str>)>,
    payload_json: &'a str,
}

impl Serialize for Outgoing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        let data: &RawValue = serde_json::from_str(self.payload_json).map_err(S::Error::custom)?;
        map.serialize_entry("data", data)?;
        map.end()
    }
}

/// Reads an event in the JSON format.
///
/// These are refused with the reason: another `specversion`, a missing `id`, `source` or `type`, data that is not
/// JSON, and anything else that does not make a valid event. Without `time` it happened now; without `data` the
/// payload is `null`. An empty `subject`, `aggregatetype` or `tenantid` counts as absent.
pub fn from_json(text: &str) -> Result<Received, CloudEventError> {
    let Attributes { mut texts, data } = serde_json::from_str(text)?;

    match texts.remove("specversion").as_deref() {
        Some("1.0") => {}
        _ => return Err(attribute("specversion", "must be 1.0")),
    }
    if let Some(content_type) = texts.remove("datacontenttype").filter(|it| !is_json(it)) {
        return Err(CloudEventError::NotJson { content_type });
    }
    if texts.contains_key("data_base64") {
        return Err(CloudEventError::NotJson { content_type: "binary (data_base64)".to_owned() });
    }

    let mut required =
        |name| texts.remove(name).filter(|it| !it.is_empty()).ok_or_else(|| attribute(name, "is required"));
    let (id, source, event_type) = (required("id")?, required("source")?, required("type")?);

    let mut builder =
        Event::of(event_type).id(id).payload_json(data.as_deref().map_or("null", RawValue::get));
    if let Some(time) = texts.remove("time") {
        builder = builder.occurred_at(parse_time(&time)?);
    }
    builder = with(builder, texts.remove("aggregatetype"), EventBuilder::aggregate_type);
    builder = with(builder, texts.remove("subject"), EventBuilder::aggregate_id);
    builder = with(builder, texts.remove("tenantid"), EventBuilder::tenant_id);

    let others = Json
        .parse_string_map(texts.remove("headers").as_deref())
        .map_err(|_| attribute("headers", "must be the JSON text of a map of strings"))?;
    let event = builder.headers(texts).headers(others).build()?;
    Ok(Received { event, source })
}

/// Sets what has a name; an empty one names nothing.
fn with(
    builder: EventBuilder,
    value: Option<String>,
    set: impl Fn(EventBuilder, String) -> EventBuilder,
) -> EventBuilder {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => set(builder, value),
        None => builder,
    }
}

fn parse_time(text: &str) -> Result<Timestamp, CloudEventError> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        .map_err(|_| attribute("time", "must be a time in RFC 3339 form, like 2030-01-31T12:00:00Z"))?;
    Ok(time.to_utc())
}

fn attribute(name: &str, rule: &'static str) -> CloudEventError {
    CloudEventError::Attribute { name: name.to_owned(), rule }
}

/// Whether a content type means JSON, whatever parameters follow it.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// Names that CloudEvents or this mapping has taken.
const RESERVED: [&str; 12] = [
    "id",
    "source",
    "type",
    "specversion",
    "subject",
    "time",
    "datacontenttype",
    "data",
    "data_base64",
    "aggregatetype",
    "tenantid",
    "headers",
];

/// Whether a header can travel as an extension attribute: a short name of lower-case letters and
/// digits that is not taken, and a value without control characters. `dataschema` is an attribute, and never empty.
fn fits_an_extension(name: &str, value: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    plain
        && (1..=20).contains(&name.len())
        && !RESERVED.contains(&name)
        && (name != "dataschema" || !value.is_empty())
        && !value.chars().any(char::is_control)
}

/// A CloudEvent as it stands in the text: attributes as strings, data untouched.
struct Attributes {
    texts: BTreeMap<String, String>,
    data: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributesVisitor)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CloudEvent object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes { texts: BTreeMap::new(), data: None };
        while let Some(name) = map.next_key::<String>()? {
            if name == "data" {
                attributes.data = Some(map.next_value()?);
                continue;
            }
            let text = match map.next_value()? {
                Value::String(text) => text,
                Value::Bool(flag) => flag.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Null => continue, // the same as absent
                Value::Array(_) | Value::Object(_) => {
                    return Err(A::Error::custom(format_args!(
                        "attribute {name} must not be an array or object"
                    )));
                }
            };
            if attributes.texts.insert(name.clone(), text).is_some() {
                return Err(A::Error::custom(format_args!("attribute {name} appears twice")));
            }
        }
        Ok(attributes)
    }
}

/// The event in the types of `cloudevents-sdk`, for code that speaks them. Its data passes through a
/// parsed value there; [`to_json`] keeps the text.
#[cfg(feature = "cloudevents")]
pub fn to_sdk(event: &Event, source: &str) -> Result<cloudevents::Event, CloudEventError> {
    Ok(serde_json::from_str(&to_json(event, source)?)?)
}

/// An event from the types of `cloudevents-sdk`.
#[cfg(feature = "cloudevents")]
pub fn from_sdk(event: &cloudevents::Event) -> Result<Received, CloudEventError> {
    from_json(&serde_json::to_string(event)?)
}
