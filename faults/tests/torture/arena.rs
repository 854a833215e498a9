//! Where a run plays: a fresh database with the table, a trigger's audit of it, and what strangers do there. Plain SQL,
//! apart from the migration that makes the table.

use std::time::Duration;

use backstop_sql::TableName;
use backstop_sql::store::{SqlStore, Store as _};
use backstop_testkit::servers::{self, MysqlDatabase, PostgresDatabase, SqliteDatabase};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, MySqlPool, PgPool, SqlitePool, query, query_as, query_scalar, raw_sql};
use tokio::time::{Instant, sleep};

use crate::history::{Change, Row};
use crate::seed::Database;

const POSTGRES: &str = include_str!("audit/postgres.sql");
const MARIADB: &str = include_str!("audit/mariadb.sql");
const SQLITE: &str = include_str!("audit/sqlite.sql");

const CHANGES: &str = "select event_id, at, old_status, new_status, attempts, owner, claim, created \
                       from audit order by number";
const ROWS: &str = "select event_id, status, attempts from outbox_event";
const WAITING: &str = "select count(*) from outbox_event where status in (0, 2)";
const PROBE: &str = "update business set touched = touched + 1 where id = 100";

/// Sessions of MariaDB have no name, so ours are written down.
const KNOWN: &str =
    "create table if not exists stranger (id bigint); insert into stranger values (connection_id())";

/// The name that the judge's own sessions bear, so that nobody ends them.
const STRANGER: &str = "stranger";

pub(crate) enum Arena {
    Postgres { pool: PgPool, database: PostgresDatabase, pooled: Option<String> },
    Mariadb { pool: MySqlPool, database: MysqlDatabase },
    Sqlite { pool: SqlitePool, database: SqliteDatabase },
}

/// The same on the pool of whichever database it is: their types have nothing in common.
macro_rules! on_any {
    ($arena:expr, $pool:ident => $what:expr) => {
        match $arena {
            Arena::Postgres { pool: $pool, .. } => $what,
            Arena::Mariadb { pool: $pool, .. } => $what,
            Arena::Sqlite { pool: $pool, .. } => $what,
        }
    };
}

type ChangeRow = (String, i64, Option<i64>, Option<i64>, i64, Option<String>, i64, i64);

impl Arena {
    /// `None` where there is no such server, and then the test is marked as skipped.
    pub(crate) async fn open(on: Database) -> Option<Self> {
        let arena = match on {
            Database::Postgres => {
                let database = servers::postgres().await?;
                let pooled = Some(database.pooled_url().await?);
                let url = named(&database.url(), STRANGER);
                let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
                Self::Postgres { pool, database, pooled }
            }
            Database::Mariadb => {
                let database = servers::mysql().await?;
                let pool = MySqlPoolOptions::new().max_connections(4).after_connect(|connection, _| {
                    Box::pin(async move { raw_sql(KNOWN).execute(connection).await.map(drop) })
                });
                let pool = pool.connect(&database.url()).await.unwrap();
                Self::Mariadb { pool, database }
            }
            Database::Sqlite => {
                let database = servers::sqlite();
                let options = SqliteConnectOptions::new().filename(database.path()).create_if_missing(true);
                // Changing the journal's mode waits for nobody, so it is done before several processes try.
                let options =
                    options.busy_timeout(Duration::from_secs(60)).journal_mode(SqliteJournalMode::Wal);
                let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
                Self::Sqlite { pool, database }
            }
        };
        arena.prepare().await;
        Some(arena)
    }

    async fn prepare(&self) {
        let audit = match self {
            Self::Postgres { .. } => POSTGRES,
            Self::Mariadb { .. } => MARIADB,
            Self::Sqlite { .. } => SQLITE,
        };
        on_any!(self, pool => {
            SqlStore::on(pool.clone(), TableName::default()).migrate().await.unwrap();
            raw_sql(audit).execute(pool).await.unwrap();
            raw_sql("create table business (id int primary key, touched int not null)").execute(pool).await.unwrap();
            for id in 1..=100 {
                let row = format!("insert into business values ({id}, 0)");
                raw_sql(AssertSqlSafe(row)).execute(pool).await.unwrap();
            }
        });
    }

    /// Where a node of that name finds the database.
    pub(crate) fn url(&self, node: &str, pooled: bool) -> String {
        match self {
            Self::Postgres { pooled: Some(url), .. } if pooled => url.clone(),
            Self::Postgres { database, .. } => named(&database.url(), node),
            Self::Mariadb { database, .. } => database.url(),
            Self::Sqlite { database, .. } => database.url(),
        }
    }

    /// Whether a node's sessions can be told from others'.
    pub(crate) fn knows_sessions(&self, pooled: bool) -> bool {
        matches!(self, Self::Postgres { .. }) && !pooled
    }

