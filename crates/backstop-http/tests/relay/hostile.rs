//! Event fields are hostile text: none of them may end a header, begin another, or split the request.

use std::collections::BTreeMap;

use backstop_core::event::Stored;
use backstop_core::{Event, Handler as _, Timestamp};

use crate::receiver::{Receiver, local, raw};

const NASTY: &str = "a\r\nx-evil: 1\r\n\r\nGET / HTTP/1.1\r\n\u{0}é\u{202e}😀\"%41 ";

/// An event as somebody else's rules let it into a table.
pub(crate) fn restored(payload_json: &str) -> Event {
    Event::restore(Stored {
        id: NASTY.to_owned(),
        event_type: NASTY.to_owned(),
        occurred_at: Timestamp::UNIX_EPOCH,
        aggregate_type: Some(NASTY.to_owned()),
        aggregate_id: Some(NASTY.to_owned()),
        tenant_id: Some(NASTY.to_owned()),
        headers: BTreeMap::from([
            (NASTY.to_owned(), NASTY.to_owned()),
            ("plain".to_owned(), NASTY.to_owned()),
            ("printable".to_owned(), "é😀 \"%\"".to_owned()),
            ("traceparent".to_owned(), NASTY.to_owned()),
            ("content-length".to_owned(), "0".to_owned()),
            ("host".to_owned(), "evil.example".to_owned()),
        ]),
        payload_json: payload_json.to_owned(),
        available_at: None,
    })
}

#[tokio::test]
async fn nasty_fields_never_split_the_request() {
    let receiver = Receiver::new().await;
    let formats = [
        receiver.webhook().structured(),
        receiver.webhook().binary(),
        receiver.webhook().batched(1, std::time::Duration::ZERO),
    ];
    for webhook in formats {
        webhook.build().unwrap().handle(restored("{}")).await.unwrap();
    }
    let arrived = receiver.arrived();
    assert_eq!(arrived.len(), 3);
    for request in &arrived {
        assert!(request.header("x-evil").is_none() && request.header("traceparent").is_none());
        assert_eq!(request.header("host"), Some(receiver.address.to_string().as_str()));
        for (name, value) in &request.headers {
            assert!(value.as_bytes().iter().all(|byte| (0x20..0x7f).contains(byte)), "{name}: {value:?}");
        }
        let id = request.header("webhook-id").unwrap();
        assert!(id.strip_prefix("msg_").unwrap().bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    let binary = &arrived[1];
    assert_eq!(decoded(binary.header("ce-type").unwrap()), NASTY);
    assert_eq!(decoded(binary.header("ce-printable").unwrap()), "é😀 \"%\"");
    assert!(binary.header("ce-plain").is_none(), "control characters travel in `headers`, as JSON");
    let others: BTreeMap<String, String> =
        serde_json::from_str(&decoded(binary.header("ce-headers").unwrap())).unwrap();
    assert_eq!((others[NASTY].as_str(), others["plain"].as_str()), (NASTY, NASTY));
    let structured: serde_json::Value = serde_json::from_slice(&arrived[0].body).unwrap();
    assert_eq!((&structured["id"], &structured["subject"]), (&NASTY.into(), &NASTY.into()));
}

#[tokio::test]
async fn on_the_wire_there_is_one_request() {
    let (url, bytes) = raw("HTTP/1.1 204 No Content\r\n\r\n").await;
    local(&url).binary().build().unwrap().handle(restored("{}")).await.unwrap();
    let heard = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
    assert_eq!(heard.matches("HTTP/1.1\r\n").count(), 1, "{heard}");
    let (request, body) = heard.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "{}");
    assert!(request.lines().all(|line| !line.starts_with("x-evil")), "{request}");
}

#[tokio::test]
async fn what_cannot_be_written_is_a_permanent_failure() {
    let receiver = Receiver::new().await;
    let failure = receiver.webhook().build().unwrap().handle(restored("{no json")).await.unwrap_err();
    assert_eq!((failure.class(), failure.is_recoverable()), ("payload", false));
    assert!(receiver.arrived().is_empty());
}

/// What a reader of the binding does with a header's value.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}
