//! One folder per database, each with the same files: what differs between them, and nothing else.

mod alike;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod beside;
mod kind;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
mod or_beside;
mod plain_inserts;
mod plans;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod presence;
mod row;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod session;
mod sql;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod statements;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod url;
mod zone;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;

use crate::connection::{Connection, Connections, Kind};
use crate::migration::Migration;
use crate::statement::{Marks, Statement, Value};
use crate::store::{At, Done, Due, Place};
use crate::wake_up::WakeUps;
use crate::{BoxFuture, Error, TableName, TimeZone};

pub use kind::DatabaseKind;
pub use sql::SqlStore;
use statements::{PurgeQuestion, Statements};

/// A database that the outbox works on, by sqlx's name for it.
pub trait Supported: sqlx::Database {
    /// What is particular about it.
    #[doc(hidden)]
    fn dialect() -> &'static dyn Dialect;

    /// Its pool as a source of connections.
    #[doc(hidden)]
    fn connections(pool: sqlx::Pool<Self>) -> Arc<dyn Connections>;

    /// Connections beside the pool, opened when they are needed, for what must not wait for the application. None where more
    /// of them would help nobody.
    #[doc(hidden)]
    fn beside(_pool: &sqlx::Pool<Self>) -> Option<Arc<dyn Connections>> {
        None
    }

    /// Its connection as the seam.
    #[doc(hidden)]
    fn seam(connection: &mut Self::Connection) -> &mut dyn Connection;

    /// Begins a transaction that is going to write.
    #[doc(hidden)]
    fn begin(pool: &sqlx::Pool<Self>)
    -> BoxFuture<'_, Result<sqlx::Transaction<'static, Self>, sqlx::Error>>;

    /// The bell that the nodes of a table ring for each other, if the database has one.
    #[doc(hidden)]
    fn wake_ups(_pool: &sqlx::Pool<Self>, _table: &TableName) -> Option<Arc<dyn WakeUps>> {
        None
    }

    /// Takes the right to deliver from a table, or tells that somebody else has it.
    #[doc(hidden)]
    fn right<'a>(
        pool: &'a sqlx::Pool<Self>,
        table: &'a TableName,
        share: Share,
    ) -> BoxFuture<'a, Result<Right, Error>>;
}

/// With whom a node shares its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// With nobody.
    Alone,
    /// With others that claim their rows, and with nobody who is alone.
    Claiming,
}

/// The right to deliver from a table. It ends when this is dropped, and with the process; released
/// in so many words, it is free when that returns.
pub struct Right(Box<dyn Holder>);

/// What holds the right: a locked file, or a connection with a lock.
pub(crate) trait Holder: Send + Sync {
    /// Whether the right is still held. A file's lock lasts as long as the process.
    fn is_held(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }

    /// Takes the right anew after it was lost, or tells that somebody else has it by now.
    fn retake(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Gives the right back.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;
}

impl Right {
    pub(crate) fn held_by(holder: impl Holder + 'static) -> Self {
        Self(Box::new(holder))
    }

    pub(crate) async fn is_held(&mut self) -> bool {
        self.0.is_held().await
    }

    pub(crate) async fn retake(&mut self) -> Result<(), Error> {
        self.0.retake().await
    }

    pub(crate) async fn release(self) {
        self.0.release().await;
    }
}

/// What is particular about a database: the words and statements in which it differs from the others.
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

