//! The words in which MySQL and MariaDB differ.

use std::time::Duration;

use chrono::TimeDelta;
use sqlx::mysql::MySqlDatabaseError;

use super::super::row::{self, choose, text};
use super::super::sql::ROWS_PER_STATEMENT;
use super::super::{Change, ClaimQuestion, Dialect, Explanation, Index, MOMENTS, PurgeQuestion, StillIn};
use crate::connection::{Connection, Connections, Kind};
use crate::error::only_reads;
use crate::migration::Migration;
use crate::statement::{Marks, Statement, Value};
use crate::store::{At, Place};
use crate::{BoxFuture, Error, TableName};

/// How a transaction of our own begins. Without this level the locks would cover the gaps between rows, and inserts would
/// wait for them.
const BEGIN: &str = "set transaction isolation level read committed; start transaction";

/// How a transaction begins in which a user appends events. A deadlock rolls all of it back, and the session goes on
/// without one: the savepoint is gone then.
pub(super) const BEGIN_TO_APPEND: &str = "start transaction; savepoint backstop_begun";

/// How long a node waits for another that is migrating.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct MysqlDialect;

impl Dialect for MysqlDialect {
    fn marks(&self) -> Marks {
        Marks::Question
    }

    fn moment(&self, statement: &mut Statement, at: At, offset: TimeDelta) {
        match at {
            At::Instant(moment) => {
                statement.bind(moment + offset);
            }
            At::Database => {
                statement.push("utc_timestamp(6)");
                if let Some(micros) = offset.num_microseconds().filter(|micros| *micros != 0) {
                    statement.push(" + interval ").bind(micros).push(" microsecond");
                }
            }
        }
    }

