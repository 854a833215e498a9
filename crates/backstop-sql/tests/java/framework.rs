//! The Java framework as a table sees it: its DDL, and what the statements of its store do in 0.9.1, with moments of its
//! own clock.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::{Clock, SystemClock, Timestamp};
use backstop_sql::Error;
use backstop_sql::connection::{Column, Connection, Connections};
use backstop_sql::statement::{Marks, Statement, Value};
use backstop_sql::store::DatabaseKind;
use chrono::{SubsecRound, TimeDelta};

/// The columns that it knows.
pub(crate) const COLUMNS: [&str; 15] = [
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "payload",
    "headers",
    "status",
    "attempts",
    "available_at",
    "created_at",
    "done_at",
    "last_error",
    "locked_by",
    "locked_at",
];

/// Its table on MySQL and, in the nearest types, on PostgreSQL.
pub(crate) fn ddl(kind: DatabaseKind, moment: &str) -> String {
    let (json, small) =
        if kind == DatabaseKind::Postgres { ("JSONB", "SMALLINT") } else { ("JSON", "TINYINT") };
    backstop_testkit::java::table(json, small, moment)
}

/// An event as its writer sees it.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) event_type: &'static str,
    pub(crate) aggregate_type: Option<&'static str>,
    pub(crate) aggregate_id: Option<&'static str>,
    pub(crate) tenant_id: Option<&'static str>,
    pub(crate) headers: Option<&'static str>,
    pub(crate) occurred_at: Timestamp,
    pub(crate) available_at: Option<Timestamp>,
}

/// An order that happened a minute ago, with that id.
pub(crate) fn envelope(id: impl Into<String>) -> Envelope {
    Envelope {
        id: id.into(),
        event_type: "OrderPlaced",
        aggregate_type: Some("Order"),
        aggregate_id: Some("42"),
        tenant_id: None,
        headers: Some("{}"),
        occurred_at: now() - Duration::from_secs(60),
        available_at: None,
    }
}

/// A row that it claimed or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) attempts: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) available_at: Timestamp,
}

/// A row's state, its moments as instants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) status: i64,
    pub(crate) attempts: i64,
    pub(crate) available_at: Option<Timestamp>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) last_error: Option<String>,
    pub(crate) locked_by: Option<String>,
    pub(crate) locked_at: Option<Timestamp>,
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now().trunc_subsecs(6)
}

/// One node of it.
#[derive(Clone)]
pub(crate) struct Framework {
    pub(crate) kind: DatabaseKind,
    pub(crate) connections: Arc<dyn Connections>,
    pub(crate) owner: String,
    pub(crate) lock_timeout: Duration,
    pub(crate) skip_recent: Duration,
    /// How far the zone that it writes moments in is ahead of UTC.
    pub(crate) ahead: TimeDelta,
}

impl Framework {
    pub(crate) fn new(kind: DatabaseKind, connections: Arc<dyn Connections>) -> Self {
        Self {
            kind,
            connections,
            owner: "java-1".to_owned(),
            lock_timeout: Duration::from_secs(300),
            skip_recent: Duration::ZERO,
            ahead: TimeDelta::zero(),
        }
    }

    /// The same, under another owner's name.
    pub(crate) fn named(&self, owner: &str) -> Self {
        Self { owner: owner.to_owned(), ..self.clone() }
    }

    pub(crate) async fn insert_new(&self, event: &Envelope) {
        self.run(&self.insertion(event)).await;
    }

    /// Inserts events in one transaction, as a program that changes its data does. They are made anew for each attempt, so
    /// that one which lost against another session makes no event older. Gives back those that were inserted.
    pub(crate) async fn insert_all(&self, events: impl Fn() -> Vec<Envelope>) -> Vec<Envelope> {
        let begin = if self.kind == DatabaseKind::Postgres { "BEGIN" } else { "START TRANSACTION" };
        for _ in 0..TRIES {
            let mut tx = self.connections.transaction(begin).await.unwrap();
            let mut inserted = Ok(0);
            let events = events();
            for event in &events {
                inserted = tx.execute(&self.insertion(event)).await;
                if inserted.is_err() {
                    break;
                }
            }
            match inserted {
                Ok(_) => {
                    tx.commit().await.unwrap();
                    return events;
                }
                Err(error) => assert!(lost(&error), "{error}"),
            }
        }
        panic!("inserting lost {TRIES} times");
    }

