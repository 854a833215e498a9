//! What is sent, read back by the CloudEvents SDK.

use backstop_core::event::Stored;
use backstop_core::{Event, Handler as _};
use cloudevents::binding::http::to_event;
use cloudevents::{AttributesReader as _, Data};

use crate::receiver::{Arrived, Receiver, order, sent};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn traced() -> Event {
    Event::of("OrderPlaced")
        .id("evt-2")
        .aggregate("Order", "42")
        .tenant_id("acme")
        .occurred_at("2030-06-01T12:00:00.000123Z".parse().unwrap())
        .header("traceparent", TRACE)
        .header("tracestate", "shop=1")
        .header("X-Request-Id", "r-7")
        .payload_json(r#"{"total":1.10,"total":2}"#)
        .build()
        .unwrap()
}

fn check(arrived: &Arrived) {
    let read = to_event(&arrived.headers, arrived.body.clone()).unwrap();
    assert_eq!((read.id(), read.ty(), read.source().as_str()), ("evt-2", "OrderPlaced", "/shop"));
    assert_eq!((read.subject(), read.datacontenttype()), (Some("42"), Some("application/json")));
    assert_eq!(read.time().unwrap().to_rfc3339(), "2030-06-01T12:00:00.000123+00:00");
    let extension = |name: &str| read.extension(name).map(ToString::to_string);
    assert_eq!(extension("aggregatetype").as_deref(), Some("Order"));
    assert_eq!(extension("tenantid").as_deref(), Some("acme"));
    assert_eq!(extension("traceparent").as_deref(), Some(TRACE));
    let data = match read.data().unwrap() {
        Data::Json(value) => value.clone(),
        Data::Binary(bytes) => serde_json::from_slice(bytes).unwrap(),
        Data::String(text) => serde_json::from_str(text).unwrap(),
    };
    assert_eq!(data["total"], 2);
}

#[tokio::test]
async fn structured_is_one_json_object_that_the_sdk_reads() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().source("/shop").structured().build().unwrap();
    webhook.handle(traced()).await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.header("content-type"), Some("application/cloudevents+json"));
    assert!(
        arrived.text().contains(r#""data":{"total":1.10,"total":2}"#),
        "the payload stays the text it was"
    );
    check(&arrived);
}

#[tokio::test]
async fn binary_is_the_payload_with_attributes_as_headers_that_the_sdk_reads() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().source("/shop").binary().build().unwrap();
    webhook.handle(traced()).await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.header("content-type"), Some("application/json"));
    assert_eq!(arrived.text(), r#"{"total":1.10,"total":2}"#);
    assert_eq!(arrived.header("ce-specversion"), Some("1.0"));
    assert_eq!(arrived.header("ce-time"), Some("2030-06-01T12:00:00.000123Z"));
    assert_eq!(arrived.header("ce-datacontenttype"), None);
    assert_eq!(arrived.header("ce-headers"), Some("{%22X-Request-Id%22:%22r-7%22}"));
    check(&arrived);
}

#[tokio::test]
async fn an_empty_aggregate_id_is_no_subject_in_any_format() {
    let receiver = Receiver::new().await;
    let formats = [
        receiver.webhook().structured(),
        receiver.webhook().binary(),
        receiver.webhook().batched(1, std::time::Duration::ZERO),
    ];
    for webhook in formats {
        let event = Event::restore(Stored {
            id: "evt-3".to_owned(),
            event_type: "OrderPlaced".to_owned(),
            occurred_at: traced().occurred_at(),
            aggregate_type: Some("Order".to_owned()),
            aggregate_id: Some(String::new()),
            tenant_id: None,
            headers: [].into(),
            payload_json: "{}".to_owned(),
            available_at: None,
        });
        webhook.build().unwrap().handle(event).await.unwrap();
    }
    let arrived = receiver.arrived();
    assert_eq!(arrived.len(), 3);
    for request in &arrived {
        assert_eq!(request.header("ce-subject"), None);
        assert!(!request.text().contains("subject"), "{}", request.text());
    }
}

#[tokio::test]
async fn a_trace_goes_on_as_headers_too() {
    let receiver = Receiver::new().await;
    for webhook in [receiver.webhook().structured(), receiver.webhook().binary()] {
        webhook.build().unwrap().handle(traced()).await.unwrap();
    }
    let untraced = receiver.webhook().build().unwrap();
    untraced.handle(order()).await.unwrap();
    let odd = Event::of("E").header("traceparent", "no trace\r\nat-all: 1").json(&()).unwrap();
    untraced.handle(odd).await.unwrap();
    let arrived = receiver.arrived();
    for arrived in &arrived[..2] {
        assert_eq!(
            (arrived.header("traceparent"), arrived.header("tracestate")),
            (Some(TRACE), Some("shop=1"))
        );
    }
    assert!(arrived[2..].iter().all(|arrived| arrived.header("traceparent").is_none()));
}

#[tokio::test]
async fn every_request_has_what_was_asked_for_and_goes_where_it_should() {
    let receiver = Receiver::new().await;
    let url = format!("{}/T0KEN?a=1&b=2#part", receiver.url());
    let webhook = crate::receiver::local(&url).header("Authorization", "Bearer x").build().unwrap();
    sent(&webhook).await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.path, "/hooks/T0KEN?a=1&b=2");
    assert_eq!(arrived.header("host"), Some(receiver.address.to_string().as_str()));
    assert_eq!(arrived.header("authorization"), Some("Bearer x"));
    assert!(arrived.header("user-agent").unwrap().starts_with("backstop/"));
    assert_eq!(arrived.header("content-length"), Some(arrived.body.len().to_string().as_str()));
}
