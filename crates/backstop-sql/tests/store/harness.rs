//! A fresh table on each database, and short words for what the tests do with it.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Timestamp};
use backstop_sql::connection::{Connection, Connections, Kind};
use backstop_sql::statement::{Marks, Statement, Value};
use backstop_sql::store::{At, Born, Claim, DatabaseKind, Due, Order, Row, Settle, Share, SqlStore, Store};
use backstop_sql::{Error, Supported, TableName};
use backstop_testkit::servers;
use chrono::TimeDelta;
use sqlx::{MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool};

/// A fresh database.
pub(crate) struct Fresh {
    pub(crate) kind: DatabaseKind,
    pub(crate) url: String,
    pub(crate) store: SqlStore,
    pub(crate) connections: Arc<dyn Connections>,
    pool: AnyPool,
    /// Goes last: the database goes with it.
    _database: Box<dyn Any + Send + Sync>,
}

/// A transaction as users have it.
pub(crate) trait Begun: Connection {
    fn commit(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<(), sqlx::Error>>>>;
}

impl<DB: Supported> Begun for sqlx::Transaction<'static, DB>
where
    Self: Connection,
{
    fn commit(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<(), sqlx::Error>>>> {
        Box::pin(sqlx::Transaction::commit(*self))
    }
}

enum AnyPool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    Mysql(MySqlPool),
}

pub(crate) async fn empty_sqlite() -> Option<Fresh> {
    let database = servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    Some(Fresh {
        kind: DatabaseKind::Sqlite,
        url: database.url(),
        store: SqlStore::on(pool.clone(), TableName::default()),
        connections: Sqlite::connections(pool.clone()),
        pool: AnyPool::Sqlite(pool),
        _database: Box::new(database),
    })
}

pub(crate) async fn empty_postgres() -> Option<Fresh> {
    let database = servers::postgres().await?;
    let pool = backstop_sql::postgres::open(&database.url()).await.unwrap();
    Some(Fresh {
        kind: DatabaseKind::Postgres,
        url: database.url(),
        store: SqlStore::on(pool.clone(), TableName::default()),
        connections: Postgres::connections(pool.clone()),
        pool: AnyPool::Postgres(pool),
        _database: Box::new(database),
    })
}

pub(crate) async fn empty_mysql() -> Option<Fresh> {
    let database = servers::mysql().await?;
    let pool = backstop_sql::mysql::open(&database.url()).await.unwrap();
    Some(Fresh {
        kind: DatabaseKind::Mysql,
        url: database.url(),
        store: SqlStore::on(pool.clone(), TableName::default()),
        connections: MySql::connections(pool.clone()),
        pool: AnyPool::Mysql(pool),
        _database: Box::new(database),
    })
}

pub(crate) async fn fresh_sqlite() -> Option<Fresh> {
    migrated(empty_sqlite().await).await
}

pub(crate) async fn fresh_postgres() -> Option<Fresh> {
    migrated(empty_postgres().await).await
}

pub(crate) async fn fresh_mysql() -> Option<Fresh> {
    migrated(empty_mysql().await).await
}

async fn migrated(fresh: Option<Fresh>) -> Option<Fresh> {
    let fresh = fresh?;
    fresh.store.migrate().await.unwrap();
    Some(fresh)
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

const STATE_KINDS: [Kind; 9] =
    [Kind::Int, Kind::Int, Kind::Time, Kind::Time, Kind::Time, Kind::Text, Kind::Text, Kind::Time, Kind::Int];

impl Fresh {
    pub(crate) fn marks(&self) -> Marks {
        if self.kind == DatabaseKind::Postgres { Marks::Dollar } else { Marks::Question }
    }

    pub(crate) fn statement(&self, text: &str) -> Statement {
        let mut statement = Statement::new(self.marks());
        statement.push(text);
        statement
    }

    /// The same database with a table of another name.
    pub(crate) fn store_on(&self, table: &str) -> SqlStore {
        let table = TableName::new(table).unwrap();
        match &self.pool {
            AnyPool::Sqlite(pool) => SqlStore::on(pool.clone(), table),
            AnyPool::Postgres(pool) => SqlStore::on(pool.clone(), table),
            AnyPool::Mysql(pool) => SqlStore::on(pool.clone(), table),
        }
    }

    /// Takes the right to be the only node.
    pub(crate) async fn alone(&self, table: &str) -> Result<Box<dyn Any + Send + Sync>, Error> {
        self.right(table, Share::Alone).await
    }

    /// Takes the right to deliver, alone or with others that claim.
    pub(crate) async fn right(&self, table: &str, share: Share) -> Result<Box<dyn Any + Send + Sync>, Error> {
        let table = TableName::new(table).unwrap();
        Ok(match &self.pool {
            AnyPool::Sqlite(pool) => Box::new(Sqlite::right(pool, &table, share).await?),
            AnyPool::Postgres(pool) => Box::new(Postgres::right(pool, &table, share).await?),
            AnyPool::Mysql(pool) => Box::new(MySql::right(pool, &table, share).await?),
        })
    }

    /// Runs a statement, as a person at a prompt would.
    pub(crate) async fn run(&self, text: &str) -> u64 {
        self.try_run(text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(crate) async fn try_run(&self, text: &str) -> Result<u64, Error> {
        let mut connection = self.connections.connection().await?;
        connection.execute(&self.statement(text)).await
    }

    /// Reads rows.
    pub(crate) async fn read(&self, statement: &Statement, kinds: &[Kind]) -> Vec<Vec<Value>> {
        let mut connection = self.connections.connection().await.unwrap();
        connection
            .fetch(statement, kinds)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", statement.text()))
    }

    /// Reads one column of texts.
    pub(crate) async fn texts(&self, text: &str) -> Vec<String> {
        let rows = self.read(&self.statement(text), &[Kind::Text]).await;
        rows.iter().map(|row| as_text(&row[0]).unwrap_or_default()).collect()
    }

    /// Reads one number.
    pub(crate) async fn number(&self, text: &str) -> i64 {
        as_int(&self.read(&self.statement(text), &[Kind::Int]).await[0][0])
    }

    /// A transaction as users begin it.
    pub(crate) async fn begin_to_append(&self) -> Box<dyn Begun> {
        match &self.pool {
            AnyPool::Sqlite(pool) => Box::new(Sqlite::begin(pool).await.unwrap()),
            AnyPool::Postgres(pool) => Box::new(Postgres::begin(pool).await.unwrap()),
            AnyPool::Mysql(pool) => Box::new(MySql::begin(pool).await.unwrap()),
        }
    }

    /// Inserts events in a transaction of their own.
    pub(crate) async fn insert(&self, events: &[Event]) {
        self.insert_born(events, None).await;
    }

    pub(crate) async fn insert_born(&self, events: &[Event], born: Option<&Born>) {
        let mut transaction = self.connections.transaction("BEGIN").await.unwrap();
        self.store.insert(&mut transaction, events, born).await.unwrap();
        transaction.commit().await.unwrap();
    }

    pub(crate) async fn state(&self, id: &str) -> State {
        let mut statement = self.statement(
            "select status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at, claim_seq \
             from outbox_event where event_id = ",
        );
        statement.bind(id);
        let rows = self.read(&statement, &STATE_KINDS).await;
        let [row] = rows.as_slice() else { panic!("{} rows have id {id}", rows.len()) };
        State {
            status: as_int(&row[0]),
            attempts: as_int(&row[1]),
            available_at: as_time(&row[2]),
            created_at: as_time(&row[3]),
            done_at: as_time(&row[4]),
            last_error: as_text(&row[5]),
            locked_by: as_text(&row[6]),
            locked_at: as_time(&row[7]),
            claim_seq: as_int(&row[8]),
        }
    }

    /// Brings a row into a state that only a person at a prompt, or another program, could.
    pub(crate) async fn set(&self, id: &str, assignments: &str) {
        let mut statement =
            self.statement(&format!("update outbox_event set {assignments} where event_id = "));
        statement.bind(id);
        let mut connection = self.connections.connection().await.unwrap();
        assert_eq!(connection.execute(&statement).await.unwrap(), 1, "{assignments}");
    }

    /// Settles a row under no claim and tells how many rows changed.
    pub(crate) async fn settle(&self, id: &str, seconds: i64, settlement: Settlement) -> u64 {
        self.settle_under(None, id, seconds, settlement).await
    }

    pub(crate) async fn settle_under(
        &self,
        claim: Option<&Claim>,
        id: &str,
        seconds: i64,
        settlement: Settlement,
    ) -> u64 {
        let settle =
            Settle { id: id.to_owned(), claim: claim.cloned(), attempts: None, generation: None, settlement };
        self.store.settle(at(seconds), &[settle]).await.unwrap()
    }

    pub(crate) async fn poll(&self, seconds: i64, limit: u32) -> Vec<Row> {
        self.store.poll(due(seconds, limit)).await.unwrap()
    }

    /// Claims with a time-out of one minute.
    pub(crate) async fn claim(&self, owner: &str, seconds: i64, limit: u32) -> Vec<Row> {
        self.store.claim(&owner.into(), MINUTE, due(seconds, limit)).await.unwrap()
    }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A moment of the tests' own time, which begins on the first of January 2020.
pub(crate) fn moment(seconds: i64) -> Timestamp {
    let begin: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    begin + TimeDelta::seconds(seconds)
}

pub(crate) fn at(seconds: i64) -> At {
    At::Instant(moment(seconds))
}

pub(crate) fn due(seconds: i64, limit: u32) -> Due<'static> {
    Due { at: at(seconds), skip_recent: Duration::ZERO, limit, order: Order::Due, after: None }
}

/// An event of that id that happened at that moment.
pub(crate) fn event(id: &str, seconds: i64) -> Event {
    Event::of("OrderPlaced")
        .id(id)
        .aggregate("Order", "42")
        .occurred_at(moment(seconds))
        .payload_json("{}")
        .build()
        .unwrap()
}

/// Events `a`, `b`, … one second apart from 0 on.
pub(crate) fn events(ids: &str) -> Vec<Event> {
    ids.chars().zip(0..).map(|(id, seconds)| event(&id.to_string(), seconds)).collect()
}

pub(crate) fn ids(rows: &[Row]) -> String {
    rows.iter().map(|row| row.id.as_str()).collect()
}

pub(crate) fn retry(seconds: u64, error: &str) -> Settlement {
    Settlement::Retry { after: Duration::from_secs(seconds), error: error.to_owned() }
}

pub(crate) fn deferred(seconds: u64) -> Settlement {
    Settlement::Deferred { after: Duration::from_secs(seconds) }
}

pub(crate) fn dead(error: &str) -> Settlement {
    Settlement::Dead { error: error.to_owned() }
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
