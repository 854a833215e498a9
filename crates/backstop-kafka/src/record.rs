//! Events as records: the binary and structured modes of the CloudEvents binding for Kafka.

use std::borrow::Cow;

use backstop_core::event::cloudevents;
use backstop_core::target::unwritable;
use backstop_core::trace::TraceContext;
use backstop_core::{Event, Failure};
use rdkafka::message::{Header, OwnedHeaders};

use crate::config::Format;

const CONTENT_TYPE: &str = "content-type";

/// A record but for its topic.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) value: Cow<'a, str>,
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Record<'a> {
    pub(crate) fn of(event: &'a Event, source: &'a str, format: Format) -> Result<Self, Failure> {
        let record = match format {
            Format::Binary => binary(event, source),
            Format::Structured => structured(event, source),
        };
        let mut record = record.map_err(|error| unwritable(&error))?;
        // What tracing libraries look for beside the attributes of CloudEvents.
        let trace = TraceContext::of(event);
        let headers = trace.iter().flat_map(TraceContext::headers);
        record.headers.extend(headers.map(|(name, value)| (name.into(), value.to_owned().into())));
        Ok(record)
    }

    /// The headers as librdkafka takes them: it takes ownership.
    pub(crate) fn headers(&self) -> OwnedHeaders {
        let headers = OwnedHeaders::new_with_capacity(self.headers.len());
        self.headers.iter().fold(headers, |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value.as_bytes()) })
        })
    }
}

fn binary<'a>(event: &'a Event, source: &'a str) -> Result<Record<'a>, cloudevents::CloudEventError> {
    let attributes = cloudevents::attributes(event, source)?.into_iter();
    let headers = attributes.map(|(name, value)| match name {
        "datacontenttype" => (CONTENT_TYPE.into(), value),
        name => (format!("ce_{name}").into(), value),
    });
    Ok(Record { key: key(event), value: event.payload_json().into(), headers: headers.collect() })
}

fn structured<'a>(event: &'a Event, source: &'a str) -> Result<Record<'a>, cloudevents::CloudEventError> {
    let value = cloudevents::to_json(event, source)?.into();
    let headers = vec![(CONTENT_TYPE.into(), cloudevents::CONTENT_TYPE.into())];
    Ok(Record { key: key(event), value, headers })
}

/// The aggregate's id. An empty one names nothing, and as a key it would put all such records into one partition.
fn key(event: &Event) -> Option<&str> {
    event.aggregate_id().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use backstop_core::event::Stored;
    use rdkafka::message::Headers as _;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(record: &Record<'_>) -> Vec<(String, String)> {
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        record.headers().iter().map(|header| (header.key.to_owned(), text(header.value))).collect()
    }

    fn placed() -> Event {
        let event = Event::of("OrderPlaced").id("e-1").aggregate("Order", "42");
        let event = event.occurred_at("2030-01-31T12:00:00Z".parse().unwrap());
        let event = event.header("traceparent", TRACE).header("Reply To", "shop");
        event.payload_json(r#"{ "total": 1.10 }"#).build().unwrap()
    }

    #[test]
    fn in_binary_mode_the_payload_is_untouched_and_the_attributes_are_headers() {
        let event = placed();
        let record = Record::of(&event, "/shop", Format::Binary).unwrap();
        assert_eq!((record.key, &*record.value), (Some("42"), r#"{ "total": 1.10 }"#));
        let expected = [
            ("ce_specversion", "1.0"),
            ("ce_id", "e-1"),
            ("ce_source", "/shop"),
            ("ce_type", "OrderPlaced"),
            ("ce_subject", "42"),
            ("ce_time", "2030-01-31T12:00:00Z"),
            ("content-type", "application/json"),
            ("ce_aggregatetype", "Order"),
            ("ce_traceparent", TRACE),
            ("ce_headers", r#"{"Reply To":"shop"}"#),
            ("traceparent", TRACE),
        ];
        assert_eq!(headers(&record), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn in_structured_mode_the_value_is_the_event() {
        let event = placed();
        let record = Record::of(&event, "/shop", Format::Structured).unwrap();
        assert_eq!(record.value, cloudevents::to_json(&event, "/shop").unwrap());
        assert_eq!(record.key, Some("42"), "partitions and compaction go by it");
        let expected = [("content-type", "application/cloudevents+json"), ("traceparent", TRACE)];
        assert_eq!(headers(&record), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_event_about_nothing_in_particular_has_no_key_and_no_subject() {
        let none = Event::of_json("Ping", "{}").unwrap();
        let empty = Event::restore(Stored {
            id: "1".to_owned(),
            event_type: "Ping".to_owned(),
            occurred_at: none.occurred_at(),
            aggregate_type: Some("Order".to_owned()),
            aggregate_id: Some(String::new()),
            tenant_id: None,
            headers: [].into(),
            payload_json: "{}".to_owned(),
            available_at: None,
        });
        for event in [none, empty] {
            let binary = Record::of(&event, "/shop", Format::Binary).unwrap();
            assert_eq!(binary.key, None);
            assert!(headers(&binary).iter().all(|(name, _)| name != "ce_subject"), "{binary:?}");
            let structured = Record::of(&event, "/shop", Format::Structured).unwrap();
            assert_eq!(structured.key, None);
            assert!(!structured.value.contains("subject"), "{structured:?}");
        }
    }
}
