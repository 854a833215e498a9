//! Rows to events and back: which columns are read and written, and what makes a row unreadable.

use std::sync::Arc;

use backstop_core::Event;
use backstop_core::codec::HeaderCodec;
use backstop_core::event::{GLOBAL, Stored};
use backstop_core::inspect::Troubled;

use super::{Claim, ClaimedBy, DeadEvent, Due, Order, Row, Sampled, Status, Whereabouts};
use crate::connection::Column;
use crate::database::dialect::Dialect;
use crate::statement::Value;

/// The columns of a row that is to be delivered, as [`to_row`] reads them. Its claim number is the column's,
/// or what a claim is going to make of it.
pub(super) fn columns(dialect: &dyn Dialect, claim_seq: &str) -> String {
    let (payload, headers) = (dialect.json_as_text("payload"), dialect.json_as_text("headers"));
    format!(
        "event_id, event_type, aggregate_type, aggregate_id, tenant_id, {payload}, {headers}, attempts, created_at, \
         available_at, {claim_seq}"
    )
}

/// What each of those columns is read as.
pub(super) const KINDS: [Column; 11] = [
    Column::Key,
    Column::Text,
    Column::Text,
    Column::Text,
    Column::Text,
    Column::Text,
    Column::Text,
    Column::Int,
    Column::Time,
    Column::Time,
    Column::Int,
];

/// What a dead event has in addition, as [`to_dead`] reads them.
pub(super) const ENDING: &str = "last_error, done_at";
pub(super) const ENDING_KINDS: [Column; 2] = [Column::Text, Column::Time];

/// What a row of any status has in addition, and the moment at which it was read, as [`to_whereabouts`] reads them.
pub(super) const HOLD: &str = "status, locked_by, locked_at";
pub(super) const HOLD_KINDS: [Column; 4] = [Column::Int, Column::Text, Column::Time, Column::Time];

/// The columns of a row in trouble, as [`to_troubled`] reads them. No payload: a page shows these.
pub(super) const TROUBLED: &str =
    "event_id, event_type, aggregate_type, aggregate_id, attempts, last_error, created_at, available_at";
pub(super) const TROUBLED_KINDS: [Column; 8] = [
    Column::Key,
    Column::Text,
    Column::Text,
    Column::Text,
    Column::Int,
    Column::Text,
    Column::Time,
    Column::Time,
];

/// Those rows that are wanted, of more than one query's, each of which returned as many as there may be.
pub(super) fn choose(mut rows: Vec<Vec<Value>>, due: Due<'_>) -> Vec<Vec<Value>> {
    let limit = due.limit as usize;
    if rows.len() > limit {
        let key = |row: &Vec<Value>| {
            let first = if due.order == Order::Due { row[9].time() } else { None };
            (first, row[8].time(), shown_id(&row[0]))
        };
        rows.sort_by_cached_key(key);
        rows.truncate(limit);
    }
    rows
}

/// Due rows are chosen by when they are due, and handed on in the order they were created.
pub(super) fn in_order(codec: &dyn HeaderCodec, rows: Vec<Vec<Value>>, owner: Option<&Arc<str>>) -> Vec<Row> {
    let mut rows: Vec<_> = rows.into_iter().map(|row| to_row(codec, row, owner)).collect();
    rows.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    rows
}

fn to_row(codec: &dyn HeaderCodec, values: Vec<Value>, owner: Option<&Arc<str>>) -> Row {
    let generation = values[10].int().unwrap_or_default();
    Row {
        id: shown_id(&values[0]),
        attempts: count(&values[7]),
        claim: owner.map(|owner| Claim { owner: owner.clone(), seq: generation }),
        generation,
        due_at: values[9].time(),
        created_at: values[8].time(),
        key: match &values[0] {
            Value::Bytes(key) => Some(key.clone()),
            _ => None,
        },
        event: to_event(codec, values),
    }
}

/// A row's id, or its bytes as SQL writes them if they are no text.
fn shown_id(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => {
            let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{}'", hex.concat())
        }
        other => other.text().unwrap_or_default().to_owned(),
    }
}

