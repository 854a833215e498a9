//! The outbox's table on SQLite.

use crate::database::migration::Migration;
use crate::outbox::store::words::{BEHIND, Indexes, NO_FENCE, PAIR_ORDER, Words};

pub(super) const WORDS: Words = Words {
    migrations: &[
        Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") },
        Migration { version: 2, sql: include_str!("migrations/0002_pairs.sql") },
    ],
    plain_inserts: include_str!("plain_inserts.sql"),
    wakes: false,
    pending: &["status in (0, 2)"],
    // Left to itself it prefers an equality on the status and sorts, however many rows there are.
    indexes: Indexes {
        due: " indexed by {idx}_due",
        due_created: " indexed by {idx}_due_created",
        by_status: " indexed by {idx}_status_available",
        pair: " indexed by {idx}_pair",
        dead: " indexed by {idx}_dead",
        old_pending: " indexed by {idx}_due_created",
        old_ended: " indexed by {idx}_ended",
    },
    one_status: "status = {status}",
    fence: NO_FENCE,
    pair_order: PAIR_ORDER,
    pair_range: None,
    created_at: "created_at",
    behind: BEHIND,
    // Bytes, or a text that is none: each is equal to its own kind only.
    key_of_bytes: "event_id in ({key}, cast({key} as text))",
    // Behind every digit there is: letters, and bytes, which sort behind all texts.
    never_due: Some("status in (0, 2) and available_at >= ':'"),
};
