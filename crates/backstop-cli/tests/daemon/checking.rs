//! `backstop check`: every fault at once, each with its place and what was meant.

use std::fmt::Write;

use crate::support::Place;

/// Ten faults of ten kinds.
const TEN: &str = "\
outbox:
  name: orders
  mode: MULTI_NODE
  database:
    url: oracle://scott:tiger@db.example/orders
    table: order-events
  dispatcher:
    workerCount: 8
    max-attempts: ten
  retry:
    base-delay-ms: 1 second
  poller:
    skip-recent: 5
  handlers:
    - event-type: OrderPlaced
      http: {url: 'http://10.0.0.7/', format: binry}
server:
  address: 0.0.0.0:7878
";

#[test]
fn ten_faults_are_ten_lines() {
    let ended = Place::with(TEN).run(&["check"]).with(1);
    assert_eq!(ended.said, "");
    let expected = "\
error: backstop.yaml has 10 faults
backstop.yaml:3:9: outbox.mode: must be one of single-node, multi-node, ordered, writer-only, not `MULTI_NODE`; did you mean `multi-node`?
backstop.yaml:5:10: outbox.database.url: must be a URL that begins with postgres:, mysql:, mariadb: or sqlite:
backstop.yaml:6:12: outbox.database.table: must be a letter or underscore followed by letters, digits or underscores, at most 63 in all, not `order-events`
backstop.yaml:8:5: outbox.dispatcher.workerCount: there is no such key; did you mean `worker-count`?
backstop.yaml:9:19: outbox.dispatcher.max-attempts: must be a whole number of at least 1, not `ten`
backstop.yaml:11:20: outbox.retry.base-delay-ms: must be a time from 1ms to 3650d such as 500ms, 10s, 5m, 1h or 7d, not `1 second`; a number alone is in milliseconds
backstop.yaml:13:18: outbox.poller.skip-recent: must be a time from 0s to 3650d such as 500ms, 10s, 5m, 1h or 7d, not `5`; a number alone has no unit
backstop.yaml:16:14: outbox.handlers[0].http.url: must not name 10.0.0.7, which is not public: allow it with `allowed-networks` if that is intended
backstop.yaml:16:47: outbox.handlers[0].http.format: must be one of structured, binary, batched, not `binry`; did you mean `binary`?
backstop.yaml:18:3: server.address: 0.0.0.0:7878 can be reached from other machines, which needs server.tokens; `backstop token` makes one, or use 127.0.0.1
";
    assert_eq!(ended.complained, expected);
}

#[test]
fn serve_and_migrate_say_the_same_and_start_nothing() {
    let place = Place::with(TEN);
    let checked = place.run(&["check"]).with(1).complained;
    assert_eq!(place.run(&["serve"]).with(1).complained, checked);
    assert_eq!(place.run(&["migrate"]).with(1).complained, checked);
}

#[test]
fn a_good_file_is_told_in_a_few_lines() {
    let settings = "\
outbox:
  - name: orders
    database: {url: env:ORDERS_URL}
    handlers: [{aggregate-type: Order, event-type: [OrderPlaced, OrderPaid], log: }]
  - name: audit
    mode: writer-only
    database: {url: 'sqlite:audit.db', table: audit_event}
";
    let place = Place::with(settings).variable("ORDERS_URL", "postgres://u:tiger@db.example/orders");
    let ended = place.run(&["check"]).with(0);
    let expected = "\
backstop.yaml is fine
  outbox orders: single-node on PostgreSQL, table outbox_event, 2 event types
  outbox audit: writer-only on SQLite, table audit_event
  server: http://127.0.0.1:7878
";
    assert_eq!((ended.said.as_str(), ended.complained.as_str()), (expected, ""));
}

