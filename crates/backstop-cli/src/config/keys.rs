//! The table of keys of the settings file, composed of the tables of its components.
//!
//! Each component's `Config` declares its keys, with kind, default and meaning; here stands what belongs to the daemon
//! alone. The check, the overrides and the reference page follow from the whole.

use backstop_core::config::{Absent, Config as _, Group, Holds, Key, ValueKind, join};
use backstop_disk::dlq;
use backstop_sql::{outbox, queue};
use serde_json::Map;

use super::kinds::DATABASE_URL;
use crate::handlers;
use Absent::{Is, Required, Unset};

/// Keys that no `Config` declares: those of the daemon itself.
const fn by_hand(keys: &'static [Key]) -> Group {
    Group { keys, defaults: Map::new }
}

const fn one(name: &'static str, kind: ValueKind, absent: Absent, meaning: &'static str) -> Key {
    Key { name, holds: Holds::One(kind, absent), meaning }
}

const fn many(name: &'static str, kind: ValueKind, absent: Absent, meaning: &'static str) -> Key {
    Key { name, holds: Holds::Many(kind, absent), meaning }
}

/// Everything.
pub(crate) static ROOT: &[Key] = &[
    Key {
        name: "outbox",
        holds: Holds::GroupOrGroups(OUTBOX),
        meaning: "An outbox, or a list of them, each with a `name`.",
    },
    Key {
        name: "queue",
        holds: Holds::GroupOrGroups(QUEUE),
        meaning: "A queue, or a list of them, each with a `name`.",
    },
    Key {
        name: "dlq",
        holds: Holds::GroupOrGroups(DLQ),
        meaning: "A dead-letter directory, or a list of them, each with a `name`. An outbox, a queue or a handler that \
                  refers to this name writes its dead events there too.",
    },
    Key {
        name: "server",
        holds: Holds::Group(backstop_admin::Config::GROUP),
        meaning: "The dashboard, `/health`, `/live`, `/ready` and `/metrics`.",
    },
];

/// A directory has a name in the daemon, beside the settings of its `Config`.
const DLQ: Group = {
    const NAME: &[Key] = &[one(
        "name",
        ValueKind::Name,
        Is("dlq"),
        "The name by which outboxes, queues and operators know it.",
    )];
    const KEYS: [Key; NAME.len() + dlq::Config::KEYS.len()] = join(NAME, dlq::Config::KEYS);
    Group { keys: &KEYS, defaults: dlq::Config::GROUP.defaults }
};

/// An outbox has a mode, a database that is opened, handlers and a directory in the daemon, beside the settings of its
/// `Config`.
const OUTBOX: Group = {
    const FIRST: &[Key] = &[
        one(
            "name",
            ValueKind::Name,
            Is("outbox"),
            "The name by which operators know it. In a list, each needs its own.",
        ),
        one(
            "mode",
            ValueKind::Choice(&["single-node", "multi-node", "ordered", "writer-only"]),
            Is("single-node"),
            "How events are delivered: by this process alone; by several that share the table; in strict order; or by \
             somebody else, as with change-data capture.",
        ),
        Key { name: "database", holds: Holds::Group(DATABASE), meaning: "Where the table is." },
    ];
    /// What the first two are in the library stands above.
    const PARTS: &[Key] = match outbox::Config::KEYS {
        [_name, _database, parts @ ..] => parts,
        _ => &[],
    };
    const LAST: &[Key] = &[
        one(
            "dlq",
            ValueKind::Name,
            Unset("dead events are in the table only"),
            "The `dlq` that events are written to when they die, before their rows become DEAD.",
        ),
        Key {
            name: "handlers",
            holds: Holds::Groups(by_hand(HANDLER)),
            meaning: "What happens to events, by their types. An event without a handler is dead at once.",
        },
    ];
    const BEGIN: [Key; FIRST.len() + PARTS.len()] = join(FIRST, PARTS);
    const KEYS: [Key; BEGIN.len() + LAST.len()] = join(&BEGIN, LAST);
    Group { keys: &KEYS, defaults: outbox::Config::GROUP.defaults }
};