    /// When a row was created, as it can be written back.
    fn own_created_at(&self) -> &'static str {
        "created_at"
    }

    /// The query that counts those of a table's [`MOMENTS`] whose columns carry no time zone, where the database has
    /// such columns.
    fn zoneless_moments(&self, _table: &TableName) -> Option<Statement> {
        None
    }

    /// The query that names the session's time zone if that shifts moments on their way into a column that carries
    /// none, where the database does such a thing.
    fn shifting_zone(&self) -> Option<Statement> {
        None
    }

    /// What stands behind the database's now in the default of a column without a time zone, so that it is so many
    /// minutes ahead of UTC.
    fn default_ahead(&self, _minutes: i64) -> String {
        String::new()
    }

    /// Adds a JSON text that goes into a JSON column.
    fn bind_json(&self, statement: &mut Statement, json: Value);

    /// How a JSON column is read as the text it holds.
    fn json_as_text(&self, column: &'static str) -> String;

    /// The conditions that together mean that a row is pending, each of which an index answers in the order
    /// of [`Order`](crate::store::Order).
    fn pending(&self) -> &'static [&'static str] {
        &["status in (0, 2)"]
    }

    /// What stands behind the table's name so that the index is used, where the database would choose
    /// another and sort.
    fn hint(&self, _table: &TableName, _index: Index) -> String {
        String::new()
    }

    /// What stands behind the table's name in a statement that changes rows by their ids, so that it reaches them by
    /// their key alone: a scan would wait for rows that somebody else has inserted and not committed.
    fn by_key(&self) -> &'static str {
        ""
    }

    /// How a statement begins that deletes rows by their ids.
    fn delete_by_key(&self, table: &TableName) -> String {
        format!("delete from {table}")
    }

    /// Adds the condition that a row's id is these bytes, which are no text.
    fn push_key(&self, statement: &mut Statement, key: &[u8]) {
        statement.push("event_id = ").bind(Value::Bytes(key.to_vec()));
    }

    /// The condition that a row is pending and its moment never comes, because it is none, where the database has no
    /// type for moments.
    fn never_due(&self) -> Option<&'static str> {
        None
    }

    /// How to find out that a transaction is still the one that began.
    fn still_in_transaction(&self) -> StillIn;

    /// A statement that is refused within a transaction and only there, where the database can end one without a word: what
    /// is inserted after that would be committed by itself.
    fn refused_within(&self) -> Option<&'static str> {
        None
    }

    /// The statement after which a driver can roll back again, where it minds that the database did so before it.
    fn begin_again(&self) -> Option<&'static str> {
        None
    }

    /// Adds the moment `at` plus, for each of the rows, an offset of its own.
    fn own_moment(&self, statement: &mut Statement, at: At, ids: &[&str], offsets: &[TimeDelta]) {
        statement.push("case event_id");
        for (id, offset) in ids.iter().zip(offsets) {
            statement.push(" when ").bind(*id).push(" then ");
            self.moment(statement, at, *offset);
        }
        statement.push(" end");
    }

    /// Adds, for each of the rows, a text of its own.
    fn own_text(&self, statement: &mut Statement, ids: &[&str], texts: &[String]) {
        statement.push("case event_id");
        for (id, text) in ids.iter().zip(texts) {
            statement.push(" when ").bind(*id).push(" then ").bind(text.as_str());
        }
        statement.push(" end");
    }

    /// Adds the condition that a row is behind a place in the order in which rows become due, in words that let
    /// an index begin there.
    fn push_behind(&self, statement: &mut Statement, Place { due_at, created_at, id }: &Place) {
        statement.push("(available_at, created_at, event_id) > (").bind(*due_at);
        statement.push(", ").bind(*created_at).push(", ").bind(id.as_str()).push(")");
    }

    /// Adds the condition that a row is one of these.
    fn push_ids(&self, statement: &mut Statement, ids: &[&str]) {
        if ids.is_empty() {
            statement.push("1 = 0"); // `in ()` is no SQL
            return;
        }
        statement.push("event_id in (").list(ids, |statement, id| {
            statement.bind(*id);
        });
        statement.push(")");
    }

    /// The statement with which a claim chooses rows, and takes them where one statement can do both.
    fn claim_statement(&self, question: &ClaimQuestion<'_>) -> Statement;

    /// Claims due rows and returns them as [`row::columns`] lists them.
    fn claim<'a>(
        &'a self,
        connections: &'a dyn Connections,
        question: ClaimQuestion<'a>,
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let mut connection = connections.connection().await?;
            connection.fetch(&self.claim_statement(&question), &row::KINDS).await
        })
    }

    /// The statement that changes claimed rows which nobody else holds, and returns their ids.
    fn change_statement(&self, change: &Change<'_>) -> Statement {
        let mut statement = change.statements.update("");
        (change.set)(&mut statement);
        statement.push(" where ");
        change.push_rows(&mut statement);
        statement.push(" returning event_id");
        statement
    }

    /// Changes claimed rows, passes over those that somebody else holds, and tells which were changed.
    fn change<'a>(
        &'a self,
        connections: &'a dyn Connections,
        change: Change<'a>,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            let mut connection = connections.connection().await?;
            let changed = connection.fetch(&self.change_statement(&change), &[Kind::Text]).await?;
            Ok(row::ids(changed))
        })
    }

    /// The statement that deletes old rows, or reads their ids where one statement cannot do both.
    fn purge_statement(&self, purge: &PurgeQuestion<'_>) -> Statement;

    /// Deletes old rows, the oldest first, and tells how many.
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        purge: PurgeQuestion<'a>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move { connection.execute(&self.purge_statement(&purge)).await })
    }

    /// The migrations, in order.
    fn migrations(&self) -> &'static [Migration];

    /// What lets others insert rows with plain SQL: defaults for what they leave out, and a trigger that wakes
    /// nodes, as far as the database has either. `{table}` stands for the table's name.
    fn plain_inserts(&self) -> &'static str;

    /// Whether nodes are woken by rows that others insert, once that ran.
    fn wakes(&self) -> bool {
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

    /// Whether an error of a migration's statement says that what it adds is there, where the statement
    /// cannot ask for it.
    fn is_there_already(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// What a driver's error means, where that can be told to the user more clearly.
    fn explain(&self, error: &sqlx::Error) -> Option<Explanation>;
}

/// The columns that hold moments.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const MOMENTS: &str = "'available_at', 'created_at', 'done_at', 'locked_at'";

/// An index of ours, by what it gives the order for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// Pending rows by when they are due.
    Due,
    /// Pending rows by when they were created.
    DueCreated,
    /// Rows that are done or dead, by when they were created.
    Ended,
    /// Dead rows by when they were created.
    Dead,
}

