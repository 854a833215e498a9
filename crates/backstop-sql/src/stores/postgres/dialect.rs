//! The words in which PostgreSQL differs.

use chrono::TimeDelta;

use super::super::{Change, ClaimQuestion, Dialect, Explanation, MOMENTS, PurgeQuestion, StillIn, row};
use crate::connection::Connection;
use crate::error::only_reads;
use crate::migration::Migration;
use crate::pooler::is_of_a_pooler;
use crate::statement::{Marks, Statement, Value};
use crate::store::At;
use crate::{BoxFuture, Error, TableName};

/// A claim need not wait for the disk: one that a crash of the server takes back was nobody's, and its row is claimed
/// again. The setting ends with the statement's transaction.
const LAZY: &str = "lazy as materialized (select set_config('synchronous_commit', 'off', true))";

/// The place of a row is enough to find it again: a row that a statement has locked stays where it is. With the table's
/// own number, because each part of a partitioned table counts places for itself.
const PLACE: &str = "tableoid as its_part, ctid as its_place";

fn at_place(table: &TableName) -> String {
    format!("{table}.tableoid = its_part and {table}.ctid = its_place")
}

#[derive(Debug)]
pub(super) struct PostgresDialect;

impl Dialect for PostgresDialect {
    fn marks(&self) -> Marks {
        Marks::Dollar
    }

    fn moment(&self, statement: &mut Statement, at: At, offset: TimeDelta) {
        match at {
            At::Instant(moment) => {
                statement.bind(moment + offset);
            }
            At::Database => {
                // Not clock_timestamp(), which may change within a statement, so that no index could answer it.
                statement.push("statement_timestamp()");
                if let Some(micros) = offset.num_microseconds().filter(|micros| *micros != 0) {
                    statement.push(" + ").bind(micros).push("::bigint * interval '1 microsecond'");
                }
            }
        }
    }

    fn zoneless_moments(&self, table: &TableName) -> Option<Statement> {
        let mut statement = Statement::new(self.marks());
        statement.push(&format!(
            "select count(*) from pg_attribute where attname in ({MOMENTS}) and atttypid = 'timestamp'::regtype and \
             attrelid = to_regclass("
        ));
        statement.bind(table.as_str()).push(")");
        Some(statement)
    }

    fn shifting_zone(&self) -> Option<Statement> {
        let mut statement = Statement::new(self.marks());
        // By what it does and not by its name: UTC has many. In summer as in winter.
        statement.push(
            "select current_setting('TimeZone') where extract(timezone from statement_timestamp()) <> 0 \
             or extract(timezone from timestamptz '2030-01-01 00:00:00+00') <> 0 \
             or extract(timezone from timestamptz '2030-07-01 00:00:00+00') <> 0",
        );
        Some(statement)
    }

    fn default_ahead(&self, minutes: i64) -> String {
        format!(" at time zone interval '{minutes} minutes'")
    }

    fn bind_json(&self, statement: &mut Statement, json: Value) {
        statement.bind(json).push("::json");
    }

    fn json_as_text(&self, column: &'static str) -> String {
        format!("{column}::text")
    }

    fn push_ids(&self, statement: &mut Statement, ids: &[&str]) {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        statement.push("event_id = any(").bind(Value::Texts(ids)).push(")");
    }

    fn own_moment(&self, statement: &mut Statement, at: At, ids: &[&str], offsets: &[TimeDelta]) {
        let micros = offsets.iter().map(|offset| offset.num_microseconds().unwrap_or(i64::MAX).to_string());
        self.moment(statement, at, TimeDelta::zero());
        statement.push(" + ");
        push_own(statement, ids, micros.collect());
        statement.push("::bigint * interval '1 microsecond'");
    }

    fn own_text(&self, statement: &mut Statement, ids: &[&str], texts: &[String]) {
        push_own(statement, ids, texts.to_vec());
    }

    fn claim_statement(&self, question: &ClaimQuestion<'_>) -> Statement {
        let ClaimQuestion { table, owner, timeout, due, .. } = *question;
        let statements = question.statements(self);
        let mut statement = statements.begin("with due as (");
        statements.push_due(&mut statement, PLACE, due, Some(timeout), " for update skip locked");
        statement
            .push(&format!("), {LAZY} update {table} set locked_by = "))
            .bind(owner)
            .push(", locked_at = ");
        statements.moment(&mut statement, due.at);
        statement.push(&format!(
            ", claim_seq = claim_seq + 1 from due, lazy where {} returning {}",
            at_place(table),
            row::columns(self, "claim_seq")
        ));
        statement
    }

    fn change_statement(&self, change: &Change<'_>) -> Statement {
        let statements = change.statements;
        let mut statement =
            statements.begin(&format!("with free as materialized (select {PLACE} from {{table}} where "));
        change.push_rows(&mut statement);
        statement.push(&format!(" for update skip locked) update {} set ", statements.table));
        (change.set)(&mut statement);
        statement.push(&format!(" from free where {} returning event_id", at_place(statements.table)));
        statement
    }

    fn purge_statement(&self, purge: &PurgeQuestion<'_>) -> Statement {
        // Locked before it is deleted: a row that somebody changes meanwhile is looked at as it is then, or passed over.
        let mut statement = purge.statements.old(PLACE, purge, " for update skip locked");
        statement.prefix("with old as materialized (");
        let table = purge.statements.table;
        statement.push(&format!(") delete from {table} using old where {}", at_place(table)));
        statement
    }

    fn still_in_transaction(&self) -> StillIn {
        // A transaction that has failed refuses every statement, so only one that was ended by hand is left.
        StillIn::WhenMissing("savepoint backstop_commit")
    }

    fn migrations(&self) -> &'static [Migration] {
        &[Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") }]
    }

    fn plain_inserts(&self) -> &'static str {
        include_str!("plain_inserts.sql")
    }

    fn wakes(&self) -> bool {
        true
    }

    fn migration_begin(&self) -> &'static str {
        "BEGIN"
    }

    fn lock_migrations<'a>(&'a self, connection: &'a mut dyn Connection) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut lock = Statement::new(self.marks());
            lock.push("select pg_advisory_xact_lock(hashtextextended('backstop.migration', 0))");
            connection.execute(&lock).await.map(drop)
        })
    }

    fn explain(&self, error: &sqlx::Error) -> Option<Explanation> {
        let said = error.as_database_error()?;
        match said.code()?.as_ref() {
            "42P01" => Some(Explanation::NoTable),
            "42501" => Some(Explanation::NotPermitted),
            // A deadlock; a conflict of two serializable transactions.
            "40P01" | "40001" => Some(Explanation::Lost),
            "25P02" => Some(Explanation::Aborted),
            _ if is_of_a_pooler(error) => Some(Explanation::Pooler),
            _ => only_reads(error).then_some(Explanation::OnlyReads),
        }
    }
}

/// Adds, for each of the rows, the text at its place. Arrays, so that the statement's text does not change with
/// their number, and it is prepared once.
fn push_own(statement: &mut Statement, ids: &[&str], texts: Vec<String>) {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    statement.push("(").bind(Value::Texts(texts)).push("::text[])[array_position(");
    statement.bind(Value::Texts(ids)).push("::text[], event_id::text)]");
}
