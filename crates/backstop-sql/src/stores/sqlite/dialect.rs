//! The words in which SQLite differs.

use backstop_core::{Clock, SystemClock};
use chrono::TimeDelta;

use super::super::Dialect;
use crate::migration::Migration;
use crate::statement::{Marks, Statement};
use crate::store::At;

#[derive(Debug)]
pub(super) struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn marks(&self) -> Marks {
        Marks::Question
    }

    fn moment(&self, statement: &mut Statement, at: At, offset: TimeDelta) {
        // The database runs in this process, so its clock is ours; its own function only has milliseconds.
        let moment = match at {
            At::Database => SystemClock.now(),
            At::Instant(moment) => moment,
        };
        statement.bind(moment + offset);
    }

    fn pairs(&self, statement: &mut Statement, pairs: &[(&str, i64)]) {
        statement.push("(values ").list(pairs, |statement, (left, right)| {
            statement.push("(").bind(*left).push(", ").bind(*right).push(")");
        });
        statement.push(")");
    }

    fn migrations(&self) -> &'static [Migration] {
        &[Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") }]
    }

    fn migration_lock(&self) -> (&'static str, &'static str, &'static str) {
        ("begin immediate", "commit", "rollback")
    }
}