    /// How sessions are told to give up waiting for a lock, or a statement, after so many milliseconds.
    pub(crate) fn timeouts(&self, lock: Option<u64>, statement: Option<u64>) -> String {
        let set = |word: &str, value: Option<String>| value.map(|value| format!("set {word} = {value}; "));
        let millis = |timeout: Option<u64>| timeout.map(|millis| millis.to_string());
        let (lock, statement) = match self {
            Self::Postgres { .. } => {
                (set("lock_timeout", millis(lock)), set("statement_timeout", millis(statement)))
            }
            // In seconds, whole ones for locks.
            _ => (
                set("innodb_lock_wait_timeout", millis(lock.map(|millis| millis.div_ceil(1_000)))),
                set(
                    "max_statement_time",
                    statement.map(|millis| format!("{}.{:03}", millis / 1_000, millis % 1_000)),
                ),
            ),
        };
        lock.unwrap_or_default() + &statement.unwrap_or_default()
    }

    pub(crate) async fn waiting(&self) -> i64 {
        on_any!(self, pool => query_scalar(WAITING).fetch_one(pool).await.unwrap())
    }

    pub(crate) async fn changes(&self) -> Vec<(String, Change)> {
        let rows: Vec<ChangeRow> = on_any!(self, pool => query_as(CHANGES).fetch_all(pool).await.unwrap());
        let change = |(id, at, from, to, attempts, owner, claim, created)| {
            (id, Change { at, from, to, attempts, owner, claim, created })
        };
        rows.into_iter().map(change).collect()
    }

    pub(crate) async fn rows(&self) -> Vec<(String, Row)> {
        let rows: Vec<(String, i16, i32)> =
            on_any!(self, pool => query_as(ROWS).fetch_all(pool).await.unwrap());
        rows.into_iter().map(|(id, status, attempts)| (id, Row { status, attempts })).collect()
    }

    /// A small write, as any client's.
    pub(crate) async fn probe(&self) {
        on_any!(self, pool => query(PROBE).execute(pool).await.map(drop)).unwrap();
    }

    /// Locks some rows, dead ones or waiting ones, for a while. In SQLite that is the whole file.
    pub(crate) async fn lock(&self, dead: bool, rows: usize, length: Duration) {
        let ids = self.some(dead, rows).await;
        match self {
            Self::Postgres { pool, .. } => {
                let mut lock = pool.begin().await.unwrap();
                for id in ids {
                    let row = "select 1 from outbox_event where event_id = $1 for update skip locked";
                    query(row).bind(id).execute(&mut *lock).await.unwrap();
                }
                sleep(length).await;
                lock.rollback().await.unwrap();
            }
            Self::Mariadb { pool, .. } => {
                let mut lock = pool.begin().await.unwrap();
                for id in ids {
                    let row = "select 1 from outbox_event where event_id = ? for update skip locked";
                    query(row).bind(id).execute(&mut *lock).await.unwrap();
                }
                sleep(length).await;
                lock.rollback().await.unwrap();
            }
            Self::Sqlite { pool, .. } => {
                let lock = pool.begin_with("begin immediate").await.unwrap();
                sleep(length).await;
                lock.rollback().await.unwrap();
            }
        }
    }

    /// Some rows that are dead or wait, if there are any soon.
    async fn some(&self, dead: bool, rows: usize) -> Vec<String> {
        let status = if dead { "status = 3" } else { "status in (0, 2)" };
        let some = format!("select event_id from outbox_event where {status} limit {rows}");
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            let some = AssertSqlSafe(some.clone());
            let ids: Vec<String> = on_any!(self, pool => query_scalar(some).fetch_all(pool).await.unwrap());
            if !ids.is_empty() || Instant::now() >= until {
                return ids;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the sessions of a node, or everybody's but our own where they cannot be told apart.
    pub(crate) async fn end_sessions(&self, node: Option<&str>) {
        match self {
            Self::Postgres { pool, .. } => {
                let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                           where datname = current_database() and application_name <> 'stranger' \
                           and ($1::text is null or application_name = $1)";
                query(end).bind(node).execute(pool).await.unwrap();
            }
            Self::Mariadb { pool, database } => {
                let mut session = pool.acquire().await.unwrap();
                let others = "select cast(id as char) from information_schema.processlist \
                              where db = ? and id not in (select id from stranger)";
                let others: Vec<String> =
                    query_scalar(others).bind(database.name()).fetch_all(&mut *session).await.unwrap();
                for id in others {
                    // One that has ended by itself in the meantime cannot be killed, and need not.
                    let _ = raw_sql(AssertSqlSafe(format!("kill {id}"))).execute(&mut *session).await;
                }
            }
            Self::Sqlite { .. } => {}
        }
    }
}

fn named(url: &str, name: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}application_name={name}")
}
