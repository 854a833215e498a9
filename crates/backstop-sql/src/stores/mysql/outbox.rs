//! The outbox's table on MySQL and MariaDB.

use crate::database::migration::Migration;
use crate::outbox::store::words::{Indexes, NO_FENCE, PAIR_ORDER, Words};

pub(super) const WORDS: Words = Words {
    migrations: &[
        Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") },
        Migration { version: 2, sql: include_str!("migrations/0002_pairs.sql") },
    ],
    plain_inserts: include_str!("plain_inserts.sql"),
    wakes: false,
    // One by one: without partial indexes, an index begins with the status and gives the order within one.
    pending: &["status = 0", "status = 2"],
    // Left to itself it sorts where few rows seem to be due, and what seems to it may be long past.
    indexes: Indexes {
        due: " force index ({idx}_status_available)",
        due_created: " force index ({idx}_status_created)",
        by_status: " force index ({idx}_status_available)",
        pair: " force index ({idx}_pair)",
        dead: " force index ({idx}_status_created)",
        // One index has all rows by their age, whatever their status.
        old_pending: " force index ({idx}_created)",
        old_ended: " force index ({idx}_created)",
    },
    one_status: "status = {status}",
    fence: NO_FENCE,
    pair_order: PAIR_ORDER,
    pair_range: None,
    // A date of zeros is no moment, and a strict session refuses to write it: one row of the kind would hold up all that
    // are changed with it.
    created_at: "greatest(created_at, '1000-01-01')",
    // Its planner makes no range of a comparison of rows.
    behind: "available_at >= {due_at} and (available_at > {due_at} or created_at > {created_at} \
             or (created_at = {created_at} and event_id > {id}))",
    key_of_bytes: "event_id = {key}",
    never_due: None,
};
