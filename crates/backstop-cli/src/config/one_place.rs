//! A setting has one place: the file sets what a program can set, with the same default and the same rule.

use std::time::Duration;

use super::tests::{LEAST, checked, outbox};
use super::*;

/// A handler that goes to a web server, with more keys, each on a line of its own.
fn hook(more: &[&str]) -> String {
    let lines = more.iter().fold(String::new(), |lines, line| lines + "        " + line + "\n");
    LEAST.replace("  handlers: [{event-type: Tick, log: }]\n", "")
        + "  handlers:\n    - event-type: Tick\n      http:\n        url: https://h/\n"
        + &lines
}

#[test]
fn the_file_sets_what_a_program_can_set() {
    let text = hook(&[
        "name: billing",
        "format: batched",
        "batch-size: 7",
        "batch-linger: 1ms",
        "source: /shop",
        "headers: {authorization: 'env:AUTH', x-tenant: acme}",
        "allowed-networks: [10.0.0.7, 'fd00::/8']",
        "connect-timeout: 1s",
        "request-limit: 1000",
        "response-limit: 2000",
        "response-head-limit: 9000",
        "idle-connections: 3",
        "retry-after-limit: 1m",
        "pause: 1s",
        "disabled-pause: 2m",
        "breaker: {consecutive-failures: 2, sliding-window-size: 60s, wait-duration-in-open-state-ms: 500}",
    ]);
    let (given, _) = checked(&text, &[("AUTH", "Bearer t0ken")]).settings().unwrap();
    assert!(!format!("{given:?}").contains("t0ken"), "{given:?}");
    let http = given.outbox[0].handlers[0].http.clone().unwrap();
    assert_eq!((http.name.as_deref(), http.batch_size), (Some("billing"), 7));
    assert_eq!(http.headers["authorization"].reveal(), "Bearer t0ken");
    assert_eq!(http.headers["x-tenant"].reveal(), "acme");
    assert_eq!(http.allowed_networks, ["10.0.0.7", "fd00::/8"]);
    assert_eq!((http.request_limit, http.response_limit, http.response_head_limit), (1000, 2000, 9000));
    assert_eq!((http.idle_connections, http.connect_timeout), (3, Duration::from_secs(1)));
    assert_eq!(
        (http.batch_linger, http.retry_after_limit),
        (Duration::from_millis(1), Duration::from_secs(60))
    );
    let target = http.target;
    assert_eq!((target.source.as_deref(), target.pause), (Some("/shop"), Duration::from_secs(1)));
    assert_eq!(
        (target.disabled_pause, target.breaker.wait_in_open),
        (Duration::from_secs(120), Duration::from_millis(500))
    );
    assert_eq!((target.breaker.consecutive_failures, target.breaker.half_open_calls), (Some(2), 1));
}

#[test]
fn a_time_out_is_the_same_in_the_file_and_in_a_program() {
    let http = outbox(&hook(&[])).handlers[0].http.clone().unwrap();
    assert_eq!(http, backstop_http::Config::to("https://h/"));
    assert_eq!(http.timeout, Duration::from_secs(15));
    let kafka = LEAST.replace("log: ", "kafka: {bootstrap-servers: 'h:1', topic: t}");
    let kafka = outbox(&kafka).handlers[0].kafka.clone().unwrap();
    assert_eq!(kafka, backstop_kafka::Config::to("h:1", "t"));
}

#[test]
fn every_fault_of_a_handler_stands_at_its_own_line() {
    let text = hook(&[
        "headers:",
        "  content-type: text/plain",
        "  x-break: \"a\\r\\nt0ken\"",
        "  'Bearer t0ken!': authorization",
        "timeout: 0s",
        "alowed-networks: 10.0.0.0/8",
        "breaker: {failure-rate-threshold: 200, half-open-calls: 1}",
        "secrets: env:WRONG",
    ]);
    let told = checked(&text, &[("WRONG", "t0ken")]).faults();
    let at = "outbox.handlers[0].http";
    assert_eq!(
        told,
        [
            format!(
                "f.yaml:7:9: {at}.headers: must have a name that HTTP allows, such as authorization, followed by its value"
            ),
            format!("f.yaml:7:9: {at}.headers: must not set content-type, which follows from the event"),
            format!("f.yaml:9:20: {at}.headers.x-break: must not have line breaks in a value"),
            format!(
                "f.yaml:11:18: {at}.timeout: must be a time from 1ms to 365d such as 500ms, 10s, 5m, 1h or 7d, not `0s`; a \
                 number alone has no unit"
            ),
            format!(
                "f.yaml:12:9: {at}.alowed-networks: there is no such key; did you mean `allowed-networks`?"
            ),
            format!(
                "f.yaml:13:43: {at}.breaker.failure-rate-threshold: must be a percentage above 0 and up to 100, such \
                 as 50, not `200`"
            ),
            format!(
                "f.yaml:13:48: {at}.breaker.half-open-calls: there is no such key; known are failure-rate-threshold, \
                 slow-call-rate-threshold, slow-call-duration-ms, sliding-window-size, minimum-number-of-calls, \
                 consecutive-failures, wait-duration-in-open-state-ms, permitted-number-of-calls-in-half-open-state"
            ),
            format!(
                "f.yaml:14:9: {at}.secrets: must be whsec_ followed by the base64 text of 24 to 64 bytes"
            ),
        ]
    );
}

