//! Settings as a whole: what a text becomes, and everything that is said of a wrong one.

use std::time::Duration;

use backstop_sql::store::Done;

use super::settings::{Mode, Outbox, Settings};
use super::*;
use crate::handlers::Level;

/// The least that runs.
pub(super) const LEAST: &str = "\
outbox:
  database: {url: 'sqlite:a.db'}
  handlers: [{event-type: Tick, log: }]
";

pub(super) fn checked(text: &str, variables: &[(&str, &str)]) -> Checked {
    check("f.yaml", text, &Surroundings::of(variables, ""))
}

fn settings(text: &str) -> Settings {
    let (settings, _) = checked(text, &[]).settings().unwrap();
    settings
}

pub(super) fn outbox(text: &str) -> Outbox {
    settings(text).outbox.remove(0)
}

fn faults(text: &str) -> Vec<String> {
    checked(text, &[]).faults()
}

/// The least with more lines under `outbox`.
fn with(lines: &str) -> String {
    LEAST.to_owned() + lines
}

/// Rules: O-064, O-080.
#[test]
fn what_is_not_given_has_its_default() {
    let given = outbox(LEAST);
    let backstop_sql::outbox::Config {
        name, dispatcher, retry, poller, claim_locking, purge, metrics, ..
    } = given.config();
    assert_eq!(given.config(), backstop_sql::outbox::Config::default());
    let (mode, database) = (given.mode, given.database);
    assert_eq!((name.as_str(), mode), ("outbox", Mode::SingleNode));
    let table = database.table;
    assert_eq!((table.table.as_str(), database.pool_size, table.migrate), ("outbox_event", 10, true));
    assert_eq!((dispatcher.worker_count, dispatcher.max_attempts), (4, 10));
    assert_eq!((dispatcher.hot_queue_capacity, dispatcher.cold_queue_capacity), (1_000, 1_000));
    assert_eq!((dispatcher.drain_timeout, dispatcher.done), (Duration::from_secs(5), Done::Keep));
    assert_eq!((retry.base, retry.max), (Duration::from_millis(200), Duration::from_secs(60)));
    assert_eq!((poller.interval, poller.batch_size), (Duration::from_secs(5), 50));
    assert_eq!(poller.skip_recent, Duration::ZERO);
    assert_eq!((claim_locking.enabled, claim_locking.lock_timeout), (false, Duration::from_secs(300)));
    assert_eq!((purge.enabled, purge.retention), (false, Duration::from_secs(7 * 24 * 3_600)));
    assert_eq!((purge.batch_size, purge.interval), (500, Duration::from_secs(3_600)));
    assert_eq!((metrics.enabled, metrics.name_prefix), (true, None));
    let server = settings(LEAST).server;
    assert_eq!((server.enabled, server.address.to_string().as_str()), (true, "127.0.0.1:7878"));
}

/// Rules: O-064, O-065, O-066, O-067, O-068, O-069, O-070, O-071, O-079.
#[test]
fn every_group_is_read_under_the_names_of_the_builders() {
    let given = outbox(
        "\
outbox:
  mode: multi-node
  database: {url: 'postgres://u@h/d', table: t, pool-size: 3, migrate: false, wake-ups: false, behind-pooler: true}
  dispatcher:
    worker-count: 8
    hot-queue-capacity: 9
    cold-queue-capacity: 11
    max-attempts: 3
    drain-timeout-ms: 2500
    done: delete
  retry: {base-delay-ms: 100, max-delay-ms: 30s}
  poller: {interval-ms: 250, batch-size: 7, skip-recent: 1s}
  claim-locking: {enabled: true, lock-timeout: 2m, owner-id: node-1, hot-grace: 10s}
  purge: {enabled: true, retention: 1d, batch-size: 9, interval-seconds: 60}
  metrics: {enabled: false, name-prefix: orders.outbox}
  handlers: [{aggregate-type: Order, event-type: [Placed, Paid], log: {level: debug}}]
",
    );
    assert_eq!(given.mode, Mode::MultiNode);
    assert_eq!((given.database.table.table.as_str(), given.database.pool_size), ("t", 3));
    let (table, config) = (&given.database.table, given.config());
    assert!(!table.migrate && !table.wake_ups && table.behind_pooler);
    let dispatcher = config.dispatcher;
    assert_eq!((dispatcher.worker_count, dispatcher.max_attempts, dispatcher.done), (8, 3, Done::Delete));
    assert_eq!((dispatcher.hot_queue_capacity, dispatcher.cold_queue_capacity), (9, 11));
    assert_eq!(dispatcher.drain_timeout, Duration::from_millis(2_500));
    assert_eq!(config.retry.base, Duration::from_millis(100));
    assert_eq!(config.retry.max, Duration::from_secs(30));
    assert_eq!((config.poller.interval, config.poller.batch_size), (Duration::from_millis(250), 7));
    assert_eq!(config.poller.skip_recent, Duration::from_secs(1));
    let claims = config.claim_locking;
    assert!(claims.enabled && claims.owner_id.as_deref() == Some("node-1"));
    assert_eq!((claims.lock_timeout, claims.hot_grace), (Duration::from_secs(120), Duration::from_secs(10)));
    assert_eq!((config.purge.enabled, config.purge.retention), (true, Duration::from_secs(24 * 3_600)));
    assert_eq!((config.purge.batch_size, config.purge.interval), (9, Duration::from_secs(60)));
    assert_eq!(
        (config.metrics.enabled, config.metrics.name_prefix.as_deref()),
        (false, Some("orders.outbox"))
    );
    let handler = &given.handlers[0];
    assert_eq!((handler.aggregate_type.as_deref(), handler.event_type.len()), (Some("Order"), 2));
    assert_eq!(handler.log.as_ref().map(|log| log.level), Some(Level::Debug));
}

