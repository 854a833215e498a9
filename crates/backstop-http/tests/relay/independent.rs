//! Independent readers: the Standard Webhooks library and the CloudEvents SDK for Python.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use backstop_core::{Event, Handler as _};
use serde_json::{Value, json};

use crate::receiver::{Arrived, Receiver};

const MODULES: [&str; 2] = ["standardwebhooks.webhooks", "cloudevents.core.bindings.http"];
const SCRIPT: &str = include_str!("independent.py");

const NEW: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const STRANGER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[tokio::test]
async fn libraries_of_another_language_verify_and_read_every_format() {
    let Some(python) = backstop_testkit::servers::python(&MODULES) else { return };
    let receiver = Receiver::new().await;
    let event = Event::of("OrderPlaced")
        .id("evt-1")
        .aggregate("Order", "42")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .payload_json(r#"{"total": 1.10, "note": "für Zoë 😀"}"#)
        .build()
        .unwrap();
    let formats = [
        receiver.webhook().structured(),
        receiver.webhook().binary(),
        receiver.webhook().batched(1, Duration::ZERO),
    ];
    for format in formats {
        let webhook = format.source("/shop").secret(NEW).secret(OLD).build().unwrap();
        webhook.handle(event.clone()).await.unwrap();
    }

    let requests: Vec<_> = receiver.arrived().iter().map(as_json).collect();
    let answers = asked(&python, &Value::Array(requests));
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["verified"], json!([true, true, false]), "{answer}");
        assert_eq!(answer["tampered"], json!([false, false, false]), "{answer}");
        let read = &answer["events"][0];
        assert_eq!(read["data"], json!({"total": 1.10, "note": "für Zoë 😀"}));
        for (name, value) in
            [("id", "evt-1"), ("source", "/shop"), ("type", "OrderPlaced"), ("subject", "42")]
        {
            assert_eq!(read["attributes"][name], value, "{answer}");
        }
        assert_eq!(read["attributes"]["aggregatetype"], "Order");
        assert!(read["attributes"]["traceparent"].as_str().unwrap().starts_with("00-0af765"));
    }
    assert_eq!(answers.as_array().unwrap().len(), 3);
}

fn as_json(arrived: &Arrived) -> Value {
    let headers: serde_json::Map<_, _> = arrived
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(value.to_str().unwrap())))
        .collect();
    json!({"headers": headers, "body": arrived.text(), "secrets": [NEW, OLD, STRANGER]})
}

/// Runs the script over the requests.
fn asked(python: &Path, requests: &Value) -> Value {
    let mut python = Command::new(python)
        .args(["-c", SCRIPT])
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(requests.to_string().as_bytes()).unwrap();
    let Output { status, stdout, .. } = python.wait_with_output().unwrap();
    assert!(status.success(), "the script failed; its words are above");
    serde_json::from_slice(&stdout).unwrap()
}
