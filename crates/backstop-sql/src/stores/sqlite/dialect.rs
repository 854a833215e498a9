//! The words in which SQLite differs.

use backstop_core::{Clock, SystemClock, Timestamp};
use chrono::TimeDelta;

use crate::database::At;
use crate::database::dialect::{Dialect, Explanation, StillIn};
use crate::database::rows::{Change, Rows};
use crate::statement::{Marks, Statement};

/// How a transaction begins in which a user appends events. A deferred one that reads first and writes later fails at once
/// when another writer came between, whatever the busy time-out; taking the write lock at the beginning waits for it. A
/// full disk and `on conflict rollback` roll all of it back: the savepoint is gone then.
pub(super) const BEGIN_TO_APPEND: &str = "begin immediate; savepoint backstop_begun";

#[derive(Debug)]
pub(super) struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn marks(&self) -> Marks {
        Marks::Question
    }

    fn moment(&self, statement: &mut Statement, at: At, offset: TimeDelta) {
        statement.bind(read(at) + offset);
    }

    fn once(&self, at: At) -> At {
        At::Instant(read(at))
    }

    fn earlier(&self) -> &'static str {
        "min"
    }

    fn change_statement(&self, rows: &Rows<'_>, change: &Change<'_>) -> Statement {
        // One statement takes the write lock when it begins, so choosing and changing cannot be told apart.
        let Rows { table, key, .. } = rows;
        let mut statement = Statement::new(self.marks());
        statement.push(&format!("update {table} set "));
        (change.set)(&mut statement);
        statement.push(&format!(" where {key} in ("));
        rows.select(&mut statement, key, "");
        statement.push(&format!(") returning {}", change.read));
        statement
    }

    fn delete_statement(&self, rows: &Rows<'_>) -> Statement {
        // As above: what it chooses stays as it is until it is deleted.
        let Rows { table, key, .. } = rows;
        let mut statement = Statement::new(self.marks());
        statement.push(&format!("delete from {table} where {key} in ("));
        rows.select(&mut statement, key, "");
        statement.push(")");
        statement
    }

    fn begin_to_change(&self) -> &'static str {
        "begin immediate"
    }

    fn locked(&self) -> &'static str {
        "" // the transaction has locked all of the database
    }

    fn still_in_transaction(&self) -> StillIn {
        StillIn::Asked("release savepoint backstop_begun")
    }

    fn refused_within(&self) -> Option<&'static str> {
        Some("begin")
    }

    fn begin_again(&self) -> Option<&'static str> {
        // Where there is nothing to roll back the driver's rollback fails, and its connection is of no use any more.
        Some("begin")
    }

    fn migration_begin(&self) -> &'static str {
        "BEGIN IMMEDIATE"
    }

    fn is_there_already(&self, error: &sqlx::Error) -> bool {
        // SQLite has no ADD COLUMN IF NOT EXISTS.
        error.as_database_error().is_some_and(|error| error.message().starts_with("duplicate column name"))
    }

    fn explain(&self, error: &sqlx::Error) -> Option<Explanation> {
        let said = error.as_database_error()?.message().to_owned();
        if said.starts_with("no such table") {
            Some(Explanation::NoTable)
        } else if said.contains("within a transaction") {
            Some(Explanation::Within)
        } else if said.contains("readonly database") {
            Some(Explanation::NotPermitted)
        } else {
            None
        }
    }
}

/// The database runs in this process, so its clock is ours; its own function only has milliseconds.
fn read(at: At) -> Timestamp {
    match at {
        At::Database => SystemClock.now(),
        At::Instant(moment) => moment,
    }
}