/// Rules: O-079.
#[test]
fn each_mode_has_its_word() {
    for (word, mode) in
        [("single-node", Mode::SingleNode), ("ordered", Mode::Ordered), ("writer-only", Mode::WriterOnly)]
    {
        assert_eq!(outbox(&with(&format!("  mode: {word}\n"))).mode, mode);
        assert_eq!(mode.to_string(), word);
    }
}

/// Rules: O-069, O-083.
#[test]
fn several_nodes_need_claim_locking_and_it_is_off_unless_switched_on() {
    let refusal =
        "multi-node requires claim-locking.enabled: true, so that two nodes do not take the same row";
    let told = faults(&with("  mode: multi-node\n"));
    assert_eq!(told, [format!("f.yaml:1:1: outbox.claim-locking.enabled: {refusal}")]);
    let told = faults(&with("  mode: multi-node\n  claim-locking: {enabled: false}\n"));
    assert_eq!(told, [format!("f.yaml:5:19: outbox.claim-locking.enabled: {refusal}")]);
    assert!(faults(&with("  mode: multi-node\n  claim-locking: {enabled: true}\n")).is_empty());
}

#[test]
fn behind_a_pooler_a_single_node_cannot_keep_its_guard() {
    let least =
        |more: &str| LEAST.replace("{url: 'sqlite:a.db'}", &format!("{{url: 'postgres://u@h/d', {more}}}"));
    let rule = "does not work in mode single-node behind a pooler: use mode: multi-node, or make sure that there is one \
                process, and write guard: false";
    let told = faults(&least("behind-pooler: true"));
    assert_eq!(told, [format!("f.yaml:2:39: outbox.database.behind-pooler: database.guard {rule}")]);
    let told = faults(&least("behind-pooler: true, guard: true"));
    assert_eq!(told, [format!("f.yaml:2:60: outbox.database.guard: {rule}")]);
    assert!(faults(&least("behind-pooler: true, guard: false")).is_empty());
    let several = "  mode: multi-node\n  claim-locking: {enabled: true}\n";
    assert!(faults(&(least("behind-pooler: true") + several)).is_empty());
}

#[test]
fn beside_the_java_framework_there_are_claims_and_young_rows_are_left_alone() {
    let least = LEAST.replace("{url: 'sqlite:a.db'}", "{url: 'mysql://u@h/d', beside-java: true}");
    let with = |lines: &str| least.clone() + lines;
    let claims = "  mode: multi-node\n  claim-locking: {enabled: true}\n";
    let young = "must be longer than zero with database.beside-java, such as 10s: the rows that the Java framework has in \
                 memory are unclaimed";
    let alone =
        "needs mode: multi-node, not single-node: only claims keep two processes from taking the same row";
    assert_eq!(
        faults(&least),
        [
            format!("f.yaml:1:1: outbox.poller.skip-recent: {young}"),
            format!("f.yaml:2:36: outbox.database.beside-java: {alone}"),
        ]
    );
    let told = faults(&with(&format!("{claims}  poller: {{skip-recent: 0s}}\n")));
    assert_eq!(told, [format!("f.yaml:6:12: outbox.poller.skip-recent: {young}")]);
    let fine = with(&format!("{claims}  poller: {{skip-recent: 10s}}\n"));
    assert!(faults(&fine).is_empty() && outbox(&fine).database.table.beside_java);
    let graced = fine.replace("enabled: true}", "enabled: true, hot-grace: 1s}");
    let warned = checked(&graced, &[]).warnings();
    let idle = "has no effect with database.beside-java: born claims last as long as any other";
    assert_eq!(warned, [format!("f.yaml:5:34: outbox.claim-locking.hot-grace: {idle}")]);
}

