//! The table of keys of the settings file, composed of the tables of its components.
//!
//! Each component's `Config` declares its keys, with kind, default and meaning; here stands what belongs to the daemon
//! alone. The check, the overrides and the reference page follow from the whole.

use backstop_core::config::{Absent, Config as _, Group, Holds, Key, Kind, join};
use backstop_disk::dlq;
use serde_json::Map;

use super::kinds::{DATABASE_URL, TABLE, TIME_ZONE};
use crate::handlers;
use Absent::{Is, Required, Unset};

const AT_LEAST_ONE: Kind = Kind::AT_LEAST_ONE;
const MILLIS: Kind = Kind::MILLIS;
const SECONDS: Kind = Kind::SECONDS;
const TIME: Kind = Kind::TIME;
const TIME_OR_ZERO: Kind = Kind::TIME_OR_ZERO;

/// Keys that no `Config` declares: those of the daemon itself and, so far, of the outbox.
const fn by_hand(keys: &'static [Key]) -> Group {
    Group { keys, defaults: Map::new }
}

const fn one(name: &'static str, kind: Kind, absent: Absent, meaning: &'static str) -> Key {
    Key { name, holds: Holds::One(kind, absent), meaning }
}

const fn many(name: &'static str, kind: Kind, absent: Absent, meaning: &'static str) -> Key {
    Key { name, holds: Holds::Many(kind, absent), meaning }
}

const fn group(name: &'static str, keys: &'static [Key], meaning: &'static str) -> Key {
    Key { name, holds: Holds::Group(by_hand(keys)), meaning }
}

/// Everything.
pub(crate) static ROOT: &[Key] = &[
    Key {
        name: "outbox",
        holds: Holds::GroupOrGroups(by_hand(OUTBOX)),
        meaning: "An outbox, or a list of them, each with a `name`.",
    },
    Key {
        name: "dlq",
        holds: Holds::GroupOrGroups(DLQ),
        meaning: "A dead-letter directory, or a list of them, each with a `name` by which an outbox or a handler sends \
                  what it gives up there too.",
    },
    Key {
        name: "server",
        holds: Holds::Group(backstop_admin::Config::GROUP),
        meaning: "The operator's page, `/health` and `/metrics`.",
    },
];

/// A directory has a name in the daemon, beside the settings of its `Config`.
const DLQ: Group = {
    const NAME: &[Key] =
        &[one("name", Kind::Name, Is("dlq"), "The name by which outboxes and operators know it.")];
    const KEYS: [Key; NAME.len() + dlq::Config::KEYS.len()] = join(NAME, dlq::Config::KEYS);
    Group { keys: &KEYS, defaults: dlq::Config::GROUP.defaults }
};

// What follows is the outbox's, by hand until it has a `Config` too; the handlers at its end have theirs.

const OUTBOX: &[Key] = &[
    one("name", Kind::Name, Is("outbox"), "The name by which operators know it. Each in a list has its own."),
    one(
        "mode",
        Kind::Choice(&["single-node", "multi-node", "ordered", "writer-only"]),
        Is("single-node"),
        "How events are delivered: by this process alone; by several that share the table; in strict order; or by \
         somebody else, as with change-data capture.",
    ),
    group("database", DATABASE, "Where the table is."),
    group("dispatcher", DISPATCHER, "How events are handed to their handlers."),
    group("retry", RETRY, "How long a failed event waits. Each delay is spread by half, up or down."),
    group("poller", POLLER, "How the table is looked through."),
    group("claim-locking", CLAIM_LOCKING, "How several nodes share the table."),
    group("purge", PURGE, "Deleting what is older than it needs to be."),
    group("metrics", METRICS, "What `/metrics` shows."),
    one(
        "dlq",
        Kind::Name,
        Unset("dead events are in the table only"),
        "The `dlq` that events are written to when they die, before their rows become DEAD.",
    ),
    Key {
        name: "handlers",
        holds: Holds::Groups(by_hand(HANDLER)),
        meaning: "What becomes of events, by their types. An event that finds no handler is dead at once.",
    },
];