#[test]
fn a_wrong_variable_is_named() {
    let settings = "outbox: {database: {url: 'sqlite:a.db'}, handlers: [{event-type: T, log: }]}\n";
    let place = Place::with(settings).variable("BACKSTOP__OUTBOX__POLLER__BATCH_SIZE", "0");
    let told = "BACKSTOP__OUTBOX__POLLER__BATCH_SIZE: outbox.poller.batch-size: must be a whole number from 1 to 1000000, \
                not `0`\n";
    let ended = place.run(&["check"]).with(1);
    assert_eq!(ended.complained, format!("error: backstop.yaml has 1 fault\n{told}"));
}

#[test]
fn a_file_that_is_not_there_or_no_text_or_too_large_is_told_in_one_line() {
    let place = Place::empty();
    let told = place.run(&["check"]).with(1).complained;
    assert!(told.starts_with(
        "error: cannot read backstop.yaml; name it with --config, or let `backstop init` write one"
    ));
    assert_eq!(told.lines().count(), 1, "{told}");
    std::fs::write(place.file("bytes.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    let told = place.run(&["check", "--config", "bytes.yaml"]).with(1).complained;
    assert_eq!(told, "error: cannot read bytes.yaml: it is not UTF-8 text\n");
    std::fs::write(place.file("huge.yaml"), "# comment\n".repeat(200_000)).unwrap();
    let told = place.run(&["check", "--config", "huge.yaml"]).with(1).complained;
    assert_eq!(told, "error: cannot read huge.yaml: it is larger than 1 MiB, the limit for settings\n");
}

#[test]
fn hostile_yaml_is_refused_where_it_begins() {
    let mut bomb = "a0: &a0 [x]\n".to_owned();
    for level in 1..20 {
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 9].join(", ")).unwrap();
    }
    let (deep, deeper) = ("[".repeat(100), "[".repeat(500_000));
    for (text, told) in [
        (bomb.as_str(), "backstop.yaml:1:5: anchors (`&name`) are not supported; write the value out"),
        (deep.as_str(), "backstop.yaml:1:17: nested deeper than 16 levels"),
        (deeper.as_str(), "backstop.yaml:1:256: this is not YAML: recursion limit exceeded"),
        ("outbox:\n\tmode: ordered\n", "indent with spaces, not with tabs"),
        (
            "server: {}\nserver: {}\n",
            "backstop.yaml:2:1: the key `server` is given twice; it is already on line 1",
        ),
        ("server: !!python/object:os.system x\n", "tags (`!name`) are not supported; write the plain value"),
        ("outbox: \"unfinished\n", "this is not YAML"),
        ("- 1\n", "must be keys with values: outbox, queue, dlq, server"),
    ] {
        let ended = Place::with(text).run(&["check"]).with(1);
        assert!(ended.complained.contains(told), "{told}:\n{}", ended.complained);
    }
}

#[test]
fn a_certificate_that_cannot_be_served_with_is_named_by_its_key() {
    let settings = "\
outbox: {database: {url: 'sqlite:orders.db'}, handlers: [{event-type: Tick, log: }]}
server: {address: '127.0.0.1:0', tls: {certificate: 'file:page.crt', key: 'file:page.key'}}
";
    let place = Place::with(settings);
    let told = || place.run(&["check"]).with(1).complained;
    let missing = told();
    for key in ["server.tls.certificate: there is no such file", "server.tls.key: there is no such file"] {
        assert!(missing.contains(key), "{missing}");
    }
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (ours, other) = (made(), made());
    std::fs::write(place.file("page.crt"), ours.cert.pem()).unwrap();
    std::fs::write(place.file("page.key"), other.signing_key.serialize_pem()).unwrap();
    let mismatched = told();
    let rule = "server.tls.key: cannot be used with `certificate`: it is another certificate's";
    assert!(mismatched.contains(rule) && !mismatched.contains("BEGIN"), "{mismatched}");
    std::fs::write(place.file("page.key"), ours.signing_key.serialize_pem()).unwrap();
    place.run(&["check"]).with(0);
    let ended = place.serve().end("-TERM").with(0);
    assert!(ended.said.contains("  page: https://127.0.0.1:"), "{}", ended.said);
}
