//! Events as HTTP messages: the structured, binary and batched modes of the CloudEvents HTTP binding.

use std::fmt::Write as _;

use backstop_core::event::cloudevents;
use backstop_core::target::unwritable;
use backstop_core::trace::TraceContext;
use backstop_core::{CloudEvent, Event, Failure};
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use crate::signature::message_id;

const BATCH: HeaderValue = HeaderValue::from_static("application/cloudevents-batch+json");
const STRUCTURED: HeaderValue = HeaderValue::from_static(cloudevents::CONTENT_TYPE);
const DATA: HeaderValue = HeaderValue::from_static("application/json");

/// Room for the headers of most requests, those included that are added when they are sent: a map that grows is made anew.
const HEADERS: usize = 12;

/// A message that is ready but for its signature.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// The value of `webhook-id`.
    pub(crate) id: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One event with all its attributes in the body.
pub(crate) fn structured(event: &Event, source: &str) -> Result<Message, Failure> {
    let mut headers = trace(event);
    headers.insert(CONTENT_TYPE, STRUCTURED);
    let body = json(event, source)?.into();
    Ok(Message { id: message_id(source, [event.id()]), headers, body })
}

/// One event that is a CloudEvent already: its text, as it is.
pub(crate) fn carried(event: &CloudEvent) -> Message {
    let mut headers = event.to_event().map(|event| trace(&event)).unwrap_or_default();
    headers.insert(CONTENT_TYPE, STRUCTURED);
    let body = Bytes::copy_from_slice(event.as_json().as_bytes());
    Message { id: message_id(event.source(), [event.id()]), headers, body }
}

/// One event with its attributes as headers, and its payload as the body.
pub(crate) fn binary(event: &Event, source: &str) -> Result<Message, Failure> {
    let mut headers = trace(event);
    for (name, value) in cloudevents::attributes(event, source).map_err(|error| unwritable(&error))? {
        if name == "datacontenttype" {
            headers.insert(CONTENT_TYPE, DATA);
            continue;
        }
        let name = HeaderName::try_from(format!("ce-{name}")).map_err(|error| unwritable(&error))?;
        let value = HeaderValue::try_from(percent_encoded(&value)).map_err(|error| unwritable(&error))?;
        headers.insert(name, value);
    }
    let body = Bytes::copy_from_slice(event.payload_json().as_bytes());
    Ok(Message { id: message_id(source, [event.id()]), headers, body })
}

/// Several events, each given by its id and its text in the JSON format.
pub(crate) fn batched<'a>(events: impl Iterator<Item = (&'a str, &'a str)>, source: &str) -> Message {
    let (ids, texts): (Vec<_>, Vec<_>) = events.unzip();
    let mut headers = HeaderMap::with_capacity(HEADERS);
    headers.insert(CONTENT_TYPE, BATCH);
    Message { id: message_id(source, ids), headers, body: format!("[{}]", texts.join(",")).into() }
}

/// One event in the JSON format, as part of a batch.
pub(crate) fn json(event: &Event, source: &str) -> Result<String, Failure> {
    cloudevents::to_json(event, source).map_err(|error| unwritable(&error))
}

/// Percent-encodes what the binding asks for: the space, `"`, `%`, and all that is not printable ASCII.
/// What is left can neither end a header nor begin another.
fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && byte != b'"' && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The trace of an event as the headers that every tracing library reads.
fn trace(event: &Event) -> HeaderMap {
    let trace = TraceContext::of(event);
    let headers = trace.iter().flat_map(TraceContext::headers);
    let valued = headers.filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    });
    let mut headers = HeaderMap::with_capacity(HEADERS);
    headers.extend(valued);
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_header_cannot_hold_is_percent_encoded_and_nothing_else() {
        assert_eq!(percent_encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(percent_encoded("100% \"sure\"\r\nX: y\u{7f}"), "100%25%20%22sure%22%0D%0AX:%20y%7F");
        let plain = "!#$&'()*+,-./0:;<=>?@A[\\]^_`a{|}~";
        assert_eq!(percent_encoded(plain), plain);
    }

    #[test]
    fn a_trace_parent_travels_only_if_it_is_one() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let bad = format!("{good}\r\nx: y");
        let hostile = Event::of("E").header("traceparent", bad).json(&()).unwrap();
        assert!(trace(&hostile).is_empty());
        let event = |state: &str| {
            Event::of("E").header("traceparent", good).header("tracestate", state).json(&()).unwrap()
        };
        assert_eq!(trace(&event("a=1,b=2")).len(), 2);
        assert_eq!(trace(&event("a=1\r\nx: y")).len(), 1);
        assert_eq!(trace(&event("ä=1")).len(), 1);
    }
}