const DATABASE: &[Key] = &[
    one(
        "url",
        DATABASE_URL,
        Required("without a database there is no outbox"),
        "The database: `postgres:`, `mysql:`, `mariadb:` or `sqlite:`. Better `env:NAME` or `file:PATH` than a \
         password in this file.",
    ),
    one("table", TABLE, Is("outbox_event"), "The table."),
    one(
        "time-zone",
        TIME_ZONE,
        Is("UTC"),
        "The zone of the table's moments where its columns carry none: `DATETIME` on MySQL, `TIMESTAMP` on PostgreSQL. \
         For others it stays `UTC`.",
    ),
    one(
        "beside-java",
        Kind::Flag,
        Is("false"),
        "Whether the Java framework delivers from the same table. It needs mode `multi-node` and `poller.skip-recent`.",
    ),
    one(
        "pool-size",
        Kind::Number { min: 1, max: 1_000 },
        Is("10"),
        "How many connections are held at most. PostgreSQL takes up to five more, MariaDB up to three: for wake-ups, \
         for the lock of a node, for renewing claims, and for settlements while the pool has none.",
    ),
    one(
        "migrate",
        Kind::Flag,
        Is("true"),
        "Whether `serve` creates the table or brings it up to date. Without it `backstop migrate` does.",
    ),
    one(
        "wake-ups",
        Kind::Flag,
        Is("true"),
        "Whether nodes wake each other when one has written rows, where the database can do that (PostgreSQL).",
    ),
    one(
        "behind-pooler",
        Kind::Flag,
        Is("false"),
        "Whether a pooler that shares connections between transactions is in between, as PgBouncer. PostgreSQL only.",
    ),
    one(
        "guard",
        Kind::Flag,
        Is("true"),
        "Whether a second process on the same table is refused at its start if it or the first one runs in a \
         single-node mode (`single-node`, `ordered`). For this each process holds a lock: on a connection beside \
         the pool, or with SQLite in a file beside the database. If that connection is lost and another process \
         takes the table meanwhile, this one delivers nothing until the other stops. Behind a pooler no such lock \
         can be held: write `false` there in a single-node mode, and make sure yourself that only one process \
         runs.",
    ),
];

const DISPATCHER: &[Key] = &[
    one("worker-count", AT_LEAST_ONE, Is("4"), "How many events are handled at the same time."),
    one(
        "hot-queue-capacity",
        AT_LEAST_ONE,
        Is("1000"),
        "How many events committed by this process may wait in memory.",
    ),
    one(
        "cold-queue-capacity",
        AT_LEAST_ONE,
        Is("1000"),
        "How many events found by the poller may wait in memory.",
    ),
    one(
        "queue-bytes",
        Kind::Number { min: 1, max: 1 << 40 },
        Is("67108864"),
        "How many bytes of events may wait in memory, in each of the two queues.",
    ),
    one(
        "max-attempts",
        AT_LEAST_ONE,
        Is("10"),
        "How often a handler is called for an event; then the event is dead.",
    ),
    one(
        "drain-timeout-ms",
        MILLIS,
        Is("5000"),
        "How long the end waits for handlers. What is unfinished stays in the table.",
    ),
    one(
        "done",
        Kind::Choice(&["keep", "delete"]),
        Is("keep"),
        "What becomes of the row of an event that was handled: it stays as DONE, or it is deleted at once.",
    ),
];

const RETRY: &[Key] = &[
    one(
        "base-delay-ms",
        MILLIS,
        Is("200"),
        "The delay after the first failure; each further one doubles it.",
    ),
    one("max-delay-ms", MILLIS, Is("60000"), "The most that doubling leads to."),
];

const POLLER: &[Key] = &[
    one(
        "interval-ms",
        MILLIS,
        Is("5000"),
        "How long to rest between two looks at the table when there is nothing to do.",
    ),
    one(
        "batch-size",
        AT_LEAST_ONE,
        Is("50"),
        "How many rows are read at once; more while a backlog is read.",
    ),
    one(
        "skip-recent",
        TIME_OR_ZERO,
        Is("0s"),
        "Rows younger than this are left to the process that wrote them.",
    ),
];

