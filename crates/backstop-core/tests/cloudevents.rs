//! CloudEvents in and out, with the CloudEvents SDK as the reader that did not write them.

use std::time::Duration;

use backstop_core::Event;
use backstop_core::event::Stored;
use backstop_core::event::cloudevents::{CloudEventError, from_json, to_json};
use cloudevents::{AttributesReader, Data};
use proptest::prelude::*;

fn order() -> Event {
    Event::of("OrderPlaced")
        .id("evt-1")
        .aggregate("Order", "42")
        .tenant_id("acme")
        .occurred_at("2030-06-01T12:00:00.000123Z".parse().unwrap())
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("X-Request-Id", "r-7")
        .header("source", "not the CloudEvents one")
        .payload_json(r#"{"total":1.10,"total":2}"#)
        .build()
        .unwrap()
}

#[test]
fn the_sdk_reads_what_we_write() {
    let text = to_json(&order(), "/outbox/orders").unwrap();
    let read: cloudevents::Event = serde_json::from_str(&text).unwrap();
    assert_eq!((read.id(), read.ty(), read.source().as_str()), ("evt-1", "OrderPlaced", "/outbox/orders"));
    assert_eq!(read.subject(), Some("42"));
    assert_eq!(read.time().unwrap().to_rfc3339(), "2030-06-01T12:00:00.000123+00:00");
    assert_eq!(read.datacontenttype(), Some("application/json"));
    let extension = |name: &str| read.extension(name).map(ToString::to_string);
    assert_eq!(extension("aggregatetype").as_deref(), Some("Order"));
    assert_eq!(extension("tenantid").as_deref(), Some("acme"));
    assert!(extension("traceparent").unwrap().starts_with("00-0af765"));
    let others = extension("headers").unwrap();
    assert_eq!(others, r#"{"X-Request-Id":"r-7","source":"not the CloudEvents one"}"#);
    assert!(matches!(read.data(), Some(Data::Json(value)) if value["total"] == 2));
}

#[test]
fn the_payload_stays_the_text_it_was() {
    let text = to_json(&order(), "/outbox/orders").unwrap();
    assert!(text.contains(r#""data":{"total":1.10,"total":2}"#), "{text}");
    let received = from_json(&text).unwrap();
    assert_eq!(received.event, order());
    assert_eq!(received.source, "/outbox/orders");
}

#[test]
fn what_is_empty_and_must_not_be_is_absent() {
    let event = Event::restore(Stored {
        id: "1".to_owned(),
        event_type: "OrderPlaced".to_owned(),
        occurred_at: order().occurred_at(),
        aggregate_type: Some("Order".to_owned()),
        aggregate_id: Some(String::new()),
        tenant_id: Some(String::new()),
        headers: [("dataschema".to_owned(), String::new())].into(),
        payload_json: "{}".to_owned(),
        available_at: None,
    });
    let text = to_json(&event, "/outbox/orders").unwrap();
    let read: cloudevents::Event = serde_json::from_str(&text).unwrap();
    assert_eq!((read.subject(), read.dataschema()), (None, None));
    assert!(!text.contains("subject"), "{text}");
    let received = from_json(&text).unwrap().event;
    assert_eq!((received.aggregate_type(), received.aggregate_id()), ("Order", None));
    assert_eq!(received.header("dataschema"), Some(""), "a header is kept");

    let empty = r#"{"specversion":"1.0","id":"1","source":"/s","type":"T","subject":"","tenantid":""}"#;
    let received = from_json(empty).unwrap().event;
    assert_eq!((received.aggregate_id(), received.tenant_id()), (None, None));
}

#[test]
fn a_header_without_a_value_is_not_taken_in() {
    let text =
        r#"{"specversion":"1.0","id":"1","source":"/s","type":"T","headers":"{\"A\":null,\"B\":\"2\"}"}"#;
    let received = from_json(text).unwrap().event;
    assert_eq!((received.header("A"), received.header("B")), (None, Some("2")));
    let wrong = text.replace("null", "7");
    assert!(matches!(from_json(&wrong), Err(CloudEventError::Attribute { name, .. }) if name == "headers"));
}

#[test]
fn an_event_of_the_least_attributes_is_taken_in() {
    let received = from_json(r#"{"specversion":"1.0","id":"1","source":"/s","type":"T"}"#).unwrap();
    assert_eq!((received.event.payload_json(), received.event.aggregate_type()), ("null", "__GLOBAL__"));
    let more = r#"{"data":{"a":1e400000},"specversion":"1.0","id":"1","source":"/s","type":"T","subject":null,
        "datacontenttype":"application/vnd.x+json; charset=utf-8","sampled":true,"sequence":7,"dataschema":"/x"}"#;
    let received = from_json(more).unwrap().event;
    assert_eq!((received.header("sampled"), received.header("sequence")), (Some("true"), Some("7")));
    assert_eq!((received.aggregate_id(), received.header("dataschema")), (None, Some("/x")));
    assert_eq!(received.payload_json(), r#"{"a":1e400000}"#);
}

#[test]
fn what_cannot_be_taken_in_is_refused_with_the_attribute() {
    let with = |extra: &str| format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"T"{extra}}}"#);
    for (text, reason) in [
        ("[]".to_owned(), "CloudEvent object"),
        ("{".to_owned(), "not a CloudEvent"),
        (r#"{"specversion":"0.3","id":"1","source":"/s","type":"T"}"#.to_owned(), "specversion must be 1.0"),
        (r#"{"specversion":"1.0","source":"/s","type":"T"}"#.to_owned(), "id is required"),
        (r#"{"specversion":"1.0","id":"1","source":"","type":"T"}"#.to_owned(), "source is required"),
        (r#"{"specversion":"1.0","id":"1","source":"/s"}"#.to_owned(), "type is required"),
        (with(r#","time":"yesterday""#), "time must be a time in RFC 3339 form"),
        (with(r#","headers":"[1]""#), "headers must be the JSON text"),
        (with(r#","a":{"b":1}"#), "attribute a must not be an array or object"),
        (with(r#","id":"2""#), "attribute id appears twice"),
        (with(r#","data":"\u0000""#), "payload must not contain"),
        (with(&format!(r#","subject":"{}""#, "x".repeat(129))), "aggregate_id must be at most 128"),
    ] {
        let error = from_json(&text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    for text in [with(r#","datacontenttype":"text/xml","data":"<a/>""#), with(r#","data_base64":"AAEC""#)] {
        assert!(matches!(from_json(&text), Err(CloudEventError::NotJson { .. })), "{text}");
    }
    assert!(to_json(&order(), "").is_err());
}

#[cfg(feature = "cloudevents")]
#[test]
fn events_pass_through_the_sdks_types() {
    use backstop_core::event::cloudevents::{from_sdk, to_sdk};
    let plain = Event::of("T").aggregate("Order", "1").header("Odd-Name", "1").json(&[1, 2]).unwrap();
    let sdk = to_sdk(&plain, "/s").unwrap();
    assert_eq!(sdk.subject(), Some("1"));
    assert_eq!(from_sdk(&sdk).unwrap().event, plain);
}

proptest! {
    #[test]
    fn every_event_comes_back_as_it_went(
        id in "[a-zA-Z0-9-]{1,36}",
        event_type in "[^\\x00]{1,128}",
        aggregate in proptest::option::of(("[^\\x00]{1,64}", "[^\\x00]{1,128}")),
        tenant in proptest::option::of("[^\\x00]{1,64}"),
        headers in proptest::collection::btree_map("[a-z0-9]{1,22}|[^\\x00]{1,8}", "[^\\x00]{0,12}", 0..6),
        number in any::<f64>().prop_filter("JSON has no infinities", |it| it.is_finite()),
        micros in 0_i64..4_000_000_000_000_000,
    ) {
        let at = chrono::DateTime::from_timestamp_micros(micros).unwrap();
        let mut builder = Event::of(event_type).id(id).headers(headers).occurred_at(at);
        if let Some((kind, which)) = aggregate {
            builder = builder.aggregate(kind, which);
        }
        if let Some(tenant) = tenant {
            builder = builder.tenant_id(tenant);
        }
        let event = builder.payload_json(format!(r#"{{"n": {number:e}, "n":[] }}"#)).build().unwrap();
        let received = from_json(&to_json(&event, "/outbox/test").unwrap()).unwrap();
        prop_assert_eq!(received.event, event);
    }
}

#[test]
fn a_delayed_event_leaves_its_delay_behind() {
    let delayed = Event::of("T").deliver_after(Duration::from_secs(60)).json(&()).unwrap();
    let received = from_json(&to_json(&delayed, "/s").unwrap()).unwrap().event;
    assert!(!received.is_delayed());
}
