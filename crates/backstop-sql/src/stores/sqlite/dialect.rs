//! The words in which SQLite differs.

use backstop_core::{Clock, SystemClock};
use chrono::TimeDelta;

use super::super::{ClaimQuestion, Dialect, Explanation, due_rows, row};
use crate::connection::Connection;
use crate::migration::Migration;
use crate::statement::{Marks, Statement, Value};
use crate::store::At;
use crate::{BoxFuture, Error, TableName};

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

    fn bind_json(&self, statement: &mut Statement, json: Value) {
        statement.bind(json);
    }

    fn json_as_text(&self, column: &'static str) -> String {
        column.to_owned()
    }

    fn pairs(&self, statement: &mut Statement, pairs: &[(&str, i64)]) {
        statement.push("(values ").list(pairs, |statement, (left, right)| {
            statement.push("(").bind(*left).push(", ").bind(*right).push(")");
        });
        statement.push(")");
    }

    fn claim<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        question: ClaimQuestion<'a>,
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let ClaimQuestion { table, owner, timeout, due } = question;
            // One statement takes the write lock when it begins, so choosing and taking cannot be told apart.
            let mut statement = Statement::new(self.marks());
            statement.push(&format!("update {table} set locked_by = ")).bind(owner).push(", locked_at = ");
            self.moment(&mut statement, due.at, TimeDelta::zero());
            statement.push(", claim_seq = claim_seq + 1 where event_id in (select event_id from ");
            statement.push(table.as_str());
            due_rows(self, &mut statement, due, Some(timeout));
            statement.push(&format!(") returning {}", row::columns(self)));
            connection.fetch(&statement, &row::KINDS).await
        })
    }

    fn delete_some(
        &self,
        table: &TableName,
        condition: &mut dyn FnMut(&mut Statement),
        limit: u32,
    ) -> Statement {
        let mut statement = Statement::new(self.marks());
        statement.push(&format!("delete from {table} where event_id in (select event_id from {table}"));
        condition(&mut statement);
        statement.push(" order by created_at, event_id limit ").bind(i64::from(limit)).push(")");
        statement
    }

    fn migrations(&self) -> &'static [Migration] {
        &[Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") }]
    }

    fn migration_lock(&self) -> (&'static str, &'static str, &'static str) {
        ("begin immediate", "commit", "rollback")
    }

    fn explain(&self, error: &sqlx::Error) -> Option<Explanation> {
        let said = error.as_database_error()?.message().to_owned();
        if said.starts_with("no such table") {
            Some(Explanation::NoTable)
        } else if said.contains("readonly database") {
            Some(Explanation::NotPermitted)
        } else {
            None
        }
    }
}
