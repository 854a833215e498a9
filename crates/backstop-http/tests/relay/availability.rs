//! The breaker of a target, with a clock that the test moves, and what an operator sees of it.

use std::time::Duration;

use backstop_core::Outcome;
use backstop_core::breaker::Config;
use backstop_core::inspect::{Health, Inspect as _};
use backstop_http::{Status, Webhook};
use backstop_testkit::clock::ManualClock;
use backstop_testkit::proxy::Proxy;

use crate::receiver::{Receiver, local, sent, status, unavailable};

fn quick() -> Config {
    Config {
        consecutive_failures: Some(3),
        wait_in_open: Duration::from_secs(30),
        half_open_calls: 1,
        ..Config::default()
    }
}

fn moved(receiver: &Receiver, clock: &ManualClock) -> Webhook {
    receiver.webhook().breaker(quick()).clock(clock.clone()).build().unwrap()
}

#[tokio::test]
async fn a_breaker_opens_waits_until_it_half_opens_and_closes_after_a_probe() {
    let clock = ManualClock::new();
    let receiver = Receiver::answering([status(500), status(502), status(500), status(503)]).await;
    let webhook = moved(&receiver, &clock);
    for _ in 0..3 {
        sent(&webhook).await.unwrap_err(); // answered, so it counts
    }
    assert!(matches!(webhook.target().status(), Status::Unavailable(why) if why.contains("http-500")));

    clock.advance(Duration::from_secs(10));
    let wait = unavailable(sent(&webhook).await);
    assert!(wait >= Duration::from_secs(20) && wait < Duration::from_secs(21), "{wait:?}");
    assert_eq!(receiver.arrived().len(), 3, "an open breaker sends nothing");

    clock.advance(Duration::from_secs(20));
    let wait = unavailable(sent(&webhook).await); // the probe meets 503
    assert!(wait >= Duration::from_secs(30) && wait < Duration::from_secs(31), "{wait:?}");
    assert_eq!(receiver.arrived().len(), 4);

    clock.advance(Duration::from_secs(30));
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    assert_eq!(webhook.target().status(), Status::Available);
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn refusals_say_nothing_against_a_target() {
    let receiver = Receiver::answering((0..20).map(|_| status(422))).await;
    let webhook = moved(&receiver, &ManualClock::new());
    for _ in 0..20 {
        assert_eq!(sent(&webhook).await.unwrap_err().class(), "http-422");
    }
    assert_eq!(webhook.target().status(), Status::Available);
}

#[tokio::test]
async fn a_handler_that_is_aborted_gives_its_probe_back() {
    let clock = ManualClock::new();
    let receiver = Receiver::answering((0..3).map(|_| status(500))).await;
    let proxy = Proxy::to(receiver.address.to_string()).await;
    let webhook = local(&format!("http://{}/hooks", proxy.address()));
    let webhook = webhook.breaker(quick()).clock(clock.clone()).build().unwrap();
    for _ in 0..3 {
        sent(&webhook).await.unwrap_err();
    }
    clock.advance(Duration::from_secs(30));

    proxy.black_hole();
    let probe = tokio::time::timeout(Duration::from_millis(50), sent(&webhook)).await;
    assert!(probe.is_err(), "it was dropped while it waited for an answer");

    proxy.cut();
    proxy.restore();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done, "the place is free again");
}

#[tokio::test]
async fn an_operator_sees_how_a_target_stands() {
    let receiver = Receiver::answering([status(204), status(422), status(410)]).await;
    let webhook = receiver.webhook().name("billing").build().unwrap();
    for _ in 0..4 {
        let _ = sent(&webhook).await;
    }
    let report = webhook.target().report().await;
    assert_eq!((report.kind, report.name.as_str()), ("webhook", "billing"));
    assert!(matches!(report.health, Health::Down(why) if why.contains("disabled")));
    let totals: Vec<_> = report.flows.iter().map(|flow| (flow.name, flow.total)).collect();
    assert_eq!(totals, [("delivered", 1), ("held", 2), ("failed", 1)]);

    webhook.target().enable();
    assert_eq!(webhook.target().report().await.health, Health::Up);
}
