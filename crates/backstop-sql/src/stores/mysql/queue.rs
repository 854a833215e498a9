//! The queue's tables on MySQL and MariaDB.

use crate::database::migration::Migration;
use crate::queue::table::words::{Indexes, NewIds, Words};

pub(super) const WORDS: Words = Words {
    events: &[Migration { version: 1, sql: include_str!("migrations/queue_0001_events.sql") }],
    log: &[Migration { version: 1, sql: include_str!("migrations/queue_0001_event_log.sql") }],
    // Left to itself it reads the table in the order of its key, past all that cannot be taken.
    indexes: Indexes {
        ready: " force index ({idx}_ready)",
        later: " force index ({idx}_ready)",
        types: " force index ({idx}_types)",
        processing: " force index ({idx}_processing)",
        ended: " force index ({idx}_ended)",
        failed: " force index ({idx}_failed)",
    },
    reuses_ids: None,
    new_ids: NewIds::Asked("select last_insert_id(), @@session.auto_increment_increment"),
    // A comparison with a name that an enum does not have is false, and one with a number takes the name for 0.
    odd_status: Some(
        "select column_type from information_schema.columns where table_schema = database() and column_name = 'status' \
         and not (data_type in ('char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext') or (data_type = 'enum' \
         and column_type like '%''PENDING''%' and column_type like '%''PROCESSING''%' \
         and column_type like '%''COMPLETED''%' and column_type like '%''FAILED''%')) and table_name = ",
    ),
};
