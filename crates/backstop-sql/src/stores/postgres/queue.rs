//! The queue's tables on PostgreSQL.

use crate::database::migration::Migration;
use crate::queue::table::words::{Indexes, NewIds, Words};

pub(super) const WORDS: Words = Words {
    events: &[Migration { version: 1, sql: include_str!("migrations/queue_0001_events.sql") }],
    log: &[Migration { version: 1, sql: include_str!("migrations/queue_0001_event_log.sql") }],
    // Partial indexes: it finds them by itself.
    indexes: Indexes { ready: "", later: "", types: "", processing: "", ended: "", failed: "" },
    reuses_ids: None,
    new_ids: NewIds::Returned,
    // A name that an enum does not have makes a statement fail.
    odd_status: None,
};