const CLAIM_LOCKING: &[Key] = &[
    one(
        "enabled",
        Kind::Flag,
        Is("false"),
        "Whether rows are claimed before they are delivered. `multi-node` requires it.",
    ),
    one(
        "lock-timeout",
        TIME,
        Is("5m"),
        "How old a claim must be before another node may take the row: so long do the events of a node that died wait. The same on all nodes.",
    ),
    one(
        "owner-id",
        Kind::Text,
        Unset("made up at each start"),
        "The name under which this node claims rows, new at each start. At most 128 characters.",
    ),
    one("hot-grace", TIME, Is("30s"), "How long a node that has written a row has it to itself."),
];

const PURGE: &[Key] = &[
    one("enabled", Kind::Flag, Is("false"), "Whether rows are deleted when they are old enough."),
    one(
        "retention",
        TIME_OR_ZERO,
        Is("7d"),
        "How long rows that are DONE or DEAD are kept; in `writer-only` rows of any status.",
    ),
    one("batch-size", AT_LEAST_ONE, Is("500"), "How many rows one statement deletes."),
    one("interval-seconds", SECONDS, Is("3600"), "How long to rest between two purges."),
];

const METRICS: &[Key] = &[
    one("enabled", Kind::Flag, Is("true"), "Whether the outbox counts for `/metrics`."),
    one(
        "name-prefix",
        Kind::Text,
        Unset("`outbox`, or `outbox.` and the name where there are several"),
        "What the names of its metrics begin with.",
    ),
];

const HANDLER: &[Key] = &[
    one(
        "aggregate-type",
        Kind::Text,
        Unset("events without an aggregate type"),
        "The kind of thing that the events are about.",
    ),
    many(
        "event-type",
        Kind::Text,
        Required("it says which events are handled"),
        "The event type, or a list of them.",
    ),
    one("dlq", Kind::Name, Unset("that of the outbox"), "The `dlq` of these events."),
    Key {
        name: "log",
        holds: Holds::Choice(handlers::Log::GROUP),
        meaning: "Writes a line for each event into the log.",
    },
    Key {
        name: "http",
        holds: Holds::Choice(backstop_http::Config::GROUP),
        meaning: "Sends each event to a web server as a CloudEvent.",
    },
    Key {
        name: "kafka",
        holds: Holds::Choice(backstop_kafka::Config::GROUP),
        meaning: "Sends each event to a Kafka topic as a CloudEvent.",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn each(keys: &'static [Key], act: &mut impl FnMut(&Key)) {
        for key in keys {
            act(key);
            if let Some(group) = key.holds.group() {
                each(group.keys, act);
            }
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_kind_and_every_meaning_a_sentence() {
        each(ROOT, &mut |key| {
            if let Holds::One(kind, Is(default)) | Holds::Many(kind, Is(default)) = key.holds {
                assert!(kind.read(default).is_ok(), "{}", key.name);
            }
            let Some(group) = key.holds.group() else { return };
            let defaults = (group.defaults)();
            for key in group.keys {
                if let (Holds::One(kind, Absent::Default), Some(value)) = (key.holds, defaults.get(key.name))
                {
                    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                    assert!(kind.read(&text).is_ok(), "{}: {text}", key.name);
                }
            }
            assert!(key.meaning.ends_with('.') && !key.meaning.contains("  "), "{}", key.name);
        });
    }

    #[test]
    fn keys_are_kebab_case_and_stand_once() {
        each(ROOT, &mut |key| {
            assert!(
                key.name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'),
                "{}",
                key.name
            );
        });
        let once = |keys: &[Key]| {
            let names: BTreeSet<_> = keys.iter().map(|key| key.name).collect();
            assert_eq!(names.len(), keys.len(), "{names:?}");
        };
        once(ROOT);
        each(ROOT, &mut |key| {
            if let Some(group) = key.holds.group() {
                once(group.keys);
            }
        });
    }
}
