//! Rows as an operator reads them.

use backstop_core::{Event, Timestamp};
use backstop_sql::store::{DeadEvent, Status, Whereabouts};
use serde::Serialize;

use crate::output::count;
use crate::plain::{escaped, moment, plain};
use crate::told::Told;

/// One line: id, time of death, type, aggregate, attempts, error.
pub(super) fn dead_as_line(dead: &DeadEvent) -> String {
    let time = dead.died_at.map_or("-".to_owned(), moment);
    let (event_type, about) = match &dead.event {
        Ok(event) => (event.event_type(), about(event)),
        Err(_) => ("-", "-".to_owned()),
    };
    let attempts = count(dead.attempts.into(), "attempt", "attempts");
    let error = dead.error.as_deref().unwrap_or("-");
    let mut parts = vec![dead.id.as_str(), &time, event_type, &about, &attempts, error];
    let unreadable = dead.event.as_ref().err().map(|why| format!("(its row cannot be decoded: {why})"));
    parts.extend(unreadable.as_deref());
    parts.into_iter().map(plain).collect::<Vec<_>>().join("  ")
}

/// What an event is about: `Order/42`.
fn about(event: &Event) -> String {
    match event.aggregate_id() {
        Some(id) => format!("{}/{id}", event.aggregate_type()),
        None => event.aggregate_type().to_owned(),
    }
}

/// The whole dead event as one JSON object.
pub(super) fn dead_as_json(dead: &DeadEvent) -> serde_json::Result<String> {
    let row = Shown {
        id: &dead.id,
        status: Some(name(Status::Dead)),
        attempts: dead.attempts,
        error: dead.error.as_deref(),
        created_at: Some(dead.created_at),
        due_at: None,
        ended_at: dead.died_at,
        claimed_by: None,
        claimed_at: None,
        event: Told::of(&dead.event),
    };
    Ok(escaped(&serde_json::to_string(&row)?))
}

/// The whole row as one JSON object.
pub(super) fn row_as_json(row: &Whereabouts) -> serde_json::Result<String> {
    // The attempt that ended it is not in the column.
    let ended = matches!(row.status(), Some(Status::Dead | Status::Done));
    let row = Shown {
        id: &row.id,
        status: row.status().map(name),
        attempts: row.failed_attempts.saturating_add(u32::from(ended)),
        error: row.error.as_deref(),
        created_at: row.created_at,
        due_at: row.due_at,
        ended_at: row.ended_at,
        claimed_by: row.claimed.as_ref().map(|claimed| claimed.owner.as_str()),
        claimed_at: row.claimed.as_ref().and_then(|claimed| claimed.at),
        event: Told::of(&row.event),
    };
    Ok(escaped(&serde_json::to_string(&row)?))
}

/// The keys in the order in which they are shown.
pub(super) const ORDER: [&str; 16] = [
    "id",
    "status",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "attempts",
    "error",
    "created_at",
    "due_at",
    "ended_at",
    "claimed_by",
    "claimed_at",
    "unreadable",
    "headers",
    "payload",
];

fn name(status: Status) -> &'static str {
    match status {
        Status::New => "NEW",
        Status::Done => "DONE",
        Status::Retry => "RETRY",
        Status::Dead => "DEAD",
    }
}

/// A row. What it has not is left out.
#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_at: Option<Timestamp>,
    #[serde(flatten)]
    event: Told<'a>,
}
