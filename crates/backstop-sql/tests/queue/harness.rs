//! Short words for what the tests do with a queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::{Event, Timestamp};
use backstop_sql::Queue;
use backstop_sql::connection::Column;
use backstop_sql::queue::{Builder, Worker};
use backstop_sql::store::At;
use backstop_testkit::eventually;
use chrono::TimeDelta;

pub(crate) use crate::fresh::*;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// What a row of `events` holds besides its event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Queued {
    pub(crate) status: String,
    pub(crate) attempts: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) processing_started_at: Option<Timestamp>,
    pub(crate) available_at: Option<Timestamp>,
    pub(crate) event_type: Option<String>,
    pub(crate) last_error: Option<String>,
}

/// What a row of `event_log` holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Logged {
    pub(crate) payload: String,
    pub(crate) status: String,
    pub(crate) attempts: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) error: Option<String>,
}

impl<DB: Database> Fresh<DB> {
    pub(crate) fn queue(&self) -> Builder<DB> {
        Queue::new(self.pool.clone())
    }

    pub(crate) async fn started(&self) -> Queue<DB> {
        self.queue().start().await.unwrap()
    }

    pub(crate) async fn queued(&self, id: i64) -> Option<Queued> {
        let mut statement = self.statement(
            "select status, attempts, created_at, updated_at, processing_started_at, available_at, event_type, last_error \
             from events where id = ",
        );
        statement.bind(id);
        let kinds = [
            Column::Text,
            Column::Int,
            Column::Time,
            Column::Time,
            Column::Time,
            Column::Time,
            Column::Text,
            Column::Text,
        ];
        let rows = self.read(&statement, &kinds).await;
        let row = rows.first()?;
        Some(Queued {
            status: as_text(&row[0]).unwrap(),
            attempts: as_int(&row[1]),
            created_at: as_time(&row[2]).unwrap(),
            updated_at: as_time(&row[3]).unwrap(),
            processing_started_at: as_time(&row[4]),
            available_at: as_time(&row[5]),
            event_type: as_text(&row[6]),
            last_error: as_text(&row[7]),
        })
    }

    pub(crate) async fn logged(&self, id: i64) -> Option<Logged> {
        let mut statement = self.statement(
            "select payload, status, attempts, created_at, updated_at, error from event_log where id = ",
        );
        statement.bind(id);
        let kinds = [Column::Text, Column::Text, Column::Int, Column::Time, Column::Time, Column::Text];
        let rows = self.read(&statement, &kinds).await;
        let row = rows.first()?;
        Some(Logged {
            payload: as_text(&row[0]).unwrap(),
            status: as_text(&row[1]).unwrap(),
            attempts: as_int(&row[2]),
            created_at: as_time(&row[3]).unwrap(),
            updated_at: as_time(&row[4]).unwrap(),
            error: as_text(&row[5]),
        })
    }

    /// Brings a row into a state that only a person at a prompt, or another program, could.
    pub(crate) async fn set_row(&self, id: i64, assignments: &str) {
        assert_eq!(
            self.run(&format!("update events set {assignments} where id = {id}")).await,
            1,
            "{assignments}"
        );
    }

    /// How a moment of the tests' own time is written in SQL.
    pub(crate) fn sql_moment(&self, seconds: i64) -> String {
        let text = moment(seconds).format("%Y-%m-%d %H:%M:%S%.6f").to_string();
        if self.kind == backstop_sql::store::DatabaseKind::Postgres {
            format!("timestamptz '{text}+00'")
        } else {
            format!("'{text}'")
        }
    }

    /// How many rows are in each table.
    pub(crate) async fn rows(&self) -> (i64, i64) {
        let events = self.number("select count(*) from events").await;
        (events, self.number("select count(*) from event_log").await)
    }

    /// Waits until so many events are in the log.
    pub(crate) async fn until_logged(&self, events: i64) {
        eventually(&format!("{events} events in the log"), async || self.rows().await.1 >= events).await;
    }
}

/// A moment of the tests' own time, which begins on the first of January 2020.
pub(crate) fn moment(seconds: i64) -> Timestamp {
    let begin: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    begin + TimeDelta::seconds(seconds)
}

pub(crate) fn at(seconds: i64) -> At {
    At::Instant(moment(seconds))
}

/// An event with that number as its payload.
pub(crate) fn event(number: u32) -> Event {
    Event::of("Numbered").json(&number).unwrap()
}

/// What handlers saw, in order: the payload, and the attempt.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<(u32, u32)>>>);

impl Seen {
    pub(crate) fn note(&self, delivery: &backstop_core::Delivery) {
        let number = delivery.event.payload().unwrap_or_default();
        self.0.lock().unwrap().push((number, delivery.attempt));
    }

    pub(crate) fn all(&self) -> Vec<(u32, u32)> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<_> = self.all().into_iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// A worker that notes what it sees, and does nothing else.
    pub(crate) fn worker(&self) -> Worker {
        let seen = self.clone();
        Worker::new().on("Numbered", move |delivery: backstop_core::Delivery| {
            seen.note(&delivery);
            async {}
        })
    }
}