#[test]
fn a_time_zone_is_utc_or_a_fixed_distance_from_it_and_means_nothing_on_sqlite() {
    let on = |url: &str, zone: &str| {
        LEAST.replace("{url: 'sqlite:a.db'}", &format!("{{url: '{url}', time-zone: {zone}}}"))
    };
    assert_eq!(outbox(LEAST).database.table.time_zone, "UTC");
    assert_eq!(outbox(&on("mysql://u@h/d", "+02:00")).database.table.time_zone, "+02:00");
    assert!(faults(&on("sqlite:a.db", "UTC")).is_empty());
    let told = faults(&on("mysql://u@h/d", "Europe/Berlin"));
    let what =
        "must be UTC or a fixed distance from it such as +02:00, at most 14 hours, not `Europe/Berlin`";
    assert_eq!(told, [format!("f.yaml:2:47: outbox.database.time-zone: {what}")]);
    let told = faults(&on("sqlite:a.db", "+02:00"));
    let what = "has no effect on SQLite, which keeps times in UTC";
    assert_eq!(told, [format!("f.yaml:2:34: outbox.database.time-zone: {what}")]);
}

/// Rules: O-077.
#[test]
fn without_a_database_there_is_no_outbox() {
    let told = faults("outbox:\n  handlers: [{event-type: Tick, log: }]\n");
    assert_eq!(told, ["f.yaml:1:1: outbox.database.url: is required: without a database there is no outbox"]);
    let told = faults("server: {enabled: false}\n");
    assert_eq!(
        told,
        [
            "f.yaml:1:1: outbox: is required, or a queue: there is nothing to run; `backstop init` writes an example"
        ]
    );
    assert_eq!(faults(""), told);
}

#[test]
fn the_starter_file_has_no_fault_and_no_warning() {
    let starter = checked(&starter::text(), &[]);
    assert!(starter.faults().is_empty() && starter.warnings().is_empty(), "{:?}", starter.faults());
    let (settings, _) = starter.settings().unwrap();
    assert_eq!(settings.server, backstop_admin::Config::default(), "it shows the defaults");
}

/// Whoever takes the comment away from a setting gets one that is right.
#[test]
fn what_is_commented_out_in_the_starter_file_is_right_too() {
    let is_setting = |text: &str| {
        let text = text.trim_start().trim_start_matches("- ");
        let key = text.split_once(':').map(|(key, _)| key);
        key.is_some_and(|key| {
            key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        })
    };
    let mut settings = 0;
    let uncommented: Vec<_> = starter::text()
        .lines()
        .map(|line| match line.split_once("# ") {
            Some((before, text)) if before.trim().is_empty() && is_setting(text) => {
                settings += 1;
                format!("{before}{text}")
            }
            _ => line.to_owned(),
        })
        .collect();
    let text = uncommented.join("\n").replace('…', &"0f".repeat(32));
    let checked = checked(&text, &[("BILLING_TOKEN", "Bearer t0ken")]);
    assert_eq!(checked.faults(), [""; 0], "{text}");
    assert!(settings > 20, "{settings}");
}

