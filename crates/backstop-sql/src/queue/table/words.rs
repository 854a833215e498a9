//! The words in which databases differ where the queue's two tables are concerned.

use crate::database::migration::Migration;

/// Each database's `queue.rs` gives its own.
#[derive(Debug)]
pub struct Words {
    /// The migrations of `events`, in order.
    pub(crate) events: &'static [Migration],
    /// The migrations of `event_log`, in order.
    pub(crate) log: &'static [Migration],
    pub(crate) indexes: Indexes,
    pub(crate) new_ids: NewIds,
    /// The query that finds a table of events whose ids come back once their rows are deleted, where that can be: the table's
    /// name follows it.
    pub(crate) reuses_ids: Option<&'static str>,
    /// The query that says what is wrong with a table's column `status`, where no statement fails because of it: the
    /// table's name follows it.
    pub(crate) odd_status: Option<&'static str>,
}

/// What follows a table's name so that an index is used, where the database would not find it by itself. `{idx}` stands for
/// the beginning of the names of the table's indexes.
#[derive(Debug)]
pub(crate) struct Indexes {
    /// Rows that can be taken at once, by id.
    pub(crate) ready: &'static str,
    /// Rows that can be taken later, by their moment.
    pub(crate) later: &'static str,
    /// Rows that can be taken at once, by type and id.
    pub(crate) types: &'static str,
    /// Rows that are being handled.
    pub(crate) processing: &'static str,
    /// Finished events by when they ended.
    pub(crate) ended: &'static str,
    /// Failed events by id.
    pub(crate) failed: &'static str,
}

/// How the ids of new rows are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub(crate) enum NewIds {
    /// The insert returns them.
    Returned,
    /// This query tells the first and the distance between two.
    Asked(&'static str),
}
