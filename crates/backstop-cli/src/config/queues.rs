//! The sections `queue`: what they become, and what is said of wrong ones.

use std::time::Duration;

use backstop_sql::queue::{Config, OnFailure};

use super::settings::Queue;
use super::tests::{LEAST, checked};

/// The least that runs.
const JOBS: &str = "\
queue:
  database: {url: 'sqlite:a.db'}
  handlers: [{event-type: InvoiceRequested, log: }]
";

fn queues(text: &str) -> Vec<Queue> {
    let (settings, _) = checked(text, &[]).settings().unwrap();
    settings.queue
}

fn faults(text: &str) -> Vec<String> {
    checked(text, &[]).faults()
}

#[test]
fn a_queue_alone_is_enough_and_has_the_defaults_of_the_library() {
    let given = queues(JOBS).remove(0);
    assert_eq!(given.config(), Config::default());
    assert_eq!((given.name.as_str(), given.database.pool_size), ("queue", 10));
    assert_eq!(checked(JOBS, &[]).warnings(), [] as [&str; 0]);
}

#[test]
fn every_setting_of_a_queue_can_be_given_in_the_file_and_in_the_environment() {
    let text = "\
queue:
  name: jobs
  database: {url: 'postgres://u@h/d', pool-size: 3, table: jobs, log-table: jobs_log, migrate: false, wake-ups: false,
    behind-pooler: true, tls: {mode: require}}
  abandoned-timeout: 90s
  max-attempts: 7
  on-failure: retry
  retry: {base-delay-ms: 100, max-delay-ms: 1000}
  purge: {enabled: true, retention: 3d}
  metrics: {enabled: false}
  source: /shop
  concurrency: 2
  batch-size: 50
  idle-wait: 1s
  drain-timeout-ms: 200
  dead-letter-timeout: 2s
  dlq: lost
  handlers: [{event-type: [A, B], log: }, {event-type: '*', http: {url: 'https://h/'}}]
dlq: {name: lost, directory: d}
";
    let checked = checked(text, &[("BACKSTOP__QUEUE__CONCURRENCY", "5")]);
    assert_eq!(checked.warnings(), [] as [&str; 0]);
    let (settings, _) = checked.settings().unwrap();
    let given = &settings.queue[0];
    let config = given.config();
    let tables = &config.database;
    assert_eq!((tables.table.as_str(), tables.log_table.as_str()), ("jobs", "jobs_log"));
    assert!(!tables.migrate && !tables.wake_ups && tables.behind_pooler);
    assert_eq!((config.abandoned_timeout, config.max_attempts), (Duration::from_secs(90), Some(7)));
    assert_eq!((config.retry.base, config.retry.max), (Duration::from_millis(100), Duration::from_secs(1)));
    assert!(config.purge.enabled && !config.metrics.enabled);
    assert_eq!((config.worker.concurrency, config.worker.batch_size), (5, 50));
    assert_eq!(config.worker.on_failure, OnFailure::Retry);
    assert_eq!(
        (config.worker.idle_wait, config.worker.drain_timeout, config.worker.dead_letter_timeout),
        (Duration::from_secs(1), Duration::from_millis(200), Duration::from_secs(2))
    );
    assert_eq!((config.source.as_deref(), given.dlq.as_deref()), (Some("/shop"), Some("lost")));
    assert_eq!((given.handlers.len(), given.database.pool_size), (2, 3));
    assert!(given.handlers[1].is_for_the_rest());
}

#[test]
fn every_mistake_in_a_queue_is_named_at_its_own_line() {
    let text = "\
queue:
  database: {url: 'sqlite:a.db', log-table: events, behind-pooler: true, guard: false}
  on-failure: retires
  abandoned-timeout: 0s
  max-attempts: 0
  retry: {base-delay-ms: 100, max-delay-ms: 10}
  concurency: 4
  dlq: nowhere
  handlers:
    - {event-type: A, aggregate-type: Order, log: }
    - {event-type: A, log: }
    - {event-type: ['*', B], log: }
    - {event-type: C}
";
    let told = faults(text);
    for part in [
        "f.yaml:2:34: queue.database.log-table: must be another table than `table`",
        "f.yaml:2:53: queue.database.behind-pooler: is for PostgreSQL only",
        "f.yaml:2:74: queue.database.guard: there is no such key",
        "f.yaml:3:15: queue.on-failure: must be one of fail, retry, not `retires`",
        "f.yaml:4:22: queue.abandoned-timeout: must be a time",
        "f.yaml:5:17: queue.max-attempts: must be",
        "queue.retry.max-delay-ms: must not be shorter than base-delay-ms",
        "f.yaml:7:3: queue.concurency: there is no such key; did you mean `concurrency`?",
        "f.yaml:8:3: queue.dlq: there is no dlq with the name `nowhere`; there is no section `dlq` at the top level",
        "f.yaml:10:23: queue.handlers[0].aggregate-type: there is no such key",
        "queue.handlers[1].event-type: `A` has a handler already: queue.handlers[0]",
        "queue.handlers[2].event-type: `*` must be alone",
        "queue.handlers[3]: names no target; add one of log, http, kafka",
    ] {
        assert!(told.iter().any(|fault| fault.contains(part)), "{part}\n{}", told.join("\n"));
    }
    assert_eq!(told.len(), 13, "{}", told.join("\n"));
    let told = faults("queue:\n  handlers: [{event-type: A, log: }]\n");
    assert_eq!(told, ["f.yaml:1:1: queue.database.url: is required: without a database there is no queue"]);
}

#[test]
fn names_and_tables_of_queues_and_outboxes_are_apart() {
    let text = LEAST.replace("outbox:\n", "outbox:\n  name: jobs\n")
        + "queue:
  - {name: jobs, database: {url: 'sqlite:a.db', log-table: outbox_event}}
  - {name: mail, database: {url: 'sqlite:a.db', table: mail, log-table: events}}
  - {name: late, database: {url: 'sqlite:b.db'}}
  - {database: {url: 'sqlite:c.db'}}
";
    assert_eq!(
        faults(&text),
        [
            "f.yaml:6:6: queue.jobs.name: the name `jobs` is taken by outbox on line 1; give each queue its own",
            "f.yaml:6:49: queue.jobs.database.log-table: outbox `jobs` has this table already",
            "f.yaml:7:62: queue.mail.database.log-table: queue `jobs` has this table already",
            "f.yaml:9:5: queue[3].name: is required where there are several",
        ]
    );
}

#[test]
fn what_has_no_effect_in_a_queue_is_warned_about() {
    let text = "\
queue:
  database: {url: 'sqlite:a.db'}
  retry: {base-delay-ms: 100}
  purge: {retention: 3d}
  dead-letter-timeout: 2s
";
    assert_eq!(
        checked(text, &[]).warnings(),
        [
            "f.yaml:1:1: queue: has no handlers, so no events are taken from it: it is shown, and purged",
            "f.yaml:3:3: queue.retry: has no effect without on-failure: retry",
            "f.yaml:4:3: queue.purge: has no effect without enabled: true",
            "f.yaml:5:3: queue.dead-letter-timeout: has no effect without dlq",
        ]
    );
}