#[test]
fn several_outboxes_are_kept_apart() {
    let two = |first: &str, second: &str| {
        let handlers = "handlers: [{event-type: Tick, log: }]";
        format!("outbox:\n  - {{{first}, {handlers}}}\n  - {{{second}, {handlers}}}\n")
    };
    let fine = two("name: a, database: {url: 'sqlite:a.db'}", "name: b, database: {url: 'sqlite:b.db'}");
    assert_eq!(settings(&fine).outbox.len(), 2);
    let same = two("name: a, database: {url: 'sqlite:a.db'}", "name: a, database: {url: 'sqlite:a.db'}");
    assert_eq!(
        faults(&same),
        [
            "f.yaml:3:6: outbox[1].name: the name `a` is taken by outbox.a on line 2; give each outbox its own",
            "f.yaml:3:15: outbox[1].database.table: outbox `a` has this table already",
        ]
    );
    let metrics = "metrics: {name-prefix: m}";
    // One prefix for both is fine: their metrics differ by the label `outbox`, and names are apart.
    let alike = two(
        &format!("name: a, database: {{url: 'sqlite:a.db'}}, {metrics}"),
        &format!("name: b, database: {{url: 'sqlite:b.db'}}, {metrics}"),
    );
    let prefixes = settings(&alike).outbox.into_iter().map(|outbox| outbox.config().metrics.name_prefix);
    assert_eq!(prefixes.collect::<Vec<_>>(), [Some("m".to_owned()), Some("m".to_owned())]);
}

#[test]
fn faults_of_two_outboxes_with_one_name_stand_at_their_own_lines() {
    let told = faults(
        "outbox:
  - name: a
    database: {url: 'sqlite:a.db'}
    retry: {base-delay-ms: 2s, max-delay-ms: 1s}
    handlers: [{event-type: Tick}]
  - name: a
    database: {url: 'sqlite:b.db'}
    retry: {base-delay-ms: 2s, max-delay-ms: 1s}
    handlers: [{event-type: Tick, dlq: none, log: }]
",
    );
    let expected = [
        "f.yaml:4:32: outbox.a.retry.max-delay-ms: must not be shorter than base-delay-ms",
        "f.yaml:5:16: outbox.a.handlers[0]: names no target; add one of log, http, kafka",
        "f.yaml:6:5: outbox[1].name: the name `a` is taken by outbox.a on line 2; give each outbox its own",
        "f.yaml:8:32: outbox[1].retry.max-delay-ms: must not be shorter than base-delay-ms",
        "f.yaml:9:35: outbox[1].handlers[0].dlq: there is no dlq with the name `none`; there is no section `dlq` at the \
         top level",
    ];
    assert_eq!(told, expected);
}

#[test]
fn control_characters_of_the_file_are_escaped() {
    let told = faults(&with("  mode: \"\\e[2Jred\\r\\u202E\"\n  \"\\e[31m\": 1\n"));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains(r"not `\u{1b}[2Jred\u{d}\u{202e}`"), "{told:?}");
    assert!(told.iter().all(|line| !line.contains(char::is_control)), "{told:?}");
}

#[test]
fn the_url_of_a_handler_is_kept_where_secrets_are_and_shown_nowhere() {
    let to = |url: &str| LEAST.replace("log: ", &format!("http: {{url: '{url}'}}"));
    let hook = ("HOOK", "https://hooks.example/t0ken");
    let (given, _) = checked(&to("env:HOOK"), &[hook]).settings().unwrap();
    let http = given.outbox[0].handlers[0].http.as_ref().unwrap();
    assert_eq!(http.url.reveal(), "https://hooks.example/t0ken");
    assert!(!format!("{given:?}").contains("t0ken"));
    assert!(faults(&to("https://hooks.example/t0ken")).is_empty(), "it may also stand in the file");
    let told = checked(&to("env:HOOK"), &[("HOOK", "htps://hooks.example/t0ken")]).faults();
    let what = "must begin with https:// or http://";
    assert_eq!(told, [format!("f.yaml:3:45: outbox.handlers[0].http.url: {what}")]);
    let told = faults(&to("https://me:t0ken@hooks.example/"));
    let what = "must not hold a user name or password, which go into a header such as `authorization`";
    assert_eq!(told, [format!("f.yaml:3:45: outbox.handlers[0].http.url: {what}")]);
}

#[test]
fn a_secret_that_stands_where_a_key_does_is_not_repeated() {
    let told = faults(&LEAST.replace("{url: 'sqlite:a.db'}", "{url:postgres://u:tiger@h/d}"));
    assert!(
        told.contains(&"f.yaml:2:14: outbox.database.url: a space must follow the colon".to_owned()),
        "{told:?}"
    );
    let twice = faults(&with("  'u:tiger@h': 1\n  'u:tiger@h': 2\n"));
    assert!(twice.iter().any(|line| line.contains("the key is given twice")), "{twice:?}");
    assert!(told.iter().chain(&twice).all(|line| !line.contains("tiger")), "{told:?} {twice:?}");
}

