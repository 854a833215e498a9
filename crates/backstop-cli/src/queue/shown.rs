//! Events of a queue as an operator reads them.

use backstop_core::Timestamp;
use backstop_core::inspect::Count;
use backstop_sql::queue::{Counts, Found, Listed};
use serde::Serialize;

use crate::output::count;
use crate::plain::{escaped, moment, plain};
use crate::told::Told;

/// One line: id, when it was published, status, type, attempts, error.
pub(super) fn as_line(listed: &Listed) -> String {
    let (id, created) = (listed.id.to_string(), moment(listed.created_at));
    let attempts = count(listed.attempts.into(), "attempt", "attempts");
    let event_type = listed.event_type.as_deref().unwrap_or("-");
    let error = listed.error.as_deref().unwrap_or("-");
    let parts = [&id, &created, listed.status.name(), event_type, &attempts, error];
    parts.map(plain).join("  ")
}

/// The event without its payload as one JSON object.
pub(super) fn listed_as_json(listed: &Listed) -> serde_json::Result<String> {
    Ok(escaped(&serde_json::to_string(&Shown::of(listed))?))
}

/// The whole event as one JSON object.
pub(super) fn found_as_json(found: &Found) -> serde_json::Result<String> {
    let event_id = found.event.as_ref().ok().map(backstop_core::Event::id);
    let mut shown = Shown { event_id, event: Some(Told::of(&found.event)), ..Shown::of(&found.listed) };
    if found.event.is_ok() {
        shown.event_type = None; // the event says it
    }
    Ok(escaped(&serde_json::to_string(&shown)?))
}

/// How many events are where, a line each.
pub(super) fn counts_as_lines(counts: &Counts) -> Vec<String> {
    let Counts { pending, processing, stuck, completed, failed, .. } = counts;
    let line = |name: &str, count: &Count| {
        let more = if count.capped { "+" } else { "" };
        format!("{name:<10}  {}{more}", count.events)
    };
    let mut lines = vec![
        line("PENDING", pending),
        line("PROCESSING", processing),
        line("  stuck", stuck),
        line("COMPLETED", completed),
        line("FAILED", failed),
    ];
    lines.extend(counts.oldest.map(|oldest| {
        format!(
            "the first that could be taken was published {} ago",
            count(oldest.as_secs(), "second", "seconds")
        )
    }));
    lines
}

/// The same as one JSON object.
pub(super) fn counts_as_json(queue: &str, counts: &Counts) -> String {
    let Counts { pending, processing, stuck, completed, failed, oldest, .. } = counts;
    let oldest_seconds = oldest.map(|oldest| oldest.as_secs());
    let told = serde_json::json!({
        "queue": queue, "pending": pending, "processing": processing, "stuck": stuck, "completed": completed,
        "failed": failed, "oldest_seconds": oldest_seconds,
    });
    told.to_string()
}

/// The keys in the order in which they are shown.
pub(super) const ORDER: [&str; 16] = [
    "id",
    "status",
    "event_type",
    "event_id",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "attempts",
    "error",
    "created_at",
    "updated_at",
    "processing_started_at",
    "available_at",
    "unreadable",
    "headers",
    "payload",
];

/// A row. What it has not is left out.
#[derive(Serialize)]
struct Shown<'a> {
    id: i64,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<&'a str>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    processing_started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_at: Option<Timestamp>,
    #[serde(flatten)]
    event: Option<Told<'a>>,
}

impl<'a> Shown<'a> {
    fn of(listed: &'a Listed) -> Self {
        Self {
            id: listed.id,
            status: listed.status.name(),
            event_type: listed.event_type.as_deref(),
            event_id: None,
            attempts: listed.attempts,
            error: listed.error.as_deref(),
            created_at: listed.created_at,
            updated_at: listed.updated_at,
            processing_started_at: listed.processing_started_at,
            available_at: listed.available_at,
            event: None,
        }
    }
}
