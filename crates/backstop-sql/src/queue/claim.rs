//! An event that was taken from the queue, and the claim under which it is held.

use backstop_core::event::any_json;
use backstop_core::{Event, Timestamp};

/// Which row is held, and under which claim: whoever takes the row over raises both numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) id: i64,
    /// How often the event was taken, this time included.
    pub(crate) attempt: u32,
    /// Raised by each claim, and never lowered.
    pub(crate) seq: i64,
}

/// An event that [`Queue::poll`](super::Queue::poll) has taken: nobody else takes it until it is finalized, or until it
/// counts as abandoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub(crate) claim: Claim,
    pub(crate) event: Event,
    pub(crate) created_at: Timestamp,
}

impl Claimed {
    /// The number of its row, in `events` and later in `event_log`.
    pub fn id(&self) -> i64 {
        self.claim.id
    }

    /// How often it was taken, this time included: 1 at first.
    pub fn attempts(&self) -> u32 {
        self.claim.attempt
    }

    /// The event as it was published.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// When it was published, by the database's clock.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }
}

/// A row that was taken, readable or not.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) claim: Claim,
    pub(crate) created_at: Timestamp,
    /// Whether the row names its type, so that a held route is passed over.
    pub(crate) has_type: bool,
    /// Or why the column cannot be read.
    pub(crate) event: Result<Event, String>,
}

/// The event that a row holds.
pub(crate) fn read_event(id: i64, text: Option<String>, created_at: Timestamp) -> Result<Event, String> {
    let text = text.ok_or("the column event is NULL")?;
    any_json::read(text, &id.to_string(), created_at)
        .map_err(|error| format!("the column event does not hold JSON: {error}"))
}