    fn insertion(&self, event: &Envelope) -> Statement {
        let json = if self.kind == DatabaseKind::Postgres { "CAST(? AS JSONB)" } else { "?" };
        let text = format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
             headers, status, attempts, available_at, created_at) VALUES (?, ?, ?, ?, ?, {json}, {json}, 0, 0, ?, ?)"
        );
        let values = [
            event.id.as_str().into(),
            event.event_type.into(),
            event.aggregate_type.into(),
            event.aggregate_id.into(),
            event.tenant_id.into(),
            "{\"total\": 1}".into(),
            event.headers.into(),
            self.wall(event.available_at.unwrap_or(event.occurred_at)),
            self.wall(event.occurred_at),
        ];
        self.statement(&text, values)
    }

    pub(crate) async fn mark_done(&self, id: &str) -> u64 {
        let text = "UPDATE outbox_event SET status = 1, done_at = ?, locked_by = NULL, locked_at = NULL \
                    WHERE event_id = ? AND status NOT IN (1, 3)";
        self.run(&self.statement(text, [self.wall(now()), id.into()])).await
    }

    pub(crate) async fn mark_retry(&self, id: &str, next_at: Timestamp, error: &str) -> u64 {
        let text = "UPDATE outbox_event SET status = 2, attempts = attempts + 1, available_at = ?, last_error = ?, \
                    locked_by = NULL, locked_at = NULL WHERE event_id = ? AND status NOT IN (1, 3)";
        self.run(&self.statement(text, [self.wall(next_at), error.into(), id.into()])).await
    }

    pub(crate) async fn mark_dead(&self, id: &str, error: &str) -> u64 {
        let text = "UPDATE outbox_event SET status = 3, done_at = ?, last_error = ?, locked_by = NULL, \
                    locked_at = NULL WHERE event_id = ? AND status NOT IN (1, 3)";
        self.run(&self.statement(text, [self.wall(now()), error.into(), id.into()])).await
    }

    pub(crate) async fn mark_deferred(&self, id: &str, next_at: Timestamp) -> u64 {
        let text = "UPDATE outbox_event SET status = 2, available_at = ?, locked_by = NULL, locked_at = NULL \
                    WHERE event_id = ? AND status NOT IN (1, 3)";
        self.run(&self.statement(text, [self.wall(next_at), id.into()])).await
    }

    pub(crate) async fn poll_pending(&self, limit: i64) -> Vec<Taken> {
        let text = format!(
            "SELECT {} FROM outbox_event WHERE status IN (0, 2) AND available_at <= ? AND created_at <= ? \
             ORDER BY created_at, event_id LIMIT ?",
            self.read_columns()
        );
        let values = [self.wall(now()), self.wall(now() - self.skip_recent), limit.into()];
        let mut connection = self.connections.connection().await.unwrap();
        self.taken(&mut *connection, &self.statement(&text, values)).await.unwrap()
    }

    /// Claims due rows, and buries those that it takes for broken; none if another session was in the way and won, as
    /// its loop logs and goes on.
    pub(crate) async fn claim_pending(&self, limit: i64) -> Vec<Taken> {
        let taken = match self.try_claim(limit).await {
            Ok(taken) => taken,
            Err(error) if lost(&error) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        let (sound, broken): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|row| row.available_at >= row.created_at);
        for row in broken {
            self.mark_dead(&row.id, BROKEN).await;
        }
        sound
    }

    async fn try_claim(&self, limit: i64) -> Result<Vec<Taken>, Error> {
        let due = "status IN (0, 2) AND available_at <= ? AND created_at <= ? \
                   AND (locked_by IS NULL OR locked_at < ?) ORDER BY created_at, event_id LIMIT ? FOR UPDATE SKIP LOCKED";
        let at = now().trunc_subsecs(3);
        let (owner, locked_at) = (Value::from(self.owner.as_str()), self.wall(at));
        let (columns, old) = (self.read_columns(), self.wall(at - self.lock_timeout));
        let (at, recent) = (self.wall(at), self.wall(at - self.skip_recent));
        if self.kind == DatabaseKind::Postgres {
            let text = format!(
                "UPDATE outbox_event SET locked_by = ?, locked_at = ? WHERE event_id IN (SELECT event_id \
                 FROM outbox_event WHERE {due}) RETURNING {columns}"
            );
            let values = [owner, locked_at, at, recent, old, limit.into()];
            let mut connection = self.connections.connection().await?;
            return self.taken(&mut *connection, &self.statement(&text, values)).await;
        }
        let mut tx = self.connections.transaction("START TRANSACTION").await?;
        let text = format!("SELECT {columns} FROM outbox_event WHERE {due}");
        let taken = self.taken(&mut tx, &self.statement(&text, [at, recent, old, limit.into()])).await?;
        for row in &taken {
            let text = "UPDATE outbox_event SET locked_by = ?, locked_at = ? WHERE event_id = ?";
            let values = [owner.clone(), locked_at.clone(), row.id.as_str().into()];
            tx.execute(&self.statement(text, values)).await?;
        }
        tx.commit().await?;
        Ok(taken)
    }

    /// Deletes what ended before a moment.
    pub(crate) async fn purge(&self, before: Timestamp, limit: i64) -> u64 {
        let old = "WHERE status IN (1, 3) AND (done_at < ? OR (done_at IS NULL AND created_at < ?)) \
                   ORDER BY created_at, event_id LIMIT ?";
        let text = if self.kind == DatabaseKind::Postgres {
            format!("DELETE FROM outbox_event WHERE event_id IN (SELECT event_id FROM outbox_event {old})")
        } else {
            format!("DELETE FROM outbox_event {old}")
        };
        self.run(&self.statement(&text, [self.wall(before), self.wall(before), limit.into()])).await
    }

    /// Writes a lock as one of its nodes left it.
    pub(crate) async fn lock(&self, id: &str, since: Timestamp) {
        let text = "UPDATE outbox_event SET locked_by = ?, locked_at = ? WHERE event_id = ?";
        let values = [self.owner.as_str().into(), self.wall(since), id.into()];
        assert_eq!(self.run(&self.statement(text, values)).await, 1, "{id}");
    }

    /// All that it knows of all rows, as the table holds it.
    pub(crate) async fn rows(&self) -> Vec<Vec<Value>> {
        let columns: Vec<_> = COLUMNS.iter().map(|column| self.readable(column)).collect();
        let text = format!("SELECT {} FROM outbox_event ORDER BY event_id", columns.join(", "));
        let kinds = COLUMNS.map(|column| match column {
            "status" | "attempts" => Column::Int,
            column if column.ends_with("_at") => Column::Time,
            _ => Column::Text,
        });
        self.fetch(&self.statement(&text, []), &kinds).await.unwrap()
    }

    pub(crate) async fn state(&self, id: &str) -> State {
        let text = "SELECT status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at \
                    FROM outbox_event WHERE event_id = ?";
        let (number, time, words) = (Column::Int, Column::Time, Column::Text);
        let kinds = [number, number, time, time, time, words, words, time];
        let rows = self.fetch(&self.statement(text, [id.into()]), &kinds).await.unwrap();
        let [row] = rows.as_slice() else { panic!("{} rows have id {id}", rows.len()) };
        State {
            status: int(&row[0]),
            attempts: int(&row[1]),
            available_at: self.instant(&row[2]),
            created_at: self.instant(&row[3]),
            done_at: self.instant(&row[4]),
            last_error: text_of(&row[5]),
            locked_by: text_of(&row[6]),
            locked_at: self.instant(&row[7]),
        }
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        int(&self.fetch(&self.statement(text, []), &[Column::Int]).await.unwrap()[0][0])
    }

    pub(crate) async fn texts(&self, text: &str) -> Vec<String> {
        let rows = self.fetch(&self.statement(text, []), &[Column::Text]).await.unwrap();
        rows.iter().map(|row| text_of(&row[0]).unwrap_or_default()).collect()
    }

    /// Runs a statement, again if another one was in the way and won.
    pub(crate) async fn run(&self, statement: &Statement) -> u64 {
        for _ in 0..TRIES {
            let ran = self.connections.connection().await.unwrap().execute(statement).await;
            match ran {
                Ok(changed) => return changed,
                Err(error) => assert!(lost(&error), "{}: {error}", statement.text()),
            }
        }
        panic!("{} lost {TRIES} times", statement.text());
    }

    /// Runs texts without values.
    pub(crate) async fn run_text(&self, text: &str) {
        let mut statement = Statement::new(self.marks());
        statement.push(text);
        self.run(&statement).await;
    }

    fn marks(&self) -> Marks {
        if self.kind == DatabaseKind::Postgres { Marks::Dollar } else { Marks::Question }
    }

    /// A statement whose values stand where its question marks are.
    fn statement<const N: usize>(&self, text: &str, values: [Value; N]) -> Statement {
        let mut statement = Statement::new(self.marks());
        let mut parts = text.split('?');
        statement.push(parts.next().unwrap_or_default());
        for (part, value) in parts.zip(values) {
            statement.bind(value).push(part);
        }
        statement
    }

    async fn fetch(&self, statement: &Statement, kinds: &[Column]) -> Result<Vec<Vec<Value>>, Error> {
        let mut connection = self.connections.connection().await?;
        connection.fetch(statement, kinds).await
    }

    fn read_columns(&self) -> String {
        let names = "event_id event_type aggregate_type aggregate_id tenant_id payload headers attempts created_at available_at";
        names.split(' ').map(|column| self.readable(column)).collect::<Vec<_>>().join(", ")
    }

    /// A column, as its driver would read it.
    fn readable(&self, column: &str) -> String {
        match (self.kind, column) {
            (DatabaseKind::Postgres, "payload" | "headers") => format!("CAST({column} AS TEXT)"),
            _ => column.to_owned(),
        }
    }

    async fn taken(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
    ) -> Result<Vec<Taken>, Error> {
        let words = Column::Text;
        let kinds =
            [words, words, words, words, words, words, words, Column::Int, Column::Time, Column::Time];
        let rows = connection.fetch(statement, &kinds).await?;
        let taken = |row: &Vec<Value>| Taken {
            id: text_of(&row[0]).unwrap(),
            event_type: text_of(&row[1]).unwrap(),
            attempts: int(&row[7]),
            created_at: self.instant(&row[8]).unwrap(),
            available_at: self.instant(&row[9]).unwrap(),
        };
        Ok(rows.iter().map(taken).collect())
    }

    /// A moment as its clock on the wall shows it.
    pub(crate) fn wall(&self, moment: Timestamp) -> Value {
        (moment + self.ahead).into()
    }

    fn instant(&self, stored: &Value) -> Option<Timestamp> {
        match stored {
            Value::Time(moment) => moment.map(|moment| moment - self.ahead),
            other => panic!("{other:?} is no moment"),
        }
    }
}

/// What it says of a row that is due before it was created.
pub(crate) const BROKEN: &str = "availableAt must not be before occurredAt";

/// How often a statement is tried that lost against another one.
const TRIES: u32 = 20;

/// Whether another session was in the way, and won.
fn lost(error: &Error) -> bool {
    let said = error.to_string().to_lowercase();
    said.contains("deadlock") || said.contains("lock wait")
}

fn int(value: &Value) -> i64 {
    match value {
        Value::Int(Some(number)) => *number,
        other => panic!("{other:?} is no number"),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    }
}
