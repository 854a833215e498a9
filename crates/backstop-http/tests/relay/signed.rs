//! Signatures as receivers see them: stable ids, fresh timestamps, one signature for each secret.

use backstop_core::{Clock as _, Event, Handler as _};
use backstop_testkit::clock::ManualClock;
use ring::hmac;

use crate::receiver::{Arrived, Receiver, order, sent, status};

/// `whsec_` and the base64 text of 24 bytes of the value 1, and of the value 2.
const OLD: (&str, [u8; 24]) = ("whsec_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB", [1; 24]);
const NEW: (&str, [u8; 24]) = ("whsec_AgICAgICAgICAgICAgICAgICAgICAgIC", [2; 24]);

/// What a receiver does: any of the signatures may be the one of its secret.
fn verifies(arrived: &Arrived, secret: &[u8]) -> bool {
    use base64::Engine as _;
    let part = |name| arrived.header(name).unwrap();
    let mut signed = format!("{}.{}.", part("webhook-id"), part("webhook-timestamp")).into_bytes();
    signed.extend_from_slice(&arrived.body);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    part("webhook-signature").split(' ').any(|signature| {
        let encoded = signature.strip_prefix("v1,").unwrap();
        let given = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
        hmac::verify(&key, &signed, &given).is_ok()
    })
}

#[tokio::test]
async fn what_is_sent_is_signed_in_every_format() {
    let receiver = Receiver::new().await;
    let formats = [
        receiver.webhook().structured(),
        receiver.webhook().binary(),
        receiver.webhook().batched(1, std::time::Duration::ZERO),
    ];
    for format in formats {
        sent(&format.secret(OLD.0).build().unwrap()).await.unwrap();
    }
    for arrived in receiver.arrived() {
        assert!(verifies(&arrived, &OLD.1) && !verifies(&arrived, &NEW.1));
    }
}

#[tokio::test]
async fn a_secret_is_changed_without_a_gap() {
    let receiver = Receiver::new().await;
    sent(&receiver.webhook().secret(NEW.0).secret(OLD.0).build().unwrap()).await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.header("webhook-signature").unwrap().split(' ').count(), 2);
    assert!(verifies(&arrived, &OLD.1) && verifies(&arrived, &NEW.1));
}

#[tokio::test]
async fn another_attempt_has_the_same_id_and_a_fresh_timestamp() {
    let receiver = Receiver::answering([status(500)]).await;
    let clock = ManualClock::new();
    let webhook = receiver.webhook().secret(OLD.0).clock(clock.clone()).build().unwrap();
    webhook.handle(order()).await.unwrap_err();
    clock.advance(std::time::Duration::from_secs(600));
    webhook.handle(order()).await.unwrap();
    webhook.handle(Event::of("OrderPlaced").id("evt-2").json(&()).unwrap()).await.unwrap();

    let arrived = receiver.arrived();
    let header = |index: usize, name: &str| arrived[index].header(name).unwrap().to_owned();
    assert_eq!(header(0, "webhook-id"), header(1, "webhook-id"));
    assert_ne!(header(0, "webhook-id"), header(2, "webhook-id"));
    assert!(header(0, "webhook-id").starts_with("msg_") && !header(0, "webhook-id").contains("evt-1"));
    let stamps = [0, 1].map(|index| header(index, "webhook-timestamp").parse::<i64>().unwrap());
    assert_eq!(stamps, [clock.now().timestamp() - 600, clock.now().timestamp()]);
    assert!(arrived.iter().all(|arrived| verifies(arrived, &OLD.1)));
}

#[tokio::test]
async fn without_a_secret_there_is_an_id_and_no_signature() {
    let receiver = Receiver::new().await;
    sent(&receiver.webhook().build().unwrap()).await.unwrap();
    let arrived = receiver.only();
    assert!(arrived.header("webhook-id").is_some() && arrived.header("webhook-signature").is_none());
}
