//! The words in which PostgreSQL differs.

use chrono::TimeDelta;

use crate::connection::{Column, Connection};
use crate::database::dialect::{Dialect, Explanation, StillIn};
use crate::database::rows::{Change, KEPT, Move, Rows};
use crate::database::{At, Database, TableName, Via};
use crate::error::{is_of_a_pooler, only_reads};
use crate::statement::{Marks, Statement, Value};
use crate::{BoxFuture, Error};

/// What need not wait for the disk does not. The setting ends with the statement's transaction.
const LAZY: &str = ", lazy as materialized (select set_config('synchronous_commit', 'off', true))";

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

    fn place_of(&self) -> &'static str {
        "strpos"
    }

    fn zoneless(&self, table: &TableName, columns: &[&str]) -> Option<Statement> {
        let mut statement = Statement::new(self.marks());
        statement.push("select count(*) from pg_attribute where ");
        self.push_one_of(&mut statement, "attname::text", columns);
        statement.push(" and atttypid = 'timestamp'::regtype and attrelid = to_regclass(");
        statement.bind(table.as_str()).push(")");
        Some(statement)
    }

    fn shifting_zone(&self) -> Option<&'static str> {
        // By what it does and not by its name: UTC has many. In summer as in winter.
        Some(
            "select current_setting('TimeZone') where extract(timezone from statement_timestamp()) <> 0 \
             or extract(timezone from timestamptz '2030-01-01 00:00:00+00') <> 0 \
             or extract(timezone from timestamptz '2030-07-01 00:00:00+00') <> 0",
        )
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

    fn text_as_json(&self, column: &'static str) -> String {
        format!("{column}::json")
    }

    fn push_one_of(&self, statement: &mut Statement, column: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        statement.push(column).push(" = any(").bind(Value::Texts(texts)).push(")");
    }

    fn push_one_of_ints(&self, statement: &mut Statement, column: &str, numbers: &[i64]) {
        statement.push(column).push(" = any(").bind(Value::Ints(numbers.to_vec())).push(")");
    }

    fn own_moment(&self, statement: &mut Statement, key: &str, at: At, ids: &[&str], offsets: &[TimeDelta]) {
        let micros = offsets.iter().map(|offset| offset.num_microseconds().unwrap_or(i64::MAX).to_string());
        self.moment(statement, at, TimeDelta::zero());
        statement.push(" + ");
        push_own(statement, key, ids, micros.collect());
        statement.push("::bigint * interval '1 microsecond'");
    }

    fn own_text(&self, statement: &mut Statement, key: &str, ids: &[&str], texts: &[String]) {
        push_own(statement, key, ids, texts.to_vec());
    }

    fn change_statement(&self, rows: &Rows<'_>, change: &Change<'_>) -> Statement {
        let (table, read) = (rows.table, &change.read);
        let (lazy, and_lazy) = if change.may_be_taken_back { (LAZY, ", lazy") } else { ("", "") };
        let mut statement = Statement::new(self.marks());
        statement.push("with chosen as materialized (");
        rows.select(&mut statement, PLACE, KEPT);
        statement.push(&format!("){lazy} update {table} set "));
        (change.set)(&mut statement);
        statement.push(&format!(" from chosen{and_lazy} where {} returning {read}", at_place(table)));
        statement
    }

    fn delete_statement(&self, rows: &Rows<'_>) -> Statement {
        // Locked before it is deleted: a row that somebody changes meanwhile is looked at as it is then, or passed over.
        let table = rows.table;
        let mut statement = Statement::new(self.marks());
        statement.push("with chosen as materialized (");
        rows.select(&mut statement, PLACE, KEPT);
        statement.push(&format!(") delete from {table} using chosen where {}", at_place(table)));
        statement
    }

    fn begin_to_change(&self) -> &'static str {
        "BEGIN"
    }

    fn locked(&self) -> &'static str {
        " for update"
    }

    /// One statement does it. It begins with the deletion, which looks at a row as it is once it has waited for it: what a
    /// query had locked before might be found again only as it was when the statement began, and then not be deleted.
    fn move_rows<'a>(
        &'a self,
        database: &'a Database,
        via: Via,
        rows: &'a Rows<'_>,
        moving: &'a Move<'_>,
    ) -> BoxFuture<'a, Result<Vec<i64>, Error>> {
        Box::pin(async move {
            let (table, key, Move { to, columns, made_of }) = (rows.table, rows.key, moving);
            let mut statement = Statement::new(self.marks());
            statement.push(&format!("with gone as (delete from {table} where "));
            rows.conditions.iter().for_each(|condition| condition.add(&mut statement));
            statement.push(&format!(" returning *) insert into {to} ({columns}) select "));
            made_of(&mut statement);
            statement.push(&format!(" from gone returning {key}"));
            let mut session = database.session(via).await?;
            Ok(Value::ints(&session.fetch(&statement, &[Column::Int]).await?))
        })
    }

    fn still_in_transaction(&self) -> StillIn {
        // A transaction that has failed refuses every statement, so only one that was ended by hand is left.
        StillIn::WhenMissing("savepoint backstop_commit")
    }

    fn refused_within(&self) -> Option<&'static str> {
        None // a transaction that has failed refuses everything
    }

    fn has_poolers(&self) -> bool {
        true
    }

    fn migration_begin(&self) -> &'static str {
        "BEGIN"
    }

    fn lock_migrations<'a>(&'a self, connection: &'a mut dyn Connection) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let lock = "select pg_advisory_xact_lock(hashtextextended('backstop.migration', 0))";
            connection.execute(&Statement::plain(lock)).await.map(drop)
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
fn push_own(statement: &mut Statement, key: &str, ids: &[&str], texts: Vec<String>) {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    statement.push("(").bind(Value::Texts(texts)).push("::text[])[array_position(");
    statement.bind(Value::Texts(ids)).push(&format!("::text[], {key}::text)]"));
}
