//! Rows that are chosen, kept from others, and changed or deleted together: claims, their renewal and release, purges.

use std::fmt;

use super::TableName;
use super::connection::Column;
use super::statement::{Part, Statement, Value};

/// What follows a query whose rows others must pass over until the transaction ends.
#[cfg(feature = "_server")]
pub(crate) const KEPT: &str = " for update skip locked";

/// How many rows one statement names, well below what any database allows as bound values.
pub(crate) const ROWS_PER_STATEMENT: usize = 500;

/// Which rows of a table are meant.
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub struct Rows<'a> {
    pub(crate) table: &'a TableName,
    /// The column that holds the key, and what it is read as.
    pub(crate) key: &'static str,
    pub(crate) key_kind: Column,
    /// What follows the table's name, such as which index to use.
    pub(crate) hint: String,
    /// Each is a query of its own, where no index gives the order over all of them.
    pub(crate) conditions: Vec<Box<dyn Part + Send + Sync + 'a>>,
    /// The order in which they are chosen, where not all are.
    pub(crate) order: Option<(&'static str, u32)>,
}

#[allow(dead_code, reason = "each database uses what it needs of it")]
impl Rows<'_> {
    /// How many are wanted at most.
    pub(crate) fn limit(&self) -> u32 {
        self.order.map_or(u32::MAX, |(_, limit)| limit)
    }

    /// Wants no more than this many.
    pub(crate) fn at_most(&mut self, rows: u32) {
        if let Some((_, limit)) = &mut self.order {
            *limit = rows;
        }
    }

    /// Adds the query that chooses them. Where there are several conditions each may return as many as are wanted.
    pub(crate) fn select(&self, statement: &mut Statement, columns: &str, kept: &str) {
        let Self { table, hint, .. } = self;
        let (open, close) = if self.conditions.len() > 1 { ("(", ")") } else { ("", "") };
        for (index, condition) in self.conditions.iter().enumerate() {
            statement.push(if index > 0 { " union all " } else { "" });
            statement.push(&format!("{open}select {columns} from {table}{hint} where "));
            condition.add(statement);
            if let Some((order, limit)) = self.order {
                statement.push(&format!(" order by {order} limit ")).bind(i64::from(limit));
            }
            statement.push(kept).push(close);
        }
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("table", &self.table).field("order", &self.order).finish_non_exhaustive()
    }
}

/// Rows that are moved into another table, which has a key of the same name.
pub struct Move<'a> {
    pub(crate) to: &'a TableName,
    /// The columns there.
    pub(crate) columns: &'static str,
    /// Adds what each of them is made of.
    pub(crate) made_of: &'a (dyn Fn(&mut Statement) + Sync),
}

impl fmt::Debug for Move<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Move").field("to", &self.to).field("columns", &self.columns).finish_non_exhaustive()
    }
}

/// How rows are changed, and which of their columns are read.
#[allow(dead_code, reason = "each database uses what it needs of it")]
pub struct Change<'a> {
    /// Adds what is set.
    pub(crate) set: &'a (dyn Fn(&mut Statement) + Sync),
    /// The columns that are read, as they are after the change.
    pub(crate) read: String,
    /// The same, as they can be computed before it.
    pub(crate) read_before: String,
    pub(crate) kinds: &'a [Column],
    /// Which of the rows are wanted, where several queries chose more.
    pub(crate) choose: &'a (dyn Fn(Vec<Vec<Value>>) -> Vec<Vec<Value>> + Sync),
    /// Whether a crash of the server may undo it, so that nobody need wait for the disk. If a claim or its renewal is undone,
    /// the row is claimed again.
    pub(crate) may_be_taken_back: bool,
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("read", &self.read).finish_non_exhaustive()
    }
}
