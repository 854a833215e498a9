//! The words in which SQLite differs.

use backstop_core::{Clock, SystemClock, Timestamp};
use chrono::TimeDelta;

use super::super::{ClaimQuestion, Dialect, Explanation, Index, PurgeQuestion, StillIn, row};
use crate::TableName;
use crate::migration::Migration;
use crate::statement::{Marks, Statement, Value};
use crate::store::At;

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

    fn bind_json(&self, statement: &mut Statement, json: Value) {
        statement.bind(json);
    }

    fn json_as_text(&self, column: &'static str) -> String {
        column.to_owned()
    }

    fn hint(&self, table: &TableName, index: Index) -> String {
        // Left to itself it prefers an equality on the status and sorts, however many rows there are.
        let name = match index {
            Index::Due => "due",
            Index::DueCreated => "due_created",
            Index::Ended => "ended",
            Index::Dead => "dead",
        };
        format!(" indexed by {}_{name}", table.index_prefix())
    }

    fn claim_statement(&self, question: &ClaimQuestion<'_>) -> Statement {
        let ClaimQuestion { owner, timeout, due, .. } = *question;
        let statements = question.statements(self);
        // One statement takes the write lock when it begins, so choosing and taking cannot be told apart.
        let mut statement = statements.begin("update {table} set locked_by = ");
        statement.bind(owner).push(", locked_at = ");
        statements.moment(&mut statement, due.at);
        statement.push(", claim_seq = claim_seq + 1 where event_id in (");
        statements.push_due(&mut statement, "event_id", due, Some(timeout), "");
        statement.push(&format!(") returning {}", row::columns(self, "claim_seq")));
        statement
    }

    fn purge_statement(&self, purge: &PurgeQuestion<'_>) -> Statement {
        // One statement takes the write lock when it begins, so what it chooses stays as it is until it is deleted.
        let mut statement = purge.statements.old("event_id", purge, "");
        statement.prefix(&format!("delete from {} where event_id in (", purge.statements.table)).push(")");
        statement
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

    fn push_key(&self, statement: &mut Statement, key: &[u8]) {
        // Bytes, or a text that is none: each is equal to its own kind only.
        statement.push("event_id in (").bind(Value::Bytes(key.to_vec()));
        statement.push(", cast(").bind(Value::Bytes(key.to_vec())).push(" as text))");
    }

    fn never_due(&self) -> Option<&'static str> {
        // Behind every digit there is: letters, and bytes, which sort behind all texts.
        Some("status in (0, 2) and available_at >= ':'")
    }

    fn migrations(&self) -> &'static [Migration] {
        &[Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") }]
    }

    fn plain_inserts(&self) -> &'static str {
        include_str!("plain_inserts.sql")
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