#[test]
fn a_handler_goes_to_one_place_and_a_pair_has_one_handler() {
    let told = faults(
        "outbox:
  database: {url: 'sqlite:a.db'}
  handlers:
    - {event-type: A}
    - {event-type: B, log: , kafka: {bootstrap-servers: 'h:1', topic: t}}
    - {event-type: [C, D], log: }
    - {event-type: D, log: }
    - {aggregate-type: Order, event-type: D, log: }
    - {event-type: E, http: {url: 'http://10.0.0.7/'}}
    - {event-type: F, kafka: {bootstrap-servers: [h, 'h:1'], topic: a b, linger: 2s}}
    - {event-type: G, http: {url: 'https://h/'}}
",
    );
    assert_eq!(
        told,
        [
            "f.yaml:4:7: outbox.handlers[0]: names no target; add one of log, http, kafka",
            "f.yaml:5:7: outbox.handlers[1]: must have one of log, kafka, not several",
            "f.yaml:7:8: outbox.handlers[3].event-type: `D` has a handler already: outbox.handlers[2]",
            "f.yaml:9:30: outbox.handlers[5].http.url: must not name 10.0.0.7, which is not public: allow it with \
             `allowed-networks` if that is intended",
            "f.yaml:10:51: outbox.handlers[6].kafka.bootstrap-servers[0]: must name at least one broker, as host:port, not \
             `h`",
            "f.yaml:10:69: outbox.handlers[6].kafka.topic: must have 1 to 249 letters, digits, dots, hyphens and \
             underscores, not `a b`",
            "f.yaml:10:82: outbox.handlers[6].kafka.linger: must be a time from 0s to 1s such as 500ms, 10s, 5m, 1h or 7d, \
             not `2s`; a number alone has no unit",
        ]
    );
}

#[test]
fn settings_that_mean_nothing_in_the_mode_are_warned_of() {
    let text = with("  mode: writer-only\n  retry: {base-delay-ms: 1}\n  purge: {retention: 1d}\n");
    assert!(faults(&text).is_empty());
    assert_eq!(
        checked(&text, &[]).warnings(),
        [
            "f.yaml:3:3: outbox.handlers: has no effect in mode writer-only",
            "f.yaml:5:3: outbox.retry: has no effect in mode writer-only",
            "f.yaml:6:3: outbox.purge: has no effect without enabled: true",
        ]
    );
    let ordered = checked(&with("  mode: ordered\n  dispatcher: {worker-count: 3}\n"), &[]).warnings();
    assert_eq!(ordered, ["f.yaml:5:16: outbox.dispatcher.worker-count: has no effect in mode ordered"]);
}

#[test]
fn an_open_address_needs_tokens() {
    let token = "tokens: [{name: ops, role: admin, sha256: ";
    let open = |tokens: &str| LEAST.to_owned() + &format!("server: {{address: '0.0.0.0:80'{tokens}}}\n");
    let told = faults(&open(""));
    assert!(
        told[0].starts_with("f.yaml:4:10: server.address: 0.0.0.0:80 can be reached from other machines"),
        "{told:?}"
    );
    assert!(faults(&open(&format!(", {token}{}}}]", "0f".repeat(32)))).is_empty());
    let told = faults(&open(&format!(", {token}abc}}]")));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("server.tokens[0].sha256: must be the 64 hexadecimal digits"), "{told:?}");
    let told =
        faults(&(LEAST.to_owned() + "server: {hosts: [backstop.example, 'https://backstop.example']}\n"));
    let what = "`https://backstop.example` must be a name alone, without scheme, port or path";
    assert_eq!(told, [format!("f.yaml:4:10: server.hosts: {what}")]);
    for host in ["*", "*.example", "backstop.*"] {
        let told = faults(&(LEAST.to_owned() + &format!("server: {{hosts: ['{host}']}}\n")));
        let what =
            "is not a host name; write each name by which clients reach the server, such as backstop.example";
        assert_eq!(told, [format!("f.yaml:4:10: server.hosts: `{host}` {what}")]);
    }
    let off = LEAST.to_owned() + "server: {enabled: false, address: '0.0.0.0:80'}\n";
    assert!(faults(&off).is_empty(), "what is off is reached by nobody");
}

