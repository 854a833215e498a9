//! The words in which MySQL and MariaDB differ.

use std::time::Duration;

use chrono::TimeDelta;
use sqlx::mysql::MySqlDatabaseError;

use crate::connection::{Column, Connection};
use crate::database::dialect::{Dialect, Explanation, StillIn};
use crate::database::rows::{Change, KEPT, ROWS_PER_STATEMENT, Rows};
use crate::database::{At, Database, TableName, Via};
use crate::error::only_reads;
use crate::statement::{Marks, Statement, Value};
use crate::{BoxFuture, Error};

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

    fn zoneless(&self, table: &TableName, columns: &[&str]) -> Option<Statement> {
        let mut statement = Statement::new(self.marks());
        statement
            .push("select count(*) from information_schema.columns where table_schema = database() and ");
        self.push_one_of(&mut statement, "column_name", columns);
        statement.push(" and data_type = 'datetime' and table_name = ").bind(table.as_str());
        Some(statement)
    }

    fn default_ahead(&self, minutes: i64) -> String {
        if minutes == 0 { String::new() } else { format!(" + interval {minutes} minute") }
    }

    fn by_key(&self) -> &'static str {
        // Left to itself it scans a small table, and waits for rows that others have inserted and not committed.
        " force index (primary)"
    }

    fn delete_by_key(&self, table: &TableName) -> String {
        format!("delete {table} from {table}{}", self.by_key())
    }

    fn change_statement(&self, rows: &Rows<'_>, change: &Change<'_>) -> Statement {
        let mut statement = Statement::new(self.marks());
        rows.select(&mut statement, &change.read_before, KEPT);
        statement
    }

    fn change<'a>(
        &'a self,
        database: &'a Database,
        via: Via,
        rows: &'a Rows<'_>,
        change: &'a Change<'_>,
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let mut transaction = database.transaction(via, BEGIN).await?;
            let chosen = transaction.fetch(&self.change_statement(rows, change), change.kinds).await?;
            let chosen = (change.choose)(chosen);
            let keys: Vec<_> = chosen.iter().filter_map(|row| row.first()).collect();
            if !keys.is_empty() {
                let mut statement = Statement::new(self.marks());
                statement.push(&format!("update {}{} set ", rows.table, self.by_key()));
                (change.set)(&mut statement);
                statement.push(" where ");
                self.push_keys(&mut statement, rows.key, &keys);
                transaction.execute(&statement).await?;
            }
            transaction.commit().await?;
            Ok(chosen)
        })
    }

    /// Reads the keys: a statement that deletes in an order locks what it passes over, and waits for it.
    fn delete_statement(&self, rows: &Rows<'_>) -> Statement {
        let mut statement = Statement::new(self.marks());
        rows.select(&mut statement, rows.key, "");
        statement
    }

    fn delete<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        rows: &'a mut Rows<'_>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let most = rows.limit();
            let mut deleted = 0;
            loop {
                let chosen = connection.fetch(&self.delete_statement(rows), &[rows.key_kind]).await?;
                for keys in chosen.chunks(ROWS_PER_STATEMENT) {
                    let keys: Vec<_> = keys.iter().flatten().collect();
                    deleted += connection.execute(&self.delete_chosen(rows, &keys)).await?;
                }
                let is_short = chosen.len() < rows.limit() as usize;
                let left = most.saturating_sub(u32::try_from(deleted).unwrap_or(u32::MAX));
                // Fewer than were chosen: others took some meanwhile, and there may be more. A transaction of the
                // caller's would choose the same rows again, whoever has taken them.
                if is_short || left == 0 || connection.in_transaction() {
                    return Ok(deleted);
                }
                rows.at_most(left);
            }
        })
    }

    fn begin_to_change(&self) -> &'static str {
        BEGIN
    }

    fn locked(&self) -> &'static str {
        " for update"
    }

    fn still_in_transaction(&self) -> StillIn {
        StillIn::Asked("release savepoint backstop_begun")
    }

    fn refused_within(&self) -> Option<&'static str> {
        Some("set transaction read write")
    }

    fn migration_begin(&self) -> &'static str {
        "START TRANSACTION"
    }

    /// A lock of the session: each statement of a migration ends the transaction it runs in.
    fn lock_migrations<'a>(&'a self, connection: &'a mut dyn Connection) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut lock = Statement::new(self.marks());
            lock.push("select get_lock(concat('backstop.migration.', left(sha2(database(), 256), 32)), ");
            lock.bind(PATIENCE.as_secs().cast_signed()).push(")");
            let answer = connection.fetch(&lock, &[Column::Int]).await?;
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
            let unlock = "do release_lock(concat('backstop.migration.', left(sha2(database(), 256), 32)))";
            connection.execute(&Statement::plain(unlock)).await.map(drop)
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
    /// Deletes rows that were chosen. The condition is repeated, so that a row that somebody changed meanwhile stays.
    fn delete_chosen(&self, rows: &Rows<'_>, keys: &[&Value]) -> Statement {
        let mut statement = Statement::new(self.marks());
        statement.push(&self.delete_by_key(rows.table)).push(" where ");
        for condition in &rows.conditions {
            condition.add(&mut statement);
            statement.push(" and ");
        }
        self.push_keys(&mut statement, rows.key, keys);
        statement
    }

    /// Adds the condition that a row has one of these keys, which are all texts or all numbers.
    fn push_keys(&self, statement: &mut Statement, column: &str, keys: &[&Value]) {
        let numbers: Vec<_> = keys.iter().filter_map(|key| key.int()).collect();
        if numbers.is_empty() {
            let texts: Vec<_> = keys.iter().filter_map(|key| key.text()).collect();
            self.push_one_of(statement, column, &texts);
        } else {
            self.push_one_of_ints(statement, column, &numbers);
        }
    }
}
