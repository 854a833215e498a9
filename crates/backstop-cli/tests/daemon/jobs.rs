//! A queue of a settings file on each database, and events in every state, for the tests of `backstop queue`.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use backstop_sql::TableName;
use backstop_sql::queue::{Operations, Status};
use backstop_testkit::servers;
use sqlx::AssertSqlSafe;

use crate::support::{Ended, Place};

type Execute = Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A settings file with one queue, and its tables.
pub(crate) struct Jobs {
    pub(crate) place: Place,
    pub(crate) operations: Operations,
    execute: Execute,
    words: Words,
    /// Goes last: the database goes with it.
    _database: Box<dyn Any>,
}

/// How a database writes moments.
struct Words {
    now: &'static str,
    before: &'static str,
    behind: &'static str,
}

const TEXTS: Words =
    Words { now: "strftime('%Y-%m-%d %H:%M:%f000', 'now')", before: "'", behind: ".000000'" };
const ZONED: Words = Words { now: "now()", before: "timestamptz '", behind: "+00'" };
const UTC: Words = Words { now: "utc_timestamp(6)", before: "'", behind: ".000000'" };

/// With a worker that looks at the tables often.
pub(crate) const SETTINGS: &str = "\
queue:
  name: jobs
  database: {url: env:JOBS_URL}
  idle-wait: 100ms
  handlers: [{event-type: InvoiceRequested, log: }]
server: {address: '127.0.0.1:0'}
";

macro_rules! execute {
    ($pool:expr) => {{
        let pool = $pool;
        Box::new(move |sql: String| -> Pin<Box<dyn Future<Output = ()>>> {
            let pool = pool.clone();
            Box::pin(async move {
                sqlx::query(AssertSqlSafe(sql)).execute(&pool).await.unwrap();
            })
        })
    }};
}

pub(crate) async fn on_sqlite() -> Option<Jobs> {
    let database = servers::sqlite();
    let execute = execute!(sqlx::SqlitePool::connect_lazy(&database.url()).unwrap());
    Some(Jobs::open(database.url(), execute, TEXTS, database).await)
}

pub(crate) async fn on_postgres() -> Option<Jobs> {
    let database = servers::postgres().await?;
    let execute = execute!(database.pool().await);
    Some(Jobs::open(database.url(), execute, ZONED, database).await)
}

pub(crate) async fn on_mysql() -> Option<Jobs> {
    let database = servers::mysql().await?;
    let execute = execute!(database.pool().await);
    Some(Jobs::open(database.url(), execute, UTC, database).await)
}

impl Jobs {
    async fn open(url: String, execute: Execute, words: Words, database: impl Any) -> Self {
        let place = Place::with(SETTINGS).variable("JOBS_URL", url.clone());
        place.run(&["migrate"]).with(0);
        let (events, log) = (TableName::new("events").unwrap(), TableName::new("event_log").unwrap());
        let operations = Operations::connect(&url, &backstop_sql::Tls::default(), events, log).await.unwrap();
        Self { place, operations, execute, words, _database: Box::new(database) }
    }

    /// Runs `backstop queue`.
    pub(crate) fn queue(&self, arguments: &[&str]) -> Ended {
        self.place.run(&[&["queue"], arguments].concat())
    }

    /// Runs a statement, as another program would.
    pub(crate) async fn execute(&self, sql: &str) {
        (self.execute)(sql.to_owned()).await;
    }

    /// A moment such as `2026-01-01 00:00:00`, as a statement of this database has it.
    fn moment(&self, text: &str) -> String {
        format!("{}{text}{}", self.words.before, self.words.behind)
    }

    /// An event in each state, with ids in this order: waiting, handled, stuck, delayed, completed, and three that failed.
    pub(crate) async fn fill(&self) {
        let at = |day: u32| self.moment(&format!("2026-01-{day:02} 00:00:00"));
        let (now, far) = (self.words.now, self.moment("2100-01-01 00:00:00"));
        let event = r#"'{"type": "InvoiceRequested", "total": 1.10}'"#;
        let waiting = [
            (1, "PENDING", 0, "null".to_owned(), "null".to_owned(), "null"),
            (2, "PROCESSING", 1, now.to_owned(), "null".to_owned(), "null"),
            (3, "PROCESSING", 2, at(1), "null".to_owned(), "null"),
            (4, "PENDING", 1, "null".to_owned(), far, "'http-503: closed'"),
        ];
        for (id, status, attempts, started, available, error) in waiting {
            let created = at(1);
            self.execute(&format!(
                "insert into events (id, event, status, attempts, created_at, updated_at, processing_started_at, \
                 available_at, event_type, last_error) values ({id}, {event}, '{status}', {attempts}, {created}, {created}, \
                 {started}, {available}, 'InvoiceRequested', {error})"
            ))
            .await;
        }
        let ended = [
            (5, "COMPLETED", "InvoiceRequested", "null"),
            (6, "FAILED", "InvoiceRequested", "'timeout: no answer'"),
            (7, "FAILED", "ReminderDue", "'http-422: no total'"),
            (8, "FAILED", "InvoiceRequested", "'timeout: \u{1b}[2J\u{202e}gone\nforged line'"),
        ];
        for (id, status, event_type, error) in ended {
            let moment = at(id);
            self.execute(&format!(
                "insert into event_log (id, payload, status, attempts, created_at, updated_at, event_type, error) \
                 values ({id}, {event}, '{status}', 1, {moment}, {moment}, '{event_type}', {error})"
            ))
            .await;
        }
    }

    /// Status and attempts of an event, if it is anywhere.
    pub(crate) async fn row(&self, id: i64) -> Option<(Status, u32)> {
        let found = self.operations.find(id).await.unwrap()?;
        Some((found.listed.status, found.listed.attempts))
    }
}