pub(super) fn to_dead(codec: &dyn HeaderCodec, values: Vec<Value>) -> DeadEvent {
    DeadEvent {
        id: shown_id(&values[0]),
        attempts: attempts_made(count(&values[7])),
        error: values[11].text().map(str::to_owned),
        created_at: values[8].time().unwrap_or_default(),
        died_at: values[12].time(),
        event: to_event(codec, values),
    }
}

pub(super) fn to_whereabouts(codec: &dyn HeaderCodec, values: Vec<Value>) -> Whereabouts {
    let owner = values[14].text().map(str::to_owned);
    Whereabouts {
        id: shown_id(&values[0]),
        status: values[13].int().unwrap_or_default(),
        failed_attempts: count(&values[7]),
        asked_at: values[16].time().unwrap_or_default(),
        created_at: values[8].time(),
        due_at: values[9].time(),
        ended_at: values[12].time(),
        error: values[11].text().map(str::to_owned),
        claimed: owner.map(|owner| ClaimedBy { owner, at: values[15].time() }),
        event: to_event(codec, values),
    }
}

pub(super) fn to_troubled(row: &[Value], status: Status, place: &'static str) -> Troubled {
    let attempts = count(&row[4]);
    Troubled {
        id: shown_id(&row[0]),
        event_type: row[1].text().unwrap_or_default().to_owned(),
        aggregate_type: row[2].text().unwrap_or(GLOBAL).to_owned(),
        aggregate_id: row[3].text().map(str::to_owned),
        place,
        attempts: if status == Status::Dead { attempts_made(attempts) } else { attempts },
        error: row[5].text().map(str::to_owned),
        occurred_at: row[6].time().unwrap_or_default(),
        next_attempt_at: row[7].time().filter(|_| status == Status::Retry),
    }
}

/// What the columns of a sample are read as, by [`to_sampled`].
pub(super) const SAMPLED_KINDS: [Column; 5] =
    [Column::Time, Column::Text, Column::Text, Column::Int, Column::Time];

pub(super) fn to_sampled(row: &[Value], status: Status) -> Sampled {
    let (now, oldest) = (row[0].time(), row[4].time().filter(|_| status != Status::Dead));
    Sampled {
        aggregate_type: row[1].text().unwrap_or(GLOBAL).to_owned(),
        event_type: row[2].text().unwrap_or_default().to_owned(),
        status,
        events: row[3].int().unwrap_or_default().unsigned_abs(),
        oldest_due: oldest,
        waited: now.zip(oldest).map(|(now, oldest)| (now - oldest).to_std().unwrap_or_default()),
    }
}

/// How often the handler of a dead event was called: the call that killed it is not counted in the column.
fn attempts_made(attempts: u32) -> u32 {
    attempts.saturating_add(1)
}

fn to_event(codec: &dyn HeaderCodec, mut values: Vec<Value>) -> Result<Event, String> {
    let unreadable = values[..KINDS.len()].iter().find_map(|value| match value {
        Value::Unreadable(problem) => Some(problem.as_str()),
        Value::Bytes(_) => Some("event_id holds bytes that are not text"),
        _ => None,
    });
    if let Some(problem) = unreadable {
        return Err(format!("a column cannot be read: {problem}"));
    }
    let (occurred_at, available_at) = (values[8].time(), values[9].time());
    let mut take = |index: usize| match std::mem::replace(&mut values[index], Value::Text(None)) {
        Value::Text(text) => text,
        _ => None,
    };
    let headers = codec
        .read_headers(take(6).as_deref())
        .map_err(|error| format!("headers are not a map of strings: {error}"))?;
    Ok(Event::restore(Stored {
        id: take(0).ok_or("event_id is NULL")?,
        event_type: take(1).ok_or("event_type is NULL")?,
        occurred_at: occurred_at.ok_or("created_at is NULL")?,
        aggregate_type: take(2),
        aggregate_id: take(3),
        tenant_id: take(4),
        headers,
        payload_json: take(5).ok_or("payload is NULL")?,
        available_at,
    }))
}

fn count(value: &Value) -> u32 {
    value.int().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}