    /// A date of zeros is no moment, and a strict session refuses to write it: one row of the kind would hold up all
    /// that are changed with it.
    fn own_created_at(&self) -> &'static str {
        "greatest(created_at, '1000-01-01')"
    }

    fn zoneless_moments(&self, table: &TableName) -> Option<Statement> {
        let mut statement = Statement::new(self.marks());
        statement.push(&format!(
            "select count(*) from information_schema.columns where table_schema = database() and \
             column_name in ({MOMENTS}) and data_type = 'datetime' and table_name = "
        ));
        statement.bind(table.as_str());
        Some(statement)
    }

    fn default_ahead(&self, minutes: i64) -> String {
        if minutes == 0 { String::new() } else { format!(" + interval {minutes} minute") }
    }

    fn bind_json(&self, statement: &mut Statement, json: Value) {
        statement.bind(json);
    }

    fn json_as_text(&self, column: &'static str) -> String {
        column.to_owned()
    }

    /// One by one: without partial indexes, an index begins with the status and gives the order within one.
    fn pending(&self) -> &'static [&'static str] {
        &["status = 0", "status = 2"]
    }

    fn hint(&self, table: &TableName, index: Index) -> String {
        // Left to itself it sorts where few rows seem to be due, and what seems to it may be long past.
        let name = match index {
            Index::Due => "status_available",
            Index::DueCreated | Index::Dead => "status_created",
            Index::Ended => "created",
        };
        format!(" force index ({}_{name})", table.index_prefix())
    }

    fn by_key(&self) -> &'static str {
        // Left to itself it scans a small table, and waits for rows that others have inserted and not committed.
        " force index (primary)"
    }

    fn delete_by_key(&self, table: &TableName) -> String {
        format!("delete {table} from {table}{}", self.by_key())
    }

    fn push_behind(&self, statement: &mut Statement, Place { due_at, created_at, id }: &Place) {
        // Its planner makes no range of a comparison of rows.
        statement.push("available_at >= ").bind(*due_at).push(" and (available_at > ").bind(*due_at);
        statement.push(" or created_at > ").bind(*created_at);
        statement.push(" or (created_at = ").bind(*created_at).push(" and event_id > ").bind(id.as_str());
        statement.push("))");
    }

    fn claim_statement(&self, question: &ClaimQuestion<'_>) -> Statement {
        let ClaimQuestion { timeout, due, .. } = *question;
        let statements = question.statements(self);
        let columns = row::columns(self, "claim_seq + 1");
        let mut statement = statements.begin("");
        statements.push_due(&mut statement, &columns, due, Some(timeout), " for update skip locked");
        statement
    }

    fn claim<'a>(
        &'a self,
        connections: &'a dyn Connections,
        question: ClaimQuestion<'a>,
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let ClaimQuestion { owner, due, .. } = question;
            let mut transaction = connections.transaction(BEGIN).await?;
            let rows = transaction.fetch(&self.claim_statement(&question), &row::KINDS).await?;
            let rows = choose(rows, due);
            if !rows.is_empty() {
                let statements = question.statements(self);
                let mut statement = statements.update("locked_by = ");
                statement.bind(owner).push(", locked_at = ");
                statements.moment(&mut statement, due.at);
                statement.push(", claim_seq = claim_seq + 1 where ");
                let ids: Vec<_> = rows.iter().filter_map(|row| text(&row[0])).collect();
                self.push_ids(&mut statement, &ids.iter().map(String::as_str).collect::<Vec<_>>());
                transaction.execute(&statement).await?;
            }
            transaction.commit().await?;
            Ok(rows)
        })
    }

    fn change<'a>(
        &'a self,
        connections: &'a dyn Connections,
        change: Change<'a>,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            let statements = change.statements;
            let mut transaction = connections.transaction(BEGIN).await?;
            let mut free = statements.begin("select event_id from {table}");
            free.push(self.by_key()).push(" where ");
            change.push_rows(&mut free);
            free.push(" for update skip locked");
            let ids = row::ids(transaction.fetch(&free, &[Kind::Text]).await?);
            if !ids.is_empty() {
                let mut statement = statements.update("");
                (change.set)(&mut statement);
                statement.push(" where ");
                self.push_ids(&mut statement, &ids.iter().map(String::as_str).collect::<Vec<_>>());
                transaction.execute(&statement).await?;
            }
            transaction.commit().await?;
            Ok(ids)
        })
    }

    /// Reads the ids: a statement that deletes in an order locks what it passes over, and waits for it.
    fn purge_statement(&self, purge: &PurgeQuestion<'_>) -> Statement {
        // One index has all rows by their age, whatever their status.
        let mut purge = *purge;
        purge.index = Index::Ended;
        purge.statements.old("event_id", &purge, "")
    }

    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        purge: PurgeQuestion<'a>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let (mut question, mut deleted) = (purge, 0);
            loop {
                let old = connection.fetch(&self.purge_statement(&question), &[Kind::Text]).await?;
                let ids = row::ids(old);
                for ids in ids.chunks(ROWS_PER_STATEMENT) {
                    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
                    deleted += connection.execute(&self.delete_old(&purge, &ids)).await?;
                }
                let is_short = ids.len() < question.limit as usize;
                question.limit = purge.limit.saturating_sub(u32::try_from(deleted).unwrap_or(u32::MAX));
                // Fewer than were chosen: others took some meanwhile, and there may be more. A transaction of the
                // caller's would choose the same rows again, whoever has taken them.
                if is_short || question.limit == 0 || connection.in_transaction() {
                    return Ok(deleted);
                }
            }
        })
    }

    fn still_in_transaction(&self) -> StillIn {
        StillIn::Asked("release savepoint backstop_begun")
    }

    fn refused_within(&self) -> Option<&'static str> {
        Some("set transaction read write")
    }

    fn migrations(&self) -> &'static [Migration] {
        &[Migration { version: 1, sql: include_str!("migrations/0001_outbox_event.sql") }]
    }

    fn plain_inserts(&self) -> &'static str {
        include_str!("plain_inserts.sql")
    }

    fn migration_begin(&self) -> &'static str {
        "START TRANSACTION"
    }

    /// A lock of the session: each statement of a migration ends the transaction it runs in.
    fn lock_migrations<'a>(&'a self, connection: &'a mut dyn Connection) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut lock = Statement::new(self.marks());
            lock.push("select get_lock(concat('backstop.migration.', md5(database())), ");
            lock.bind(PATIENCE.as_secs().cast_signed()).push(")");
            let answer = connection.fetch(&lock, &[Kind::Int]).await?;
            match answer.first().map(Vec::as_slice) {
                Some([Value::Int(Some(1))]) => Ok(()),
                _ => Err(Error::Migrating(PATIENCE)),
            }
        })
    }

    fn unlock_migrations<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut unlock = Statement::new(self.marks());
            unlock.push("do release_lock(concat('backstop.migration.', md5(database())))");
            connection.execute(&unlock).await.map(drop)
        })
    }

    fn explain(&self, error: &sqlx::Error) -> Option<Explanation> {
        match error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number() {
            1146 => Some(Explanation::NoTable),
            // No right to the database, the table or a column.
            1044 | 1142 | 1143 => Some(Explanation::NotPermitted),
            // A deadlock.
            1213 => Some(Explanation::Lost),
            1568 => Some(Explanation::Within),
            _ => only_reads(error).then_some(Explanation::OnlyReads),
        }
    }
}

impl MysqlDialect {
    /// Deletes rows that were chosen. Their age and state are said again: whoever replayed a row meanwhile keeps it.
    fn delete_old(&self, purge: &PurgeQuestion<'_>, ids: &[&str]) -> Statement {
        let statements = purge.statements;
        let mut statement = statements.begin(&self.delete_by_key(statements.table));
        statements.push_old(&mut statement, purge);
        statement.push(" and ");
        self.push_ids(&mut statement, ids);
        statement
    }
}