#[test]
fn variables_take_the_place_of_values_and_are_named_when_they_are_wrong() {
    let (given, _) = checked(
        LEAST,
        &[
            ("BACKSTOP__OUTBOX__DISPATCHER__WORKER_COUNT", "16"),
            ("BACKSTOP__OUTBOX__CLAIM_LOCKING__LOCK_TIMEOUT", "1m"),
            ("BACKSTOP__OUTBOX__DATABASE__URL", "env:URL"),
            ("BACKSTOP__SERVER__HOSTS", "a.example, b.example"),
            ("BACKSTOP__OUTBOX__MODE", ""),
            ("BACKSTOP_LOG", "not ours"),
            ("URL", "postgres://u:tiger@h/d"),
        ],
    )
    .settings()
    .unwrap();
    assert_eq!(given.outbox[0].config().dispatcher.worker_count, 16);
    assert_eq!(given.outbox[0].config().claim_locking.lock_timeout, Duration::from_secs(60));
    assert_eq!(given.outbox[0].database.url.reveal(), "postgres://u:tiger@h/d");
    assert_eq!(given.server.hosts, ["a.example", "b.example"]);
    assert!(!format!("{given:?}").contains("tiger"), "secrets stay out of Debug");

    let wrong = [
        ("BACKSTOP__OUTBOX__MODE", "twin"),
        ("BACKSTOP__OUTBOX__POLER__INTERVAL_MS", "5"),
        ("BACKSTOP__OUTBOX__DATABASE__URL", "oracle:tiger"),
        ("BACKSTOP____MODE", "x"),
        ("BACKSTOP__OUTBOX__HANDLERS__X", "y"),
        ("BACKSTOP__OUTBOX__DATABASE__TABLE__NAME", "y"),
    ];
    assert_eq!(
        checked(&with("  name: a\n"), &wrong).faults(),
        [
            "BACKSTOP__OUTBOX__DATABASE__TABLE__NAME: outbox.database.table: must be a letter or underscore followed by \
             letters, digits or underscores, at most 63 in all, not more keys",
            "BACKSTOP__OUTBOX__DATABASE__URL: outbox.database.url: must be a URL that begins with postgres:, mysql:, \
             mariadb: or sqlite:",
            "BACKSTOP__OUTBOX__HANDLERS__X: outbox.handlers.x: the items of this list can be set only in the file",
            "BACKSTOP__OUTBOX__MODE: outbox.mode: must be one of single-node, multi-node, ordered, writer-only, not `twin`",
            "BACKSTOP__OUTBOX__POLER__INTERVAL_MS: outbox.poler: there is no such key; did you mean `poller`?",
            "BACKSTOP____MODE: names no key; write two underscores between keys, as in BACKSTOP__SERVER__ADDRESS",
        ]
    );
}

#[test]
fn variables_find_an_outbox_in_a_list_by_its_name() {
    let list =
        "outbox: [{name: new-orders, database: {url: 'sqlite:a.db'}, handlers: [{event-type: T, log: }]}]\n";
    let (given, _) = checked(list, &[("BACKSTOP__OUTBOX__NEW_ORDERS__MODE", "ordered")]).settings().unwrap();
    assert_eq!(given.outbox[0].mode, Mode::Ordered);
    let told = checked(list, &[("BACKSTOP__OUTBOX__NEW_ODERS__MODE", "ordered")]).faults();
    let what = "nothing in the list has the name `new-oders`; did you mean `new-orders`?";
    assert_eq!(told, [format!("BACKSTOP__OUTBOX__NEW_ODERS__MODE: outbox.new-oders.mode: {what}")]);
}

#[test]
fn a_password_in_the_file_is_warned_of_and_not_shown() {
    let text = LEAST.replace("sqlite:a.db", "postgres://u:tiger@h/d");
    let warned = checked(&text, &[]).warnings();
    assert_eq!(warned.len(), 1);
    assert!(
        warned[0].starts_with("f.yaml:2:19: outbox.database.url: the password is in the file"),
        "{warned:?}"
    );
    assert!(!warned[0].contains("tiger"));
}

