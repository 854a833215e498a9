//! Settings: every fault at once, and nothing secret in sight.

use std::time::Duration;

use backstop_core::breaker;
use backstop_core::config::Config as _;
use backstop_core::setting::Faults;
use backstop_http::{Config, Connections, Error, Format, Webhook};

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
        .disabled_pause(Duration::ZERO)
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
            "batch-size",
            "headers",
            "timeout",
            "connect-timeout",
            "request-limit",
            "response-head-limit",
            "allowed-networks",
            "root-certificates",
            "source",
            "pause",
            "disabled-pause",
            "url",
            "secrets",
            "secrets",
            "headers",
            "headers",
            "headers",
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
    let settings = settings.disabled_pause(forever).retry_after_limit(forever).batched(1, forever);
    let Err(Error::Settings { faults, .. }) = settings.build() else { panic!("it was built") };
    let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "batch-linger must be at most 365 days",
            "timeout must be between 1 ms and 365 days",
            "connect-timeout must be between 1 ms and 365 days",
            "retry-after-limit must be at most 365 days",
            "pause must be between 1 ms and 365 days",
            "disabled-pause must be between 1 ms and 365 days",
        ]
    );
}

#[test]
fn a_bad_url_hides_no_other_fault() {
    let error = Webhook::to("nowhere").secret("x").build().unwrap_err().to_string();
    assert!(error.contains("url must") && error.contains("secrets must"), "{error}");
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
    assert!(
        told.contains("headers must have a name that HTTP allows") && !told.contains("hunter2"),
        "{told}"
    );
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

#[test]
fn a_setting_that_is_not_given_has_the_default_that_the_guide_promises() {
    let config = Config::default();
    assert_eq!((config.timeout, config.connect_timeout), (Duration::from_secs(15), Duration::from_secs(5)));
    assert_eq!((config.request_limit, config.response_limit), (2 * 1024 * 1024, 64 * 1024));
    assert_eq!((config.response_head_limit, config.idle_connections), (32 * 1024, 32));
    assert_eq!((config.format, config.retry_after_limit), (Format::Structured, Duration::from_secs(3_600)));
    assert_eq!(
        (config.target.pause, config.target.disabled_pause),
        (Duration::from_secs(5), Duration::from_secs(3_600))
    );
    let breaker = config.target.breaker;
    assert_eq!((breaker.consecutive_failures, breaker.wait_in_open), (Some(5), Duration::from_secs(30)));
    assert_eq!((breaker.half_open_calls, breaker.slow_call_rate_threshold), (1, None));
}

/// What a program can set, a file can set: the same Config, to the last setting.
#[test]
fn a_file_says_what_the_builder_says() {
    let read: Config = serde_json::from_value(serde_json::json!({
        "url": "https://example.com/",
        "format": "batched",
        "batch-size": 7,
        "batch-linger": "1ms",
        "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "headers": {"authorization": "Bearer T0KEN"},
        "allowed-networks": "10.0.0.7",
        "source": "/shop",
        "pause": "1s",
        "breaker": {"consecutive-failures": 2},
    }))
    .unwrap();
    let built = Webhook::to("https://example.com/")
        .batched(7, Duration::from_millis(1))
        .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .header("authorization", "Bearer T0KEN")
        .allow_network("10.0.0.7")
        .source("/shop")
        .pause(Duration::from_secs(1))
        .breaker(breaker::Config {
            consecutive_failures: Some(2),
            ..backstop_core::target::default_breaker()
        });
    assert_eq!(format!("{:?}", Webhook::of(read.clone())), format!("{built:?}"));
    assert_eq!(read.written(), {
        let mut same = Config::to("https://example.com/");
        same.format = Format::Batched;
        (same.batch_size, same.batch_linger) = (7, Duration::from_millis(1));
        same.secrets = vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into()];
        same.headers.insert("authorization".to_owned(), "Bearer T0KEN".into());
        same.allowed_networks = vec!["10.0.0.7".to_owned()];
        (same.target.source, same.target.pause) = (Some("/shop".to_owned()), Duration::from_secs(1));
        same.target.breaker.consecutive_failures = Some(2);
        same.written()
    });
}

#[test]
fn a_breaker_that_could_never_close_is_a_fault_with_its_path() {
    let breaker = breaker::Config { half_open_calls: 0, ..backstop_core::target::default_breaker() };
    let mut faults = Faults::default();
    let config = Config::to("https://example.com/");
    Config { target: backstop_core::target::Config { breaker, ..config.target.clone() }, ..config }
        .check(&mut faults);
    let told: Vec<_> = faults.into_vec().iter().map(ToString::to_string).collect();
    let rule = "must be between 1 and 1000000";
    assert_eq!(told, [format!("breaker.permitted-number-of-calls-in-half-open-state {rule}")]);
}

#[test]
fn connections_are_shared_where_the_settings_are_equal_and_given_up_with_the_last() {
    let shared = Connections::default();
    let to = |url: &str| Webhook::to(url).connections(&shared);
    let first = to("https://example.com/a").build().unwrap();
    let second = to("https://other.example/b").timeout(Duration::from_secs(1)).build().unwrap();
    assert_eq!(shared.count(), 1, "the time of a request is no matter of connections");
    let networks = to("https://example.com/a").allow_network("10.0.0.0/8").build().unwrap();
    let plain = to("http://example.com/a").build().unwrap();
    let hasty = to("https://example.com/a").connect_timeout(Duration::from_secs(1)).build().unwrap();
    assert_eq!(shared.count(), 4);
    drop((first, second, networks, plain, hasty));
    assert_eq!(shared.count(), 0);
}