/// The table and the types are one, by construction where a component has a Config. Where the daemon writes both by hand,
/// this compares them: every key is read, and nothing else is.
#[test]
fn every_key_of_the_table_is_read_and_every_field_has_a_key() {
    let text = hook(&[]).replace(
        "https://h/",
        "https://h/\n    - {event-type: A, kafka: {bootstrap-servers: 'h:1', topic: t}}",
    ) + "    - {event-type: B, log: }\ndlq: {directory: d}\nserver: {tokens: [{name: a, sha256: "
        + &"0f".repeat(32)
        + "}]}\nqueue: {database: {url: 'sqlite:j.db'}, handlers: [{event-type: C, log: }]}\n";
    let mut findings = Findings::default();
    let root = yaml::parse(&text, &mut findings).unwrap();
    let surroundings = Surroundings::of(&[], "");
    let (values, _) = walk::walk(&root, keys::ROOT, &surroundings, &mut findings);
    assert_eq!(findings.faults().len(), 0);
    serde_json::from_value::<Settings>(values.clone()).unwrap();
    let mut paths = Vec::new();
    objects(&values, &mut String::new(), &mut paths);
    for path in paths {
        let mut more = values.clone();
        let object = more.pointer_mut(&path).and_then(|value| value.as_object_mut()).unwrap();
        object.insert("no-such-key".to_owned(), "1".into());
        let read = serde_json::from_value::<Settings>(more);
        assert!(read.is_err(), "`{path}` takes a key that is in no table");
    }
}

/// The pointers of all objects in a value.
fn objects(value: &serde_json::Value, path: &mut String, found: &mut Vec<String>) {
    let mut below = |key: &str, value: &serde_json::Value| {
        let mut path = format!("{path}/{key}");
        objects(value, &mut path, found);
    };
    match value {
        serde_json::Value::Object(values) => {
            values.iter().for_each(|(key, value)| below(key, value));
            found.push(path.clone());
        }
        serde_json::Value::Array(values) => {
            values.iter().enumerate().for_each(|(index, value)| below(&index.to_string(), value));
        }
        _ => {}
    }
}

#[test]
fn a_word_that_is_nearly_right_is_recognised_wherever_its_kind_comes_from() {
    let text = LEAST.to_owned() + "  mode: MULTI_NODE\n  purge: {enabled: True}\nserver: {enabled: ture}\n";
    assert_eq!(
        checked(&text, &[]).faults(),
        [
            "f.yaml:4:9: outbox.mode: must be one of single-node, multi-node, ordered, writer-only, not `MULTI_NODE`; did \
             you mean `multi-node`?",
            "f.yaml:5:20: outbox.purge.enabled: must be true or false, not `True`; did you mean `true`?",
            "f.yaml:6:19: server.enabled: must be true or false, not `ture`; did you mean `true`?",
        ]
    );
}

#[test]
fn no_kind_repeats_a_secret_that_was_put_in_its_place() {
    for (wrong, text) in [
        ("address", "server: {address: 'http://u:tiger@h'}\n".to_owned()),
        ("hash", "server: {tokens: [{name: a, sha256: bst_tiger}]}\n".to_owned()),
        ("hash", "server: {tokens: [{name: a, sha256: tiger}]}\n".to_owned()),
    ] {
        let told = checked(&(LEAST.to_owned() + &text), &[]).faults();
        assert!(!told.is_empty() && !told.join(" ").contains("tiger"), "{wrong}: {told:?}");
    }
    for line in ["allowed-networks: whsec_tiger", "url: htps://hooks.example/tiger", "source: 'a b@tiger'"] {
        let text = hook(&[line]).replace("        url: https://h/\n        url:", "        url:");
        let told = checked(&text, &[]).faults();
        assert!(!told.is_empty() && !told.join(" ").contains("tiger"), "{line}: {told:?}");
    }
}