/// A queue has a database that is opened, handlers and a directory in the daemon, beside the settings of its `Config`.
const QUEUE: Group = {
    const FIRST: &[Key] = &[
        one(
            "name",
            ValueKind::Name,
            Is("queue"),
            "The name by which operators know it. In a list, each needs its own.",
        ),
        Key { name: "database", holds: Holds::Group(QUEUE_DATABASE), meaning: "Where the tables are." },
    ];
    /// What the first two are in the library stands above.
    const PARTS: &[Key] = match queue::Config::KEYS {
        [_name, _database, parts @ ..] => parts,
        _ => &[],
    };
    const LAST: &[Key] = &[
        one(
            "dlq",
            ValueKind::Name,
            Unset("failed events are in the log table only"),
            "The `dlq` that events are written to when they fail for good, before they are FAILED in the log table.",
        ),
        Key {
            name: "handlers",
            holds: Holds::Groups(by_hand(QUEUE_HANDLER)),
            meaning: "What happens to events, by their types. An event without a handler has FAILED. Without any \
                      handler the daemon takes no events: it shows the queue and purges its log.",
        },
    ];
    const BEGIN: [Key; FIRST.len() + PARTS.len()] = join(FIRST, PARTS);
    const KEYS: [Key; BEGIN.len() + LAST.len()] = join(&BEGIN, LAST);
    Group { keys: &KEYS, defaults: queue::Config::GROUP.defaults }
};

const URL: &str = "The database: `postgres:`, `mysql:`, `mariadb:` or `sqlite:`. Prefer `env:NAME` or `file:PATH` to a \
                   password in this file.";

const TLS: Key = Key {
    name: "tls",
    holds: Holds::Group(backstop_sql::Tls::GROUP),
    meaning: "How connections to a database server are encrypted, and how the two sides show who they are. The URL may \
              say the same by its parameters; each setting stands in one place.",
};

/// A program opens its pool itself; the daemon does it by these.
const QUEUE_DATABASE: Group = {
    const POOL: &[Key] = &[
        one("url", DATABASE_URL, Required("without a database there is no queue"), URL),
        one(
            "pool-size",
            ValueKind::Number { min: 1, max: 1_000 },
            Is("10"),
            "The most connections that the pool holds. PostgreSQL takes up to four more, MariaDB up to two: for wake-ups, \
             for renewing claims, and for results while the pool has none.",
        ),
        TLS,
    ];
    const KEYS: [Key; POOL.len() + queue::Tables::KEYS.len()] = join(POOL, queue::Tables::KEYS);
    Group { keys: &KEYS, defaults: queue::Tables::GROUP.defaults }
};

/// The same for an outbox.
const DATABASE: Group = {
    const POOL: &[Key] = &[
        one("url", DATABASE_URL, Required("without a database there is no outbox"), URL),
        one(
            "pool-size",
            ValueKind::Number { min: 1, max: 1_000 },
            Is("10"),
            "The most connections that the pool holds. PostgreSQL takes up to five more, MariaDB up to three: for \
             wake-ups, for the lock of a node, for renewing claims, and for settlements while the pool has none.",
        ),
        TLS,
    ];
    const KEYS: [Key; POOL.len() + outbox::Table::KEYS.len()] = join(POOL, outbox::Table::KEYS);
    Group { keys: &KEYS, defaults: outbox::Table::GROUP.defaults }
};

const HANDLER: &[Key] = {
    const FIRST: &[Key] = &[
        one(
            "aggregate-type",
            ValueKind::Text,
            Unset("events without an aggregate type"),
            "The kind of thing that the events are about.",
        ),
        EVENT_TYPE,
        one("dlq", ValueKind::Name, Unset("that of the outbox"), "The `dlq` of these events."),
    ];
    const KEYS: [Key; FIRST.len() + TARGETS.len()] = join(FIRST, TARGETS);
    &KEYS
};

/// A queue knows events by their types alone.
const QUEUE_HANDLER: &[Key] = {
    const KEYS: [Key; 1 + TARGETS.len()] = join(&[EVENT_TYPE], TARGETS);
    &KEYS
};

const EVENT_TYPE: Key = many(
    "event-type",
    ValueKind::Text,
    Required("it says which events are handled"),
    "The event type, or a list of them. `*` takes all events that have no other handler.",
);

const TARGETS: &[Key] = &[
    Key {
        name: "log",
        holds: Holds::Choice(handlers::Log::GROUP),
        meaning: "Writes a line to the log for each event.",
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
