//! Settings: every fault at once, and nothing secret in sight.

use std::time::Duration;

use backstop_http::{Error, Webhook};

#[test]
fn every_fault_is_reported_at_once() {
    let Err(Error::Settings { faults }) = Webhook::to("http://127.0.0.1/")
        .source("")
        .secret("whsec_short")
        .secret("hunter2")
        .header("bad name", "x")
        .header("content-type", "text/plain")
        .header("ce-id", "1")
        .header("x-break", "a\r\nb")
        .timeout(Duration::ZERO)
        .connect_timeout(Duration::ZERO)
        .pause(Duration::ZERO)
        .park(Duration::ZERO)
        .request_limit(0)
        .response_head_limit(100)
        .allow_network("10.0.0.0/99")
        .root_certificate("no certificate")
        .batched(0, Duration::ZERO)
        .build()
    else {
        panic!("it was built")
    };
    let settings: Vec<_> = faults.iter().map(|fault| fault.setting).collect();
    assert_eq!(
        settings,
        [
            "allow_network",
            "root_certificate",
            "url",
            "secret",
            "secret",
            "header",
            "header",
            "header",
            "header",
            "source",
            "timeout",
            "connect_timeout",
            "pause",
            "park",
            "request_limit",
            "response_head_limit",
            "batched",
        ]
    );
    assert!(faults.iter().all(|fault| !fault.rule.contains("hunter2")));
}

/// They follow from the event or from the connection; set by hand, they would say something else than what is sent.
#[test]
fn headers_that_are_ours_are_refused_however_they_are_written() {
    for name in [
        "content-type",
        "Content-Length",
        "TRANSFER-ENCODING",
        "connection",
        "Host",
        "expect",
        "upgrade",
        "traceparent",
        "tracestate",
        "ce-anything",
        "Webhook-Signature",
        "webhook-timestamp",
        "webhook-id",
    ] {
        let refused = Webhook::to("https://example.com/").header(name, "x").build().unwrap_err();
        assert!(refused.to_string().contains("which follows from the event"), "{name}: {refused}");
    }
    for name in ["authorization", "x-tenant", "accept"] {
        Webhook::to("https://example.com/").header(name, "x").build().unwrap();
    }
}

#[test]
fn times_that_would_overflow_are_refused() {
    let forever = Duration::MAX;
    let settings =
        Webhook::to("https://example.com/").timeout(forever).connect_timeout(forever).pause(forever);
    let settings = settings.park(forever).retry_after_limit(forever).batched(1, forever);
    let Err(Error::Settings { faults, .. }) = settings.build() else { panic!("it was built") };
    assert_eq!(faults.len(), 6);
    assert!(faults.iter().all(|fault| fault.rule == "must be at most a year"), "{faults:?}");
}

#[test]
fn a_bad_url_hides_no_other_fault() {
    let error = Webhook::to("nowhere").secret("x").build().unwrap_err().to_string();
    assert!(error.contains("url must") && error.contains("secret must"), "{error}");
}

#[test]
fn nothing_secret_is_shown() {
    let builder = Webhook::to("https://example.com/T0KEN?key=T0KEN")
        .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .header("authorization", "Bearer T0KEN");
    let webhook = builder.clone().build().unwrap();
    for shown in [format!("{builder:?}"), format!("{webhook:?}"), format!("{:?}", webhook.target())] {
        assert!(shown.contains("https://example.com"), "{shown}");
        assert!(!shown.contains("T0KEN") && !shown.contains("MfKQ"), "{shown}");
    }
    let bad = Webhook::to("https://me:T0KEN@example.com/");
    assert!(!format!("{bad:?}").contains("T0KEN"));
    assert!(!format!("{:?}", bad.build().unwrap_err()).contains("T0KEN"));
}
