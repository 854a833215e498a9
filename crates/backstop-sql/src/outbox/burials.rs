//! Where dead events are laid down beside the table, and how long that may take.
//!
//! An event is written there before its row becomes DEAD: a crash in between repeats it and never loses it. If it
//! cannot be written, the row becomes DEAD all the same, since the table is what operators count on.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::burial::{Bury, Cause, SharedBurial};
use backstop_core::event::{AggregateType, EventType};
use backstop_core::{Clock, CloudEvent, Event, Failure, SystemClock, telemetry};
use futures_util::FutureExt;
use tokio::time::timeout;

use super::builder::Builder;
use super::interceptor::panicked;
use super::mode::{Delivering, Mode};
use super::settings::Faults;
use crate::Supported;

/// Which burial an event's copy goes to.
#[derive(Clone)]
pub(super) struct Burials {
    all: Option<SharedBurial>,
    /// By aggregate type and event type; they come before the one for all.
    of: HashMap<String, HashMap<String, SharedBurial>>,
    /// The `source` of the copies; by default it follows from the outbox's name.
    pub(super) source: Option<String>,
    patience: Duration,
}

impl Default for Burials {
    fn default() -> Self {
        Self { all: None, of: HashMap::new(), source: None, patience: Duration::from_secs(30) }
    }
}

impl Burials {
    pub(super) fn check(&self, faults: &mut Faults) {
        faults.longer_than_zero("dead_letter_timeout", self.patience);
        if self.source.as_deref() == Some("") {
            faults.add("source", "must not be empty");
        }
    }

    /// Lays a copy of a dead event down, if anywhere, before its row becomes DEAD.
    pub(super) async fn bury(&self, event: &Event, attempts: u32, error: &str, metrics: &telemetry::Outbox) {
        let Some(burial) = self.of_event(event) else { return };
        let cause = Cause::new(error, SystemClock.now()).attempts(attempts);
        if let Err(failure) = self.try_to_bury(burial, event, cause).await {
            metrics.letter_failed.increment();
            tracing::warn!(
                event_id = event.id(),
                event_type = event.event_type(),
                aggregate_type = event.aggregate_type(),
                aggregate_id = event.aggregate_id(),
                %failure,
                "a dead event was not taken as a dead letter; it is in the table only"
            );
        }
    }

    async fn try_to_bury(&self, burial: &SharedBurial, event: &Event, cause: Cause) -> Result<(), Failure> {
        let source = self.source.as_deref().unwrap_or("/outbox/outbox");
        let event = CloudEvent::of(event, source)?;
        let burying = AssertUnwindSafe(async { burial.bury(event, cause).await }).catch_unwind();
        match timeout(self.patience, burying).await {
            Ok(Ok(buried)) => buried,
            Ok(Err(panic)) => Err(panicked("what takes dead letters", &*panic)),
            Err(_) => Err(Failure::transient("timeout", format!("no answer within {:?}", self.patience))),
        }
    }

    fn of_event(&self, event: &Event) -> Option<&SharedBurial> {
        let own = self.of.get(event.aggregate_type()).and_then(|of| of.get(event.event_type()));
        own.or(self.all.as_ref())
    }
}

impl fmt::Debug for Burials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.of.iter().flat_map(|(aggregate, of)| of.keys().map(move |event| (aggregate, event)));
        f.debug_struct("Burials")
            .field("all", &self.all.is_some())
            .field("of", &pairs.collect::<Vec<_>>())
            .field("source", &self.source)
            .field("patience", &self.patience)
            .finish()
    }
}

impl<DB: Supported, M: Mode> Builder<DB, M> {
    /// The copies' source, once the outbox's name is known.
    pub(super) fn burials(&self) -> Arc<Burials> {
        let mut burials = self.burials.clone();
        burials.source.get_or_insert_with(|| format!("/outbox/{}", self.name));
        Arc::new(burials)
    }
}

impl<DB: Supported, M: Delivering> Builder<DB, M> {
    /// Writes every event that dies to a dead-letter directory too, or to whatever else takes such events, before
    /// its row becomes DEAD.
    ///
    /// The copy is a CloudEvent with the error that buried it. It is written when the tries are used up, after a
    /// permanent failure and for [`Outcome::Dead`](backstop_core::Outcome::Dead); a retry or a deferral writes
    /// nothing. If it cannot be written, a warning says so, `letter.failed` is counted, and the row is DEAD all the
    /// same. A row that cannot be decoded has no event to copy. Defaults to none.
    pub fn dead_letters(mut self, burial: impl Bury) -> Self {
        self.burials.all = Some(SharedBurial::new(burial));
        self
    }

    /// [`dead_letters`](Self::dead_letters) for the events of one handler, in place of the one for all.
    pub fn dead_letters_of(
        mut self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        burial: impl Bury,
    ) -> Self {
        let of_aggregate = self.burials.of.entry(aggregate_type.name().to_owned()).or_default();
        of_aggregate.insert(event_type.name().to_owned(), SharedBurial::new(burial));
        self
    }

    /// How long a dead letter may take. After that the row is DEAD without one: a disk that hangs must not hold the
    /// workers. Defaults to 30 s.
    pub fn dead_letter_timeout(mut self, timeout: Duration) -> Self {
        self.burials.patience = timeout;
        self
    }

    /// The `source` of dead letters, which are CloudEvents. Defaults to `/outbox/` and the name.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.burials.source = Some(source.into());
        self
    }
}
