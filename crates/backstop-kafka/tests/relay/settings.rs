//! Settings: every fault is named at once, and no secret is shown.

use std::time::Duration;

use backstop_kafka::{Compression, Config, Connections, Error, Format, Publisher};

fn faults(built: Result<Publisher, Error>) -> Vec<String> {
    let Err(Error::Settings { faults, .. }) = built else { panic!("it was built") };
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn every_fault_is_named_at_once() {
    let publisher = Publisher::to("localhost", "a b")
        .source("")
        .timeout(Duration::ZERO)
        .pause(Duration::MAX)
        .linger(Duration::from_secs(2))
        .property("acks", "0");
    assert_eq!(
        faults(publisher.build()),
        [
            "bootstrap-servers must name at least one broker, as host:port, not `localhost`",
            "topic must have 1 to 249 letters, digits, dots, hyphens and underscores, not `a b`",
            "timeout must be between 1 ms and 1 day",
            "linger must be at most 1 s",
            "source must be a URI reference such as /shop/orders",
            "pause must be between 1 ms and 365 days",
            "linger must be less than the timeout",
            "properties must not set acks: use the setting for it, or leave it as it is",
        ]
    );
}

#[test]
fn a_property_that_librdkafka_does_not_know_is_named_without_its_value() {
    let unknown = Publisher::to("localhost:9092", "orders").property("sasl.pasword", "hunter2");
    assert!(!format!("{unknown:?}").contains("hunter2"));
    let told = faults(unknown.build()).join("; ");
    assert!(told.starts_with("properties cannot be used: sasl.pasword is not understood"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");

    let wrong = Publisher::to("localhost:9092", "orders").property("security.protocol", "hunter2");
    let told = faults(wrong.build()).join("; ");
    assert_eq!(told, "properties cannot be used: the value of security.protocol is not understood");
}

#[test]
fn a_property_with_name_and_value_exchanged_is_not_repeated() {
    let exchanged = Publisher::to("localhost:9092", "orders").property("Hunter2!", "sasl.password");
    assert!(!format!("{exchanged:?}").contains("Hunter2"), "{exchanged:?}");
    let told = faults(exchanged.build());
    assert_eq!(told, ["properties cannot be used: the value of … is not understood"]);
}

#[test]
fn a_user_among_the_brokers_is_refused_and_shown_nowhere() {
    let publisher = Publisher::to("me:hunter2@localhost:9092", "orders");
    assert!(!format!("{publisher:?}").contains("hunter2"), "{publisher:?}");
    let rule = "must not hold a user name or password; set those as properties";
    assert_eq!(faults(publisher.build()), [format!("bootstrap-servers {rule}")]);
}

#[test]
fn a_pipe_or_device_is_no_certificate() {
    for name in ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"] {
        let publisher =
            Publisher::to("h:1", "t").property("security.protocol", "ssl").property(name, "/dev/zero");
        assert_eq!(faults(publisher.build()), [format!("properties must set {name} to a regular file")]);
    }
}

/// With one of them events would be lost, or workers would wait for ever, or a method would have said something else.
/// The list is written out here: whoever takes a name from the other one has to do it twice. Where librdkafka has two
/// names for one property, both are in it; properties of topics have another two, with `topic.` before them.
#[test]
fn properties_that_break_the_promise_are_refused_by_all_their_names() {
    for name in [
        "acks",
        "request.required.acks",
        "topic.acks",
        "topic.request.required.acks",
        "bootstrap.servers",
        "metadata.broker.list",
        "delivery.timeout.ms",
        "message.timeout.ms",
        "topic.delivery.timeout.ms",
        "topic.message.timeout.ms",
        "linger.ms",
        "queue.buffering.max.ms",
        "batch.num.messages",
        "client.id",
        "compression.codec",
        "compression.type",
        "topic.compression.codec",
        "topic.compression.type",
        "delivery.report.only.error",
        "dr_cb",
        "dr_msg_cb",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "test.mock.num.brokers",
        "transactional.id",
        "ut_handle_ProduceResponse",
    ] {
        let told = faults(Publisher::to("h:1", "t").property(name, "1").build());
        assert_eq!(
            told,
            [format!("properties must not set {name}: use the setting for it, or leave it as it is")]
        );
    }
}

#[test]
fn every_topic_that_kafka_allows_is_allowed() {
    for topic in ["a", "a.b_c-D9", &"x".repeat(249)] {
        Publisher::to("h:1, [::1]:9092", topic).build().unwrap();
    }
    for topic in ["", ".", "..", "ü", "a/b", &"x".repeat(250)] {
        assert_eq!(faults(Publisher::to("h:1", topic).build()).len(), 1, "{topic}");
    }
    for brokers in ["", "h", "h:", ":9092", "h:99999", "h:1,,h:2"] {
        assert_eq!(faults(Publisher::to(brokers, "t").build()).len(), 1, "{brokers}");
    }
}

#[test]
fn a_setting_that_is_not_given_has_the_default_that_the_guide_promises() {
    let config = Config::default();
    assert_eq!((config.timeout, config.linger), (Duration::from_secs(30), Duration::from_millis(2)));
    assert_eq!((config.format, config.compression), (Format::Binary, Compression::None));
    assert_eq!((config.client_id.as_str(), config.target.pause), ("backstop", Duration::from_secs(5)));
    assert_eq!(
        (config.target.disabled_pause, config.target.breaker.half_open_calls),
        (Duration::from_secs(3_600), 1)
    );
}

/// What a program can set, a file can set.
#[test]
fn a_file_says_what_a_program_says() {
    let read: Config = serde_json::from_value(serde_json::json!({
        "bootstrap-servers": ["a:1", "b:2"],
        "topic": "orders",
        "compression": "lz4",
        "properties": {"retries": "9"},
        "source": "/shop",
        "breaker": {"wait-duration-in-open-state-ms": 100},
    }))
    .unwrap();
    let mut same = Config { compression: Compression::Lz4, ..Config::to("a:1, b:2", "orders") };
    same.properties.insert("retries".to_owned(), "9".into());
    same.target.source = Some("/shop".to_owned());
    same.target.breaker.wait_in_open = Duration::from_millis(100);
    assert_eq!(read, same);
}

#[test]
fn a_producer_is_shared_where_the_settings_are_equal_and_given_up_with_the_last() {
    let shared = Connections::default();
    let to = |topic: &str| Publisher::to("h:1", topic).connections(&shared);
    let orders = to("orders").build().unwrap();
    let refunds = to("refunds").structured().pause(Duration::from_secs(1)).build().unwrap();
    assert_eq!(shared.count(), 1, "topic, format and patience are no matter of a producer");
    let patient = to("orders").timeout(Duration::from_secs(60)).build().unwrap();
    let other = to("orders").property("retries", "9").build().unwrap();
    assert_eq!(shared.count(), 3);
    let secret = |password: &str| to("orders").property("sasl.password", password).build().unwrap();
    let two_users = (secret("hunter2"), secret("hunter3"));
    assert_eq!(shared.count(), 5, "a password is no detail");
    drop((orders, refunds, patient, other, two_users));
    assert_eq!(shared.count(), 0);
}
