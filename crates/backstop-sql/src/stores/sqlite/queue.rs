//! The queue's tables on SQLite.

use crate::database::migration::Migration;
use crate::queue::table::words::{Indexes, NewIds, Words};

pub(super) const WORDS: Words = Words {
    events: &[Migration { version: 1, sql: include_str!("migrations/queue_0001_events.sql") }],
    log: &[Migration { version: 1, sql: include_str!("migrations/queue_0001_event_log.sql") }],
    // Left to itself it reads the table in the order of its key, past all that wait for their moment.
    indexes: Indexes {
        ready: " indexed by {idx}_ready",
        later: " indexed by {idx}_later",
        types: " indexed by {idx}_types",
        processing: " indexed by {idx}_processing",
        ended: " indexed by {idx}_ended",
        failed: " indexed by {idx}_failed",
    },
    reuses_ids: Some("select name from sqlite_master where type = 'table' and lower(sql) not like '%autoincrement%' and name = "),
    new_ids: NewIds::Returned,
    odd_status: None, // a column holds anything
};
