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
    assert!(faults.iter().all(|fault| fault.rule == "must be at most 365 days"), "{faults:?}");
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

#[test]
fn a_header_with_name_and_value_exchanged_is_not_repeated() {
    let webhook = Webhook::to("https://example.com/").header("Bearer hunter2", "authorization");
    assert!(!format!("{webhook:?}").contains("hunter2"), "{webhook:?}");
    let told = webhook.allow_network("u:hunter2@h").build().unwrap_err().to_string();
    assert!(told.contains("header must have a name that HTTP allows") && !told.contains("hunter2"), "{told}");
}

const CANARY: &str = "c4n4ryS3cret";

/// A URL with a secret where secrets stand: as a password, in the path or in the query.
fn hostile(random: &mut fastrand::Rng) -> String {
    let noise = [
        "", "", "1", "12", "a", ":", "/", "//", "?", "#", "@", "&", "=", "%", "%2F", "[", "]", " ", "\n",
        "é", "\\",
    ];
    let mut some = |choices: &[&str]| random.choice(choices.iter().copied()).unwrap_or_default().to_owned();
    let scheme =
        some(&["https", "http", "http", "HTTPS", "htps", ""]) + &some(&["://", "://", ":/", ":", "//", ""]);
    let secret = some(&noise) + &some(&noise) + CANARY + &some(&noise);
    let host = some(&[
        "example.com",
        "example.com",
        "example.com:81",
        "1.1.1.1",
        "[::1]:9",
        "h:0",
        "h:99999",
        "10.0.0.1:80",
        "127.1",
    ]);
    match some(&["password", "path"]).as_str() {
        "password" => format!("{scheme}user:{secret}@{host}/hooks"),
        _ => format!("{scheme}{host}{}{secret}", some(&["/", "/x/", "?", "/?token=", "/#"])),
    }
}

#[test]
fn no_hostile_url_shows_its_secret() {
    let mut random = fastrand::Rng::with_seed(13);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..5_000 {
        let url = hostile(&mut random);
        let builder = Webhook::to(&url);
        let before = format!("{builder:?}");
        let built = match builder.build() {
            Ok(webhook) => {
                taken += 1;
                format!("{webhook:?} {}", webhook.target().name())
            }
            Err(error) => {
                refused += 1;
                format!("{error} {error:?}")
            }
        };
        let said = before + &built;
        assert!(!said.contains(CANARY), "{url:?}: {said}");
    }
    assert!(refused > 500 && taken > 100, "{refused} refused, {taken} taken");
}
