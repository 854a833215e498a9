//! The words in which databases differ where the outbox's table is concerned.

use crate::database::migration::Migration;

/// Each database's `outbox.rs` gives its own.
#[derive(Debug)]
pub struct Words {
    /// The table's migrations, in order.
    pub(crate) migrations: &'static [Migration],
    /// What lets others insert rows with plain SQL: defaults for what they leave out, and a trigger that wakes
    /// nodes, as far as the database has either. `{table}` stands for the table's name.
    pub(crate) plain_inserts: &'static str,
    /// Whether nodes are woken by rows that others insert, once that ran.
    pub(crate) wakes: bool,
    /// The conditions that together mean that a row is pending, each of which an index answers in the order
    /// of [`Order`](super::Order).
    pub(crate) pending: &'static [&'static str],
    pub(crate) indexes: Indexes,
    /// The condition that a row has a status, in words that keep the planner to the index that begins with it. An index of
    /// several statuses has the rows of the others in between, however many.
    pub(crate) one_status: &'static str,
    /// What stands around conditions that no index answers, so that however few rows seem to match, the planner still walks
    /// over an index in its order.
    pub(crate) fence: [&'static str; 2],
    /// The order in which rows of one pair of types become due, in words that let an index give it.
    pub(crate) pair_order: &'static str,
    /// The rows of one pair as a range of the index by types, where the database would otherwise take the index of all due
    /// rows for as good, and filter: it does not know that those of a held route come first.
    pub(crate) pair_range: Option<PairRange>,
    /// When a row was created, as it can be written back.
    pub(crate) created_at: &'static str,
    /// The condition that a row is behind a place in the order in which rows become due, in words that let an index begin
    /// there.
    pub(crate) behind: &'static str,
    /// The condition that a row's id is these bytes, which are not text.
    pub(crate) key_of_bytes: &'static str,
    /// The condition that a row is pending and never becomes due, because its moment is not a moment, where the
    /// database has no type for moments.
    pub(crate) never_due: Option<&'static str>,
}

/// The order in which rows become due, where the database makes a range of a comparison of rows.
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub(crate) const BEHIND: &str = "(available_at, created_at, event_id) > ({due_at}, {created_at}, {id})";

/// No fence, where a hint keeps the planner to an index.
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub(crate) const NO_FENCE: [&str; 2] = ["", ""];

/// The order of the rows of one pair, where the database knows that they have the same types.
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub(crate) const PAIR_ORDER: &str = "available_at, created_at, event_id";

/// The bounds of a range of the rows of one pair, whose aggregate type is not null.
#[derive(Debug)]
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub(crate) struct PairRange {
    /// From the first row on.
    pub(crate) from: &'static str,
    /// Behind a place.
    pub(crate) behind: &'static str,
    /// Up to the last row that is due.
    pub(crate) until: &'static str,
}

/// What follows the table's name so that an index is used, where the database would choose another and sort. `{idx}`
/// stands for the beginning of its indexes' names.
#[derive(Debug)]
pub(crate) struct Indexes {
    /// Pending rows by when they are due.
    pub(crate) due: &'static str,
    /// Pending rows by when they were created.
    pub(crate) due_created: &'static str,
    /// Rows of one status by when they are due.
    pub(crate) by_status: &'static str,
    /// Pending rows of a pair of types by when they are due.
    pub(crate) pair: &'static str,
    /// Dead rows by when they were created.
    pub(crate) dead: &'static str,
    /// Pending rows by their age, to be purged.
    pub(crate) old_pending: &'static str,
    /// Rows that are done or dead by their age, to be purged.
    pub(crate) old_ended: &'static str,
}
