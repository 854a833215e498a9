//! The outbox's table on PostgreSQL.

use crate::database::migration::Migration;
use crate::outbox::store::words::{BEHIND, Indexes, PairRange, Words};

pub(super) const WORDS: Words = Words {
    migrations: &[
        Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") },
        Migration { version: 2, sql: include_str!("migrations/0002_pairs.sql") },
    ],
    plain_inserts: include_str!("plain_inserts.sql"),
    wakes: true,
    pending: &["status in (0, 2)"],
    // Partial indexes: it finds them by itself.
    indexes: Indexes { due: "", due_created: "", by_status: "", pair: "", dead: "", old_pending: "", old_ended: "" },
    // It does not see that a partial index holds these rows, and so cannot choose one.
    one_status: "status between {status} and {status}",
    // Where many are dead and few of them seem to match, it would read the whole table, for each page of a list anew.
    // What it cannot look into it takes for true half of the time.
    fence: ["coalesce(", ", false)"],
    // In the index's own order: it does not take a missing type for a constant, and would sort.
    pair_order: "aggregate_type, event_type, available_at, created_at, event_id",
    pair_range: Some(PairRange {
        from: "(aggregate_type, event_type) >= ({aggregate}, {event})",
        behind: "(aggregate_type, event_type, available_at, created_at, event_id) \
                 > ({aggregate}, {event}, {due_at}, {created_at}, {id})",
        until: "(aggregate_type, event_type, available_at) <= ({aggregate}, {event}, {now})",
    }),
    created_at: "created_at",
    behind: BEHIND,
    key_of_bytes: "event_id = {key}",
    never_due: None,
};