#[test]
fn dead_letter_directories_are_read_and_named_by_outboxes_and_handlers() {
    let given = settings(
        "\
outbox:
  database: {url: 'sqlite:a.db'}
  dlq: all
  handlers: [{event-type: Tick, log: , dlq: ticks}]
dlq:
  - {name: all, directory: /var/dlq}
  - {name: ticks, directory: ticks, create: true, details: true, rolling: {enabled: true, max-bytes: 9, max-age: 5s, idle: 2s}}
",
    );
    let [all, ticks] = &given.dlq[..] else { panic!("two directories") };
    assert_eq!(
        (all.path.as_str(), all.name.as_str(), all.config.directory.to_str()),
        ("dlq.all", "all", Some("/var/dlq"))
    );
    assert!(!all.config.create && !all.config.details && !all.config.rolling.enabled);
    assert_eq!(
        (all.config.rolling.max_bytes, all.config.rolling.max_age),
        (16 * 1024 * 1024, Duration::from_secs(60))
    );
    assert_eq!(all.config.rolling.idle, Duration::from_secs(1));
    assert!(ticks.config.create && ticks.config.details && ticks.config.rolling.enabled);
    assert_eq!((ticks.config.rolling.max_bytes, ticks.config.rolling.max_age), (9, Duration::from_secs(5)));
    assert_eq!(ticks.config.rolling.idle, Duration::from_secs(2));
    let outbox = &given.outbox[0];
    assert_eq!((outbox.dlq.as_deref(), outbox.handlers[0].dlq.as_deref()), (Some("all"), Some("ticks")));
    // One alone may do without a list and without a name.
    let one = settings(&with("  dlq: dlq\ndlq: {directory: d}\n"));
    assert_eq!((one.dlq[0].path.as_str(), one.dlq[0].name.as_str()), ("dlq", "dlq"));
    let variable = ("BACKSTOP__DLQ__DIRECTORY", "/elsewhere");
    let (given, _) = checked(&with("  dlq: dlq\ndlq: {directory: d}\n"), &[variable]).settings().unwrap();
    assert_eq!(given.dlq[0].config.directory.to_str(), Some("/elsewhere"));
}

#[test]
fn a_directory_that_nobody_knows_is_told_with_what_was_meant() {
    assert_eq!(
        faults(&with("  dlq: order\ndlq: [{name: orders, directory: d}, {name: paid, directory: e}]\n")),
        ["f.yaml:4:3: outbox.dlq: there is no dlq with the name `order`; did you mean `orders`?"]
    );
    assert_eq!(
        faults(&with("  dlq: elsewhere\ndlq: [{name: orders, directory: d}, {name: paid, directory: e}]\n")),
        ["f.yaml:4:3: outbox.dlq: there is no dlq with the name `elsewhere`; known are orders, paid"]
    );
    assert_eq!(
        faults(&LEAST.replace("log: }", "log: , dlq: x}")),
        [
            "f.yaml:3:40: outbox.handlers[0].dlq: there is no dlq with the name `x`; there is no section `dlq` at the top level"
        ]
    );
}

#[test]
fn directories_are_apart_complete_and_used() {
    let two = "  dlq: a\ndlq:\n  - {name: a, directory: d}\n  - {name: a, directory: d}\n";
    let told = faults(&with(two));
    assert!(
        told[0].ends_with("the name `a` is taken by dlq.a on line 6; give each directory its own"),
        "{told:?}"
    );
    assert!(told[1].contains("dlq `a` has this directory already"), "{told:?}");
    let told = faults(&with("  dlq: a\ndlq: {name: a, directry: d}\n"));
    assert!(told[0].contains("dlq.directory: is required: it says where failed events are kept"), "{told:?}");
    assert!(told[1].contains("dlq.directry: there is no such key; did you mean `directory`?"), "{told:?}");
    let idle = checked(&with("dlq: {directory: d, rolling: {idle: 2s}}\n"), &[]).warnings();
    assert!(
        idle[0].contains("no outbox, queue or handler says dlq: dlq, so nothing is written there"),
        "{idle:?}"
    );
    assert!(idle[1].contains("dlq.rolling: has no effect without enabled: true"), "{idle:?}");
}

#[test]
fn a_star_is_for_all_events_that_no_other_handler_is_for_and_stands_alone() {
    let with = |handler: &str| LEAST.replace("{event-type: Tick, log: }", handler);
    assert!(faults(&with("{event-type: Tick, log: }, {event-type: '*', log: }")).is_empty());
    for wrong in ["{event-type: ['*', Tick], log: }", "{aggregate-type: Order, event-type: '*', log: }"] {
        let told = faults(&with(wrong));
        assert!(told.len() == 1 && told[0].contains("`*` must be alone"), "{told:?}");
    }
    let twice = faults(&with("{event-type: '*', log: }, {event-type: '*', log: }"));
    assert!(twice.len() == 1 && twice[0].contains("has a handler already"), "{twice:?}");
}
