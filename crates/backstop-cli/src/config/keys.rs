//! The table of keys: every key of the settings file, its kind, its default and its meaning.
//!
//! The check, the typed settings, the overrides and the reference page all follow from it.

use super::kind::{Kind, Plain};

/// A key and what stands under it.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) holds: Holds,
    /// One or two sentences for the reference.
    pub(crate) meaning: &'static str,
}

/// What stands under a key.
#[derive(Debug)]
pub(crate) enum Holds {
    /// One value.
    One(Kind, Absent),
    /// A list of values; one alone may be written without the list.
    Many(Kind, Absent),
    /// More keys; where it is absent, each of them is.
    Group(&'static [Key]),
    /// More keys, whose presence alone means something.
    Choice(&'static [Key]),
    /// A list of such groups.
    Groups(&'static [Key]),
    /// A component: one such group, or a list of them, each with a `name` by which it goes.
    GroupOrGroups(&'static [Key]),
}

/// What holds where a key is not given.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Absent {
    /// It must be given; the text says what for.
    Required(&'static str),
    /// This value, written as in the file.
    Is(&'static str),
    /// No value; the text says what that means.
    Unset(&'static str),
}

use Absent::{Is, Required, Unset};

const AT_LEAST_ONE: Kind = Kind::Number { min: 1, max: 1_000_000 };
const MILLIS: Kind = Kind::Time { plain: Plain::Milliseconds, zero: false };
const SECONDS: Kind = Kind::Time { plain: Plain::Seconds, zero: false };
const TIME: Kind = Kind::Time { plain: Plain::Nothing, zero: false };
const TIME_OR_ZERO: Kind = Kind::Time { plain: Plain::Nothing, zero: true };

const fn one(name: &'static str, kind: Kind, absent: Absent, meaning: &'static str) -> Key {
    Key { name, holds: Holds::One(kind, absent), meaning }
}

const fn many(name: &'static str, kind: Kind, absent: Absent, meaning: &'static str) -> Key {
    Key { name, holds: Holds::Many(kind, absent), meaning }
}

const fn group(name: &'static str, keys: &'static [Key], meaning: &'static str) -> Key {
    Key { name, holds: Holds::Group(keys), meaning }
}

/// Everything.
pub(crate) static ROOT: &[Key] = &[
    Key {
        name: "outbox",
        holds: Holds::GroupOrGroups(OUTBOX),
        meaning: "An outbox, or a list of them, each with a `name`.",
    },
    Key {
        name: "dlq",
        holds: Holds::GroupOrGroups(DLQ),
        meaning: "A dead-letter directory, or a list of them, each with a `name` by which an outbox or a handler sends \
                  what it gives up there too.",
    },
    group("server", SERVER, "The operator's page, `/health` and `/metrics`."),
];

static DLQ: &[Key] = &[
    one("name", Kind::Name, Is("dlq"), "The name by which outboxes and operators know it."),
    one(
        "directory",
        Kind::Text,
        Required("it says where failed events are kept"),
        "The directory. A relative path begins where the daemon is started.",
    ),
    one(
        "create",
        Kind::Flag,
        Is("false"),
        "Whether the directory is made if there is none. Without it a disk that is not mounted is noticed at the start.",
    ),
    one(
        "details",
        Kind::Flag,
        Is("false"),
        "Whether each record also tells how often delivery was tried, when, and where the event was to go.",
    ),
    group("rolling", ROLLING, "Many events in one file, for high failure rates."),
];

static ROLLING: &[Key] = &[
    one("enabled", Kind::Flag, Is("false"), "Whether many events are written into one file."),
    one(
        "max-bytes",
        Kind::Number { min: 1, max: u64::MAX },
        Is("16777216"),
        "A file of this size is left for the next one.",
    ),
    one("max-age", TIME, Is("60s"), "A file of this age is left for the next one."),
    one(
        "idle",
        TIME,
        Is("1s"),
        "A file that nothing was written to for this long is left; what is left can be sent again.",
    ),
];

static SERVER: &[Key] = &[
    one("enabled", Kind::Flag, Is("true"), "Whether the page, `/health` and `/metrics` are served."),
    one(
        "address",
        Kind::Address,
        Is("127.0.0.1:7878"),
        "Where they are served; port 0 takes a free one. An address that other machines can reach needs `tokens`.",
    ),
    many(
        "hosts",
        Kind::Text,
        Unset("names of this machine only"),
        "The names by which it is reached from elsewhere, as in the `Host` header. Addresses need not be listed.",
    ),
    Key {
        name: "tokens",
        holds: Holds::Groups(TOKEN),
        meaning: "Who may look. `backstop token` makes one. With any of them, nobody is let in without.",
    },
];

static TOKEN: &[Key] = &[
    one("name", Kind::Name, Required("so that the log can say whose it is"), "Whose it is, for the log."),
    one("role", Kind::Choice(&["viewer", "operator", "admin"]), Is("viewer"), "What its holder may do."),
    one("sha256", Kind::Hash, Required("it is what `backstop token` prints"), "The hash of the token."),
];

pub(crate) static OUTBOX: &[Key] = &[
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
        holds: Holds::Groups(HANDLER),
        meaning: "What becomes of events, by their types. An event that finds no handler is dead at once.",
    },
];

static DATABASE: &[Key] = &[
    one(
        "url",
        Kind::DatabaseUrl,
        Required("without a database there is no outbox"),
        "The database: `postgres:`, `mysql:`, `mariadb:` or `sqlite:`. Better `env:NAME` or `file:PATH` than a \
         password in this file.",
    ),
    one("table", Kind::Table, Is("outbox_event"), "The table."),
    one(
        "time-zone",
        Kind::TimeZone,
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

static DISPATCHER: &[Key] = &[
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

static RETRY: &[Key] = &[
    one(
        "base-delay-ms",
        MILLIS,
        Is("200"),
        "The delay after the first failure; each further one doubles it.",
    ),
    one("max-delay-ms", MILLIS, Is("60000"), "The most that doubling leads to."),
];

static POLLER: &[Key] = &[
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

static CLAIM_LOCKING: &[Key] = &[
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

static PURGE: &[Key] = &[
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

static METRICS: &[Key] = &[
    one("enabled", Kind::Flag, Is("true"), "Whether the outbox counts for `/metrics`."),
    one(
        "name-prefix",
        Kind::Text,
        Unset("`outbox`, or `outbox.` and the name where there are several"),
        "What the names of its metrics begin with.",
    ),
];

static HANDLER: &[Key] = &[
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
    Key { name: "log", holds: Holds::Choice(LOG), meaning: "Writes a line for each event into the log." },
    Key {
        name: "http",
        holds: Holds::Choice(HTTP),
        meaning: "Sends each event to a web server as a CloudEvent.",
    },
    Key {
        name: "kafka",
        holds: Holds::Choice(KAFKA),
        meaning: "Sends each event to a Kafka topic as a CloudEvent.",
    },
];

static LOG: &[Key] = &[one(
    "level",
    Kind::Choice(&["error", "warn", "info", "debug"]),
    Is("info"),
    "How loud the line is. It names the event and never shows its payload.",
)];

static HTTP: &[Key] = &[
    one(
        "url",
        Kind::WebUrl,
        Required("it says where events go"),
        "Where events are sent, by POST. `env:NAME` or `file:PATH` if its path holds a token.",
    ),
    one(
        "format",
        Kind::Choice(&["structured", "binary", "batched"]),
        Is("structured"),
        "How the CloudEvent is written: all in the body, in headers beside the payload, or several in one body.",
    ),
    many(
        "secrets",
        Kind::Secret,
        Unset("requests are not signed"),
        "The keys of Standard Webhooks signatures, `env:NAME` or `file:PATH`; more than one while they are rotated.",
    ),
    one("timeout", TIME, Is("10s"), "How long an answer may take."),
    many(
        "allowed-networks",
        Kind::Network,
        Unset("public addresses only"),
        "Private networks that the target may be in.",
    ),
];

static KAFKA: &[Key] = &[
    many(
        "bootstrap-servers",
        Kind::Text,
        Required("it says where the brokers are"),
        "Brokers, as `host:port`.",
    ),
    one("topic", Kind::Text, Required("it says where events go"), "The topic."),
    one(
        "format",
        Kind::Choice(&["binary", "structured"]),
        Is("binary"),
        "How the CloudEvent is written: in headers beside the payload, or all in the value.",
    ),
    one("client-id", Kind::Text, Is("backstop"), "The name under which the brokers know it."),
    one("timeout", TIME, Is("30s"), "How long the brokers' confirmation may take."),
    one("linger", TIME, Is("2ms"), "How long a record waits for others to share its request."),
    one(
        "compression",
        Kind::Choice(&["none", "lz4", "snappy"]),
        Is("none"),
        "How the records of a request are compressed.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn each(keys: &'static [Key], act: &mut impl FnMut(&Key)) {
        for key in keys {
            act(key);
            match key.holds {
                Holds::Group(keys)
                | Holds::Choice(keys)
                | Holds::Groups(keys)
                | Holds::GroupOrGroups(keys) => {
                    each(keys, act);
                }
                Holds::One(..) | Holds::Many(..) => {}
            }
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_kind_and_every_meaning_a_sentence() {
        each(ROOT, &mut |key| {
            if let Holds::One(kind, Is(default)) | Holds::Many(kind, Is(default)) = key.holds {
                assert!(kind.read(default).is_ok(), "{}", key.name);
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
        let mut names: Vec<_> = OUTBOX.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OUTBOX.len());
    }
}
