//! What an operator is shown of a component: where its events are, how they move, which are in trouble.
//!
//! Components answer; the dashboard and the command line ask, and neither knows which kind it talks to.

use std::pin::Pin;

use serde::Serialize;

use crate::Timestamp;
use crate::operate::Operate;
use crate::telemetry::{BUCKETS, Histogram};

/// A component that can be looked at.
pub trait Inspect: Send + Sync + 'static {
    /// Looks at the component. If it cannot be reached, the report's [`Health`] says so: the page that shows it must
    /// not fail because of that.
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>>;

    /// The component as something that an operator can change, if it is. Defaults to nothing.
    fn operable(&self) -> Option<&dyn Operate> {
        None
    }
}

/// One component at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// Where its events go, and how many wait on each way.
    pub routes: Vec<Route>,
    /// How long things took since the process began.
    pub times: Vec<Times>,
}

impl Report {
    /// A component of which no more is known than how it is.
    ///
    /// ```
    /// use backstop_core::inspect::{Health, Report};
    ///
    /// let report = Report::of("outbox", "orders", Health::Down("it is being started".to_owned()));
    /// assert!(report.places.is_empty());
    /// ```
    pub fn of(kind: &'static str, name: impl Into<String>, health: Health) -> Self {
        Self {
            kind,
            name: name.into(),
            health,
            places: Vec::new(),
            flows: Vec::new(),
            troubled: Vec::new(),
            routes: Vec::new(),
            times: Vec::new(),
        }
    }
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

/// A way that events take: those of one handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// By what its handler is registered for: `Order/OrderPlaced`.
    pub name: String,
    /// How many events wait for delivery or for their time.
    pub waiting: Count,
    /// How many failed at least once and are tried again.
    pub retrying: Count,
    /// How many were given up.
    pub dead: Count,
    /// When the oldest of its due events was created.
    pub oldest_due: Option<Timestamp>,
    /// Why its events are not handled now, if they are not.
    pub paused: Option<Paused>,
}

/// Why the events of a route are not handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paused {
    /// `held` is the route; `unavailable` or `disabled` is its target; `deferred` are its events, by their handler.
    pub state: &'static str,
    /// The reason, for a person.
    pub why: String,
    /// Since when.
    pub since: Timestamp,
    /// The target that they wait for, by its name, if it is one that has a name.
    pub target: Option<String>,
    /// When the next event is sent as a probe, if that is known: not while one is on its way, nor while the target is
    /// disabled.
    pub next_probe: Option<Timestamp>,
}

impl Paused {
    /// For a reason, since a moment; nothing is known of a target or of a probe.
    ///
    /// ```
    /// use backstop_core::inspect::Paused;
    ///
    /// let since = "2030-01-31T12:00:00Z".parse().unwrap();
    /// let paused = Paused::since(since, "deferred", "it is closed at night");
    /// assert_eq!(paused.next_probe, None);
    /// ```
    pub fn since(since: Timestamp, state: &'static str, why: impl Into<String>) -> Self {
        Self { state, why: why.into(), since, target: None, next_probe: None }
    }
}

/// How long something took, each time that it happened since the process began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// What took so long, in an operator's words: `waiting`, `handling`.
    pub name: &'static str,
    /// One sentence that says from when to when.
    pub meaning: &'static str,
    /// The upper bounds of the buckets, in seconds.
    pub bounds: &'static [f64],
    /// How often it took so long, for each bucket, and once more for what took longer than all bounds.
    pub counts: Vec<u64>,
}

impl Times {
    /// What a histogram of the telemetry holds.
    pub fn of(name: &'static str, meaning: &'static str, histogram: &Histogram) -> Self {
        Self { name, meaning, bounds: &BUCKETS, counts: histogram.counts().to_vec() }
    }
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
