//! An independent reader: the CloudEvents SDK for Python.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use backstop_core::{Event, Handler as _};
use backstop_kafka::Publisher;
use backstop_testkit::servers;
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("independent.py");

#[tokio::test]
async fn the_sdk_of_another_language_reads_both_modes() {
    let Some(kafka) = servers::kafka().await else { return };
    let Some(python) = servers::python(&["cloudevents.core.bindings.kafka"]) else { return };
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let event =
        Event::of("OrderPlaced").id("evt-1").aggregate("Order", "42").header("traceparent", "00-aa-bb-01");
    let event = event.payload_json(r#"{"total": 1.10, "note": "für Zoë 😀"}"#).build().unwrap();
    let to = || Publisher::to(kafka.bootstrap(), &topic).source("/shop");
    for publisher in [to().binary(), to().structured()] {
        publisher.build().unwrap().handle(event.clone()).await.unwrap();
    }

    let found = kafka.records(&topic).await;
    let records = found.iter().map(|it| json!({"key": it.key, "value": it.value, "headers": it.headers}));
    let records = Value::Array(records.collect()).to_string();
    let mut python = Command::new(python);
    let python = python.args(["-c", SCRIPT]).env("PYTHONUTF8", "1");
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(records.as_bytes()).unwrap();
    let Output { status, stdout, .. } = python.wait_with_output().unwrap();
    assert!(status.success(), "the script failed; its words are above");

    let read: Vec<Value> = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(read.len(), 2);
    for event in read {
        assert_eq!(event["data"], json!({"total": 1.10, "note": "für Zoë 😀"}));
        for (name, value) in [
            ("id", "evt-1"),
            ("source", "/shop"),
            ("type", "OrderPlaced"),
            ("subject", "42"),
            ("aggregatetype", "Order"),
            ("traceparent", "00-aa-bb-01"),
        ] {
            assert_eq!(event["attributes"][name], value, "{event}");
        }
    }
}
