//! What an operator is shown of a component: where its events are, how they move, which are in trouble.
//!
//! Components answer; the dashboard and the command line ask, and neither knows which kind it talks to.

use std::pin::Pin;

use serde::Serialize;

use crate::Timestamp;

/// A component that can be looked at.
pub trait Inspect: Send + Sync + 'static {
    /// Looks at the component. If it cannot be reached, the report's [`Health`] says so: the page that shows it must
    /// not fail because of that.
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>>;
}

/// One component at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What it is: `outbox`, `queue`, …
    pub kind: &'static str,
    /// Which one it is.
    pub name: String,
    /// Whether it does its work.
    pub health: Health,
    /// Where its events are now.
    pub places: Vec<Place>,
    /// What happened to events since the process began.
    pub flows: Vec<Flow>,
    /// Events that fail or were given up. Those that an operator should look at first come first.
    pub troubled: Vec<Troubled>,
}

/// Whether a component does its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", content = "why", rename_all = "lowercase")]
pub enum Health {
    /// It does.
    Up,
    /// It does some of it; the text says what is missing.
    Degraded(String),
    /// It does not; the text says why.
    Down(String),
}

/// A place where events are, and how many are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// A word an operator uses: `waiting`, `retrying`, `dead`, `done`.
    pub name: &'static str,
    /// One sentence that says what it means to be there.
    pub meaning: &'static str,
    /// How many events are there.
    pub count: Count,
}

/// A number of events, exact up to a cap: counting a large table would cost more than the number is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many were counted.
    pub events: u64,
    /// Whether there are more than that.
    pub capped: bool,
}

impl Count {
    /// An exact number.
    pub fn exactly(events: u64) -> Self {
        Self { events, capped: false }
    }

    /// What a count that stopped at `cap` found.
    pub fn up_to(cap: u64, events: u64) -> Self {
        Self { events: events.min(cap), capped: events >= cap }
    }
}

/// Something that happens to events, counted since the process began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// A word an operator uses: `delivered`, `failed`, `buried`.
    pub name: &'static str,
    /// One sentence that says what is counted.
    pub meaning: &'static str,
    /// How often.
    pub total: u64,
}

/// An event that fails or was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Troubled {
    /// Its id.
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// The kind of thing it is about.
    pub aggregate_type: String,
    /// Which thing it is about.
    pub aggregate_id: Option<String>,
    /// The place it is in, by the name of a [`Place`].
    pub place: &'static str,
    /// How often its handler was called.
    pub attempts: u32,
    /// What went wrong last.
    pub error: Option<String>,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When it is tried again, if it is.
    pub next_attempt_at: Option<Timestamp>,
}
