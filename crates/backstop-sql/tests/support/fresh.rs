//! A fresh database of each kind, and statements as a person at its prompt would run them.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::any::Any;
use std::sync::Arc;

use backstop_core::{Event, Timestamp};
use backstop_sql::connection::{Column, Connections};
use backstop_sql::statement::{Marks, Statement, Value};
use backstop_sql::store::{Born, DatabaseKind, SqlStore, Store};
use backstop_sql::{Error, Supported, TableName};
use backstop_testkit::servers;
use sqlx::{MySql, Pool, Postgres, Sqlite};

/// Few, since many tests run at once and PostgreSQL has a hundred for all of them; as many as SQLite's pool has.
const CONNECTIONS: u32 = 4;

/// One suite over every database: `over` names the function, generic over the [`Database`], that opens it.
macro_rules! database_suite {
    (over $open:ident on $threads:literal $unit:ident $($tests:tt)*) => {
        backstop_testkit::suite! {
            over { sqlite: $open::<sqlx::Sqlite>, postgres: $open::<sqlx::Postgres>, mysql: $open::<sqlx::MySql> }
            on $threads $unit
            $($tests)*
        }
    };
    (over $open:ident $($tests:tt)*) => {
        database_suite! { over $open on 2 threads $($tests)* }
    };
}

/// A database that tests run on. A fourth one is added here and in the list above.
pub(crate) trait Database: Supported {
    const KIND: DatabaseKind;

    /// Makes an empty one; `None` where there is no server for it, and then the test is marked as skipped.
    async fn make() -> Option<Fresh<Self>>;

    /// Makes an empty schema in a database that others use too, where that costs less.
    async fn make_schema() -> Option<Fresh<Self>> {
        Self::make().await
    }
}

impl Database for Sqlite {
    const KIND: DatabaseKind = DatabaseKind::Sqlite;

    async fn make() -> Option<Fresh<Self>> {
        let database = servers::sqlite();
        let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
        Some(Fresh::of(pool, database.url(), database))
    }
}

impl Database for Postgres {
    const KIND: DatabaseKind = DatabaseKind::Postgres;

    async fn make() -> Option<Fresh<Self>> {
        let database = servers::postgres().await?;
        let pool = backstop_sql::postgres::open_sized(&database.url(), CONNECTIONS).await.unwrap();
        Some(Fresh::of(pool, database.url(), database))
    }

    async fn make_schema() -> Option<Fresh<Self>> {
        let schema = servers::postgres_schema().await?;
        let pool = backstop_sql::postgres::open_sized(&schema.url(), CONNECTIONS).await.unwrap();
        Some(Fresh::of(pool, schema.url(), schema))
    }
}

impl Database for MySql {
    const KIND: DatabaseKind = DatabaseKind::Mysql;

    async fn make() -> Option<Fresh<Self>> {
        let database = servers::mysql().await?;
        let pool = backstop_sql::mysql::open_sized(&database.url(), CONNECTIONS).await.unwrap();
        Some(Fresh::of(pool, database.url(), database))
    }
}

/// An empty database.
pub(crate) async fn empty<DB: Database>() -> Option<Fresh<DB>> {
    DB::make().await
}

/// A database with a migrated table.
pub(crate) async fn migrated<DB: Database>() -> Option<Fresh<DB>> {
    let fresh = DB::make().await?;
    fresh.store.migrate().await.unwrap();
    Some(fresh)
}

/// A fresh database.
pub(crate) struct Fresh<DB: Database> {
    pub(crate) kind: DatabaseKind,
    pub(crate) url: String,
    pub(crate) pool: Pool<DB>,
    pub(crate) store: SqlStore,
    pub(crate) connections: Arc<dyn Connections>,
    /// Goes last: the database goes with it.
    _database: Box<dyn Any + Send + Sync>,
}

/// What a row holds besides its event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) status: i64,
    pub(crate) attempts: i64,
    pub(crate) available_at: Option<Timestamp>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) last_error: Option<String>,
    pub(crate) locked_by: Option<String>,
    pub(crate) locked_at: Option<Timestamp>,
    pub(crate) claim_seq: i64,
}

const STATE_KINDS: [Column; 9] = [
    Column::Int,
    Column::Int,
    Column::Time,
    Column::Time,
    Column::Time,
    Column::Text,
    Column::Text,
    Column::Time,
    Column::Int,
];

