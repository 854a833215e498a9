//! The webhook as a sink: CloudEvents that others have written, sent on or left with their sender.

use backstop_core::failure::Kind;
use backstop_core::{CloudEvent, Event, Failure, Handler as _, Sink as _};

use crate::receiver::{Receiver, order, status};

fn carried(json: &str) -> CloudEvent {
    CloudEvent::from_json(json).unwrap()
}

#[tokio::test]
async fn the_text_is_passed_on_as_it_is_under_the_id_it_had_before() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().source("/shop").build().unwrap();
    let traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = Event::of("OrderPlaced").header("traceparent", traced).json(&["tea"]).unwrap();
    webhook.handle(event.clone()).await.unwrap();
    webhook.emit(CloudEvent::of(&event, "/shop").unwrap()).await.unwrap();
    let [before, again] = &receiver.arrived()[..] else { panic!("two requests") };
    assert_eq!((before.text(), before.header("webhook-id")), (again.text(), again.header("webhook-id")));
    assert_eq!(again.header("traceparent"), Some(traced));

    // What is no event of ours travels too.
    let foreign = r#"{ "specversion":"1.0","id":"","source":"s","type":"t","data_base64":"AA==" }"#;
    webhook.emit(carried(foreign)).await.unwrap();
    assert_eq!(receiver.arrived()[2].text(), foreign);
    assert_eq!(receiver.arrived()[2].header("content-type"), Some("application/cloudevents+json"));
}

#[tokio::test]
async fn the_other_formats_are_kept_and_what_they_cannot_say_is_refused() {
    let receiver = Receiver::new().await;
    let event = CloudEvent::of(&order(), "/elsewhere").unwrap();
    let batched = receiver.webhook().batched(10, std::time::Duration::from_millis(1)).build().unwrap();
    batched.emit(event.clone()).await.unwrap();
    let binary = receiver.webhook().source("/shop").binary().build().unwrap();
    binary.emit(event.clone()).await.unwrap();
    let [batch, alone] = &receiver.arrived()[..] else { panic!("two requests") };
    assert_eq!(batch.text(), format!("[{}]", event.as_json()));
    assert_eq!((alone.header("ce-source"), alone.text()), (Some("/elsewhere"), order().payload_json()));

    let foreign = carried(r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"AA=="}"#);
    assert_eq!(binary.emit(foreign).await.unwrap_err().kind(), Kind::Permanent);
    let small = receiver.webhook().request_limit(10).build().unwrap();
    assert_eq!(small.emit(event).await.unwrap_err().class(), "too-large");
    assert_eq!(receiver.arrived().len(), 2);
}

#[tokio::test]
async fn what_the_target_does_not_take_has_failed_and_the_failure_says_why() {
    async fn emitted(code: u16) -> Failure {
        let receiver = Receiver::answering([status(code).saying("closed today")]).await;
        let webhook = receiver.webhook().build().unwrap();
        webhook.emit(CloudEvent::of(&order(), "/shop").unwrap()).await.unwrap_err()
    }
    let away = emitted(503).await;
    assert_eq!(away.class(), "unavailable");
    assert!(away.to_string().contains("503") && away.to_string().contains("closed today"), "{away}");
    assert!(emitted(410).await.to_string().contains("410"));
    assert_eq!(emitted(422).await.class(), "http-422");
    assert_eq!(emitted(500).await.class(), "http-500");
}

#[tokio::test]
async fn a_target_whose_circuit_is_open_says_so_without_a_request() {
    let receiver = Receiver::answering((0..9).map(|_| status(503))).await;
    let webhook = receiver.webhook().build().unwrap();
    let mut last = String::new();
    for _ in 0..9 {
        let event = Event::of("OrderPlaced").json(&()).unwrap();
        last = webhook.emit(CloudEvent::of(&event, "/shop").unwrap()).await.unwrap_err().to_string();
    }
    assert!(last.contains("the target is unavailable") && last.contains("503"), "{last}");
    assert!(receiver.arrived().len() < 9, "the breaker is open");
}
