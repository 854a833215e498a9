//! What is particular about a database: the words in which it differs from the others, whatever the table.

use std::fmt;

use chrono::TimeDelta;

use super::connection::{Column, Connection};
use super::rows::{Change, Move, Rows};
use super::statement::{Marks, Statement, Value};
use super::{At, Database, TableName, Via};
use crate::{BoxFuture, Error};

/// The words and statements in which a database differs from the others.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// How it marks bound values.
    fn marks(&self) -> Marks;

    /// Adds the moment `at` plus `offset`.
    fn moment(&self, statement: &mut Statement, at: At, offset: TimeDelta);

    /// The same moment for a statement that names it more than once. A server's own now stands still within a statement.
    fn once(&self, at: At) -> At {
        at
    }

    /// The function that gives the earlier of two moments.
    fn earlier(&self) -> &'static str {
        "least"
    }

    /// The function that tells the place of a text within another, from 1 on, and 0 where it is not in it.
    fn place_of(&self) -> &'static str {
        "instr"
    }

    /// The query that counts those of a table's columns that hold moments without a time zone, where the database has
    /// such columns.
    fn zoneless(&self, _table: &TableName, _columns: &[&str]) -> Option<Statement> {
        None
    }

    /// The query that names the session's time zone if that shifts moments on their way into a column that carries
    /// none, where the database does such a thing.
    fn shifting_zone(&self) -> Option<&'static str> {
        None
    }

    /// What follows the database's now in the default of a column without a time zone, so that it is this many
    /// minutes ahead of UTC.
    fn default_ahead(&self, _minutes: i64) -> String {
        String::new()
    }

    /// Adds a JSON text that goes into a JSON column.
    fn bind_json(&self, statement: &mut Statement, json: Value) {
        statement.bind(json);
    }

    /// How a JSON column is read as the text it holds.
    fn json_as_text(&self, column: &'static str) -> String {
        column.to_owned()
    }

    /// How a text column is read as what goes into a JSON column.
    fn text_as_json(&self, column: &'static str) -> String {
        column.to_owned()
    }

    /// What follows the table's name in a statement that changes rows by their keys, so that it reaches them by
    /// their key alone: a scan would wait for rows that somebody else has inserted and not committed.
    fn by_key(&self) -> &'static str {
        ""
    }

    /// How a statement begins that deletes rows by their keys.
    fn delete_by_key(&self, table: &TableName) -> String {
        format!("delete from {table}")
    }

    /// Adds the condition that a column holds one of these texts.
    fn push_one_of(&self, statement: &mut Statement, column: &str, texts: &[&str]) {
        if texts.is_empty() {
            statement.push("1 = 0"); // `in ()` is no SQL
            return;
        }
        statement.push(column).push(" in (").list(texts, |statement, text| {
            statement.bind(*text);
        });
        statement.push(")");
    }

    /// Adds the condition that a column holds one of these numbers.
    fn push_one_of_ints(&self, statement: &mut Statement, column: &str, numbers: &[i64]) {
        if numbers.is_empty() {
            statement.push("1 = 0");
            return;
        }
        statement.push(column).push(" in (").list(numbers, |statement, number| {
            statement.bind(*number);
        });
        statement.push(")");
    }

    /// Adds the moment `at` plus, for each of the rows, an offset of its own.
    fn own_moment(&self, statement: &mut Statement, key: &str, at: At, ids: &[&str], offsets: &[TimeDelta]) {
        statement.push("case ").push(key);
        for (id, offset) in ids.iter().zip(offsets) {
            statement.push(" when ").bind(*id).push(" then ");
            self.moment(statement, at, *offset);
        }
        statement.push(" end");
    }

    /// Adds, for each of the rows, a text of its own.
    fn own_text(&self, statement: &mut Statement, key: &str, ids: &[&str], texts: &[String]) {
        statement.push("case ").push(key);
        for (id, text) in ids.iter().zip(texts) {
            statement.push(" when ").bind(*id).push(" then ").bind(text.as_str());
        }
        statement.push(" end");
    }

    /// The statement that chooses rows that nobody else holds, and changes them if one statement can do both.
    fn change_statement(&self, rows: &Rows<'_>, change: &Change<'_>) -> Statement;

    /// Changes rows, passes over those that somebody else holds, and reads the columns that the change asks for.
    fn change<'a>(
        &'a self,
        database: &'a Database,
        via: Via,
        rows: &'a Rows<'_>,
        change: &'a Change<'_>,
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let mut session = database.session(via).await?;
            session.fetch(&self.change_statement(rows, change), change.kinds).await
        })
    }

    /// The statement that deletes rows, or reads their keys where one statement cannot do both.
    fn delete_statement(&self, rows: &Rows<'_>) -> Statement;

    /// Deletes rows on the connection given, and returns how many.
    fn delete<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        rows: &'a mut Rows<'_>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move { connection.execute(&self.delete_statement(rows)).await })
    }

    /// How a transaction of our own begins that locks rows and changes them.
    fn begin_to_change(&self) -> &'static str;

    /// What follows a query whose rows are waited for and then kept from others until the transaction ends.
    fn locked(&self) -> &'static str;

    /// Moves the rows of one condition, whose keys are numbers, into another table: written there and deleted here, or neither.
    /// Returns the keys of those that were moved. A row that somebody has locked is waited for, and moved if it is still meant.
    fn move_rows<'a>(
        &'a self,
        database: &'a Database,
        via: Via,
        rows: &'a Rows<'_>,
        moving: &'a Move<'_>,
    ) -> BoxFuture<'a, Result<Vec<i64>, Error>> {
        Box::pin(async move {
            let (table, key) = (rows.table, rows.key);
            let mut transaction = database.transaction(via, self.begin_to_change()).await?;
            let mut choose = Statement::new(self.marks());
            rows.select(&mut choose, key, self.locked());
            let keys = Value::ints(&transaction.fetch(&choose, &[Column::Int]).await?);
            if keys.is_empty() {
                return Ok(keys); // rolled back: there was nothing to do
            }
            let Move { to, columns, made_of } = moving;
            let mut insert = Statement::new(self.marks());
            insert.push(&format!("insert into {to} ({columns}) select "));
            made_of(&mut insert);
            insert.push(&format!(" from {table}{} where ", self.by_key()));
            self.push_one_of_ints(&mut insert, key, &keys);
            let mut delete = Statement::new(self.marks());
            delete.push(&self.delete_by_key(table)).push(" where ");
            self.push_one_of_ints(&mut delete, key, &keys);
            for statement in [insert, delete] {
                if transaction.execute(&statement).await? != keys.len() as u64 {
                    return Err(Error::State("rows that were locked were not all moved"));
                }
            }
            transaction.commit().await?;
            Ok(keys)
        })
    }

    /// How to find out that a transaction is still the one that began.
    fn still_in_transaction(&self) -> StillIn;

    /// A statement that is refused inside a transaction and only there, if the database can end a transaction
    /// silently: rows inserted after that would be committed by themselves.
    fn refused_within(&self) -> Option<&'static str>;

    /// The statement after which a driver can roll back again, if it fails because the database did so before it.
    fn begin_again(&self) -> Option<&'static str> {
        None
    }

    /// Whether poolers are known that share its connections between transactions.
    fn has_poolers(&self) -> bool {
        false
    }

    /// The statement that begins the transaction of a migration.
    fn migration_begin(&self) -> &'static str;

    /// Waits until no other node migrates, where beginning the transaction did not.
    fn lock_migrations<'a>(
        &'a self,
        _connection: &'a mut dyn Connection,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Lets other nodes migrate, where ending the transaction does not.
    fn unlock_migrations<'a>(
        &'a self,
        _connection: &'a mut dyn Connection,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether an error of a migration's statement says that what it adds exists already, if the statement itself
    /// cannot check that.
    fn is_there_already(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// What a driver's error means, if that can be said to the user more clearly.
    fn explain(&self, error: &sqlx::Error) -> Option<Explanation>;
}

/// What a database's error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explanation {
    /// There is no such table.
    NoTable,
    /// The user lacks a right.
    NotPermitted,
    /// The server accepts no changes, from anybody.
    OnlyReads,
    /// The statement lost against another one; it would succeed now.
    Lost,
    /// An earlier statement of the transaction failed, and with it the whole transaction.
    Aborted,
    /// The statement is not allowed inside a transaction, and there is one.
    Within,
    /// The connection forgot what was prepared on it: it is another one each time.
    Pooler,
}

/// How to find out that a transaction is still the one that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StillIn {
    /// By a statement, if an event is missing that the transaction had inserted.
    WhenMissing(&'static str),
    /// Always, by a statement that fails: rows inserted after a transaction was lost are committed by themselves.
    Asked(&'static str),
}
