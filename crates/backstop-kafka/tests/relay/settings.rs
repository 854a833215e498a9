//! Settings: every fault is named at once, and no secret is shown.

use std::time::Duration;

use backstop_kafka::{Error, Publisher};

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
            "bootstrap_servers must name at least one broker, as host:port",
            "topic must have 1 to 249 letters, digits, dots, hyphens and underscores",
            "source must be a URI reference such as /shop/orders",
            "timeout must be between 1 ms and 1 day",
            "pause must be between 1 ms and 1 day",
            "linger must be at most 1 s",
            "linger must be less than the timeout",
            "property must not set acks: use the method for it, or leave it as it is",
        ]
    );
}

#[test]
fn a_property_that_librdkafka_does_not_know_is_named_without_its_value() {
    let unknown = Publisher::to("localhost:9092", "orders").property("sasl.pasword", "hunter2");
    assert!(!format!("{unknown:?}").contains("hunter2"));
    let told = faults(unknown.build()).join("; ");
    assert!(told.starts_with("property sasl.pasword is not understood"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");

    let wrong = Publisher::to("localhost:9092", "orders").property("compression.type", "hunter2");
    let told = faults(wrong.build()).join("; ");
    assert_eq!(told, "property compression.type is not understood");
}

#[test]
fn a_user_among_the_brokers_is_refused_and_shown_nowhere() {
    let publisher = Publisher::to("me:hunter2@localhost:9092", "orders");
    assert!(!format!("{publisher:?}").contains("hunter2"), "{publisher:?}");
    let rule = "must not hold a user name or password, which are properties of their own";
    assert_eq!(faults(publisher.build()), [format!("bootstrap_servers {rule}")]);
}

#[test]
fn a_pipe_or_device_is_no_certificate() {
    for name in ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"] {
        let publisher =
            Publisher::to("h:1", "t").property("security.protocol", "ssl").property(name, "/dev/zero");
        assert_eq!(faults(publisher.build()), [format!("property {name} must name a regular file")]);
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
            [format!("property must not set {name}: use the method for it, or leave it as it is")]
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