/// What a database's error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explanation {
    /// There is no such table.
    NoTable,
    /// The user lacks a right.
    NotPermitted,
    /// The server takes no changes, from anybody.
    OnlyReads,
    /// Another statement was in the way, and won; the same one would succeed now.
    Lost,
    /// An earlier statement of the transaction failed, and with it the whole.
    Aborted,
    /// The statement makes no sense within a transaction, and there is one.
    Within,
    /// The connection forgot what was prepared on it: it is another one each time.
    Pooler,
}

/// How to find out that a transaction is still the one that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StillIn {
    /// By a statement, where an event is missing that the transaction had inserted.
    WhenMissing(&'static str),
    /// By a statement that fails, in any case: what is inserted after a transaction was lost is committed by itself.
    Asked(&'static str),
}

/// A change of rows that were claimed together.
pub struct Change<'a> {
    pub(crate) statements: Statements<'a>,
    pub(crate) claim: (&'a str, i64),
    pub(crate) ids: &'a [&'a str],
    /// Adds what is set.
    pub(crate) set: &'a (dyn Fn(&mut Statement) + Sync),
}

impl Change<'_> {
    /// Adds the condition that a row is one of these, and still has the claim.
    fn push_rows(&self, statement: &mut Statement) {
        statements::push_claimed(statement, self.claim);
        self.statements.dialect.push_ids(statement, self.ids);
    }
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("rows", &self.ids.len()).finish_non_exhaustive()
    }
}

/// Who wants which rows.
#[derive(Debug, Clone, Copy)]
pub struct ClaimQuestion<'a> {
    pub(crate) table: &'a TableName,
    pub(crate) owner: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) due: Due<'a>,
    pub(crate) zone: TimeZone,
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl ClaimQuestion<'_> {
    fn statements<'a>(&'a self, dialect: &'a dyn Dialect) -> Statements<'a> {
        Statements { dialect, table: self.table, done: Done::Keep, zone: self.zone }
    }
}