impl<DB: Database> Fresh<DB> {
    fn of(pool: Pool<DB>, url: String, database: impl Any + Send + Sync) -> Self {
        Self {
            kind: DB::KIND,
            url,
            store: SqlStore::on(pool.clone(), TableName::default()),
            connections: DB::connections(pool.clone()),
            pool,
            _database: Box::new(database),
        }
    }

    /// The same database with a table of another name.
    pub(crate) fn store_on(&self, table: &str) -> SqlStore {
        SqlStore::on(self.pool.clone(), TableName::new(table).unwrap())
    }

    pub(crate) fn marks(&self) -> Marks {
        if self.kind == DatabaseKind::Postgres { Marks::Dollar } else { Marks::Question }
    }

    pub(crate) fn statement(&self, text: &str) -> Statement {
        let mut statement = Statement::new(self.marks());
        statement.push(text);
        statement
    }

    /// Runs a statement.
    pub(crate) async fn run(&self, text: &str) -> u64 {
        self.try_run(text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(crate) async fn try_run(&self, text: &str) -> Result<u64, Error> {
        let mut connection = self.connections.connection().await?;
        connection.execute(&self.statement(text)).await
    }

    /// Reads rows.
    pub(crate) async fn read(&self, statement: &Statement, kinds: &[Column]) -> Vec<Vec<Value>> {
        let mut connection = self.connections.connection().await.unwrap();
        connection
            .fetch(statement, kinds)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", statement.text()))
    }

    /// Reads one column of texts.
    pub(crate) async fn texts(&self, text: &str) -> Vec<String> {
        let rows = self.read(&self.statement(text), &[Column::Text]).await;
        rows.iter().map(|row| as_text(&row[0]).unwrap_or_default()).collect()
    }

    /// Reads one number.
    pub(crate) async fn number(&self, text: &str) -> i64 {
        as_int(&self.read(&self.statement(text), &[Column::Int]).await[0][0])
    }

    /// Inserts events without an outbox, as if another process had, in a transaction of their own.
    pub(crate) async fn insert(&self, events: &[Event]) {
        self.insert_born(events, None).await;
    }

    pub(crate) async fn insert_born(&self, events: &[Event], born: Option<&Born>) {
        let mut transaction = self.connections.transaction("BEGIN").await.unwrap();
        self.store.insert(&mut transaction, events, born).await.unwrap();
        transaction.commit().await.unwrap();
    }

    /// What the row of an event holds.
    pub(crate) async fn state(&self, id: &str) -> State {
        self.find(id).await.unwrap_or_else(|| panic!("there is no row {id}"))
    }

    /// What the row of an event holds, if there is one.
    pub(crate) async fn find(&self, id: &str) -> Option<State> {
        let mut statement = self.statement(
            "select status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at, claim_seq \
             from outbox_event where event_id = ",
        );
        statement.bind(id);
        let rows = self.read(&statement, &STATE_KINDS).await;
        assert!(rows.len() < 2, "{} rows have id {id}", rows.len());
        let row = rows.first()?;
        Some(State {
            status: as_int(&row[0]),
            attempts: as_int(&row[1]),
            available_at: as_time(&row[2]),
            created_at: as_time(&row[3]),
            done_at: as_time(&row[4]),
            last_error: as_text(&row[5]),
            locked_by: as_text(&row[6]),
            locked_at: as_time(&row[7]),
            claim_seq: as_int(&row[8]),
        })
    }

    /// Brings a row into a state that only a person at a prompt, or another program, could.
    pub(crate) async fn set(&self, id: &str, assignments: &str) {
        let mut statement =
            self.statement(&format!("update outbox_event set {assignments} where event_id = "));
        statement.bind(id);
        let mut connection = self.connections.connection().await.unwrap();
        assert_eq!(connection.execute(&statement).await.unwrap(), 1, "{assignments}");
    }
}

pub(crate) fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    }
}

pub(crate) fn as_int(value: &Value) -> i64 {
    match value {
        Value::Int(Some(number)) => *number,
        other => panic!("{other:?} is no number"),
    }
}

pub(crate) fn as_time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Time(moment) => *moment,
        other => panic!("{other:?} is no moment"),
    }
}
