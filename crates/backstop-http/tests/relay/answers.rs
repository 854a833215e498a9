//! What the target's answer means for the event.

use std::time::Duration;

use backstop_core::Outcome;
use backstop_core::failure::Kind;
use backstop_http::Status;
use backstop_testkit::clock::ManualClock;

use crate::receiver::{Receiver, raw, sent, status, unavailable};

#[tokio::test]
async fn two_hundreds_are_done() {
    let receiver = Receiver::answering([200, 201, 202, 204].map(status)).await;
    let webhook = receiver.webhook().build().unwrap();
    for _ in 0..4 {
        assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    }
}

#[tokio::test]
async fn a_failure_of_the_target_counts_and_may_pass() {
    for code in [408, 425, 500, 502, 504] {
        let receiver = Receiver::answering([status(code)]).await;
        let failure = sent(&receiver.webhook().build().unwrap()).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), (format!("http-{code}").as_str(), Kind::Transient));
    }
}

#[tokio::test]
async fn a_refusal_is_permanent_and_says_what_the_target_said() {
    for code in [400, 401, 404, 409, 413, 422] {
        let receiver = Receiver::answering([status(code).saying("no such\r\norder \u{1b}[31m")]).await;
        let failure = sent(&receiver.webhook().build().unwrap()).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), (format!("http-{code}").as_str(), Kind::Permanent));
        assert!(failure.to_string().ends_with(": no such order [31m"), "{failure}");
    }
}

#[tokio::test]
async fn redirects_are_refused_and_not_followed() {
    let elsewhere = Receiver::new().await;
    for code in [301, 302, 303, 307, 308] {
        let receiver = Receiver::answering([status(code).with("location", elsewhere.url())]).await;
        let failure = sent(&receiver.webhook().build().unwrap()).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), (format!("http-{code}").as_str(), Kind::Permanent));
        assert!(failure.to_string().contains("redirects are not followed"), "{failure}");
    }
    assert!(elsewhere.arrived().is_empty());
}

#[tokio::test]
async fn a_busy_target_is_not_called_until_it_said() {
    for (code, header) in [(429, "120"), (503, "120"), (429, "Tue, 01 Jan 2030 00:02:00 GMT")] {
        let receiver = Receiver::answering([status(code).with("retry-after", header)]).await;
        let clock = ManualClock::new(); // 2030-01-01 00:00:00
        let webhook = receiver.webhook().clock(clock.clone()).build().unwrap();

        let wait = unavailable(sent(&webhook).await);
        assert!(wait >= Duration::from_secs(120) && wait < Duration::from_secs(121), "{wait:?}");
        assert!(
            matches!(webhook.target().status(), Status::Unavailable(why) if why.contains(&code.to_string()))
        );

        clock.advance(Duration::from_secs(119));
        let wait = unavailable(sent(&webhook).await);
        assert!(wait >= Duration::from_secs(1) && wait < Duration::from_secs(2), "{wait:?}");
        assert_eq!(receiver.arrived().len(), 1, "nothing is sent in the meantime");

        clock.advance(Duration::from_secs(1));
        assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
        assert_eq!(webhook.target().status(), Status::Available);
    }
}

#[tokio::test]
async fn a_busy_target_that_names_no_time_is_asked_again_within_the_pause() {
    for reply in [
        status(429),
        status(503),
        status(503).with("retry-after", "soon"),
        status(429).with("retry-after", "0"),
    ] {
        let receiver = Receiver::answering([reply]).await;
        let webhook = receiver.webhook().build().unwrap();
        let wait = unavailable(sent(&webhook).await);
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(30), "{wait:?}");
        assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    }
}

#[tokio::test]
async fn a_failing_target_may_name_the_time_of_the_next_try() {
    let receiver = Receiver::answering([status(500).with("retry-after", "7")]).await;
    let failure = sent(&receiver.webhook().build().unwrap()).await.unwrap_err();
    assert_eq!((failure.class(), failure.delay()), ("http-500", Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn no_wait_is_longer_than_the_limit() {
    let receiver = Receiver::answering([status(503).with("retry-after", "99999999")]).await;
    let webhook = receiver.webhook().retry_after_limit(Duration::from_secs(60)).build().unwrap();
    assert!(unavailable(sent(&webhook).await) < Duration::from_secs(61));
}

#[tokio::test]
async fn a_target_that_is_gone_is_disabled_and_its_events_wait() {
    let receiver = Receiver::answering([status(410)]).await;
    let webhook = receiver.webhook().disabled_pause(Duration::from_secs(900)).build().unwrap();
    assert!(!webhook.target().is_disabled());

    assert_eq!(unavailable(sent(&webhook).await), Duration::from_secs(900));
    assert!(webhook.target().is_disabled());
    assert_eq!(unavailable(sent(&webhook.clone()).await), Duration::from_secs(900));
    assert_eq!(receiver.arrived().len(), 1, "nothing more is sent");

    webhook.target().enable();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_a_failure_that_counts() {
    for nonsense in ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 banana\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        let (url, _) = raw(nonsense).await;
        let failure = sent(&crate::receiver::local(&url).build().unwrap()).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), ("bad-response", Kind::Transient), "{nonsense}");
    }
}
