//! Where copies of dead events are kept beside the table, and how long writing one may take.
//!
//! An event is written there before its row becomes DEAD: a crash in between repeats it and never loses it. If it
//! cannot be written, the row still becomes DEAD, since operators rely on the table.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::burial::{Bury, Cause, SharedBurial};
use backstop_core::calling::panicked;
use backstop_core::clock::Tick;
use backstop_core::{Clock, CloudEvent, Event, Failure, SystemClock, telemetry};
use futures_util::FutureExt;
use tokio::time::timeout;

/// Which burial an event's copy goes to.
#[derive(Clone)]
pub(crate) struct Burials {
    all: Option<Letters>,
    /// By aggregate type and event type; they come before the one for all.
    of: HashMap<String, HashMap<String, Letters>>,
    /// The `source` of the copies.
    pub(crate) source: String,
    pub(crate) patience: Duration,
}

/// What takes letters, and until when it is not called because it hangs.
#[derive(Clone)]
struct Letters {
    burial: SharedBurial,
    hangs_until: Arc<Mutex<Option<Tick>>>,
}

impl Letters {
    fn to(burial: impl Bury) -> Self {
        Self { burial: SharedBurial::new(burial), hangs_until: Arc::default() }
    }

    /// Whether a letter may be tried now. One that hung is tried again after a while, by one worker: the next waits
    /// another `pause`.
    fn admit(&self, now: Tick, pause: Duration) -> bool {
        let mut hangs_until = self.hangs_until();
        match *hangs_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                *hangs_until = Some(now + pause);
                true
            }
        }
    }

    /// It did not answer; true if it did before.
    fn hung(&self, now: Tick, pause: Duration) -> bool {
        self.hangs_until().replace(now + pause).is_none()
    }

    fn answered(&self) {
        *self.hangs_until() = None;
    }

    fn hangs_until(&self) -> MutexGuard<'_, Option<Tick>> {
        self.hangs_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Burials {
    fn default() -> Self {
        Self {
            all: None,
            of: HashMap::new(),
            source: "/outbox/outbox".to_owned(),
            patience: Duration::from_secs(30),
        }
    }
}

impl Burials {
    /// For all events whose handler has none of its own.
    pub(crate) fn set_all(&mut self, burial: impl Bury) {
        self.all = Some(Letters::to(burial));
    }

    /// For the events of one handler.
    pub(crate) fn set_of(&mut self, aggregate_type: &str, event_type: &str, burial: impl Bury) {
        let of_aggregate = self.of.entry(aggregate_type.to_owned()).or_default();
        of_aggregate.insert(event_type.to_owned(), Letters::to(burial));
    }

    /// Writes a copy of a dead event, if there is a place for it, before its row becomes DEAD.
    pub(crate) async fn bury(&self, event: &Event, attempts: u32, error: &str, failed: &telemetry::Counter) {
        let Some(letters) = self.of_event(event) else { return };
        if !letters.admit(SystemClock.ticks(), self.patience) {
            failed.increment();
            tracing::debug!(event_id = event.id(), "writing dead letters hangs; this one is skipped");
            return;
        }
        let cause = Cause::new(error, SystemClock.now()).attempts(attempts);
        if let Err(failure) = self.try_to_bury(letters, event, cause).await {
            failed.increment();
            tracing::warn!(
                event_id = event.id(),
                event_type = event.event_type(),
                aggregate_type = event.aggregate_type(),
                aggregate_id = event.aggregate_id(),
                %failure,
                "a dead letter was not written; the dead event is in the table only"
            );
        }
    }

    async fn try_to_bury(&self, letters: &Letters, event: &Event, cause: Cause) -> Result<(), Failure> {
        let event = CloudEvent::of(event, &self.source)?;
        let burying = AssertUnwindSafe(async { letters.burial.bury(event, cause).await }).catch_unwind();
        let Ok(answer) = timeout(self.patience, burying).await else {
            if letters.hung(SystemClock.ticks(), self.patience) {
                tracing::warn!(
                    patience = ?self.patience,
                    "writing dead letters hangs; until it works, one is tried from time to time, and other dead events \
                     are in the table only"
                );
            }
            return Err(Failure::transient("timeout", format!("no answer within {:?}", self.patience)));
        };
        letters.answered();
        answer.unwrap_or_else(|panic| Err(panicked("writing a dead letter", &*panic)))
    }

    fn of_event(&self, event: &Event) -> Option<&Letters> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_tried_by_one_at_a_time_until_it_answers() {
        let letters = Letters::to(|_: CloudEvent, _: Cause| async { Ok::<(), Failure>(()) });
        let (second, start) = (Duration::from_secs(1), Tick::ZERO);
        assert!(letters.admit(start, second) && letters.admit(start, second));
        assert!(letters.hung(start, second), "it begins");
        assert!(!letters.hung(start, second), "and is told once");
        assert!(!letters.admit(start, second));
        assert!(letters.admit(start + second, second), "one tries again");
        assert!(!letters.admit(start + second, second), "and no other");
        letters.answered();
        assert!(letters.admit(start + second, second) && letters.admit(start + second, second));
    }
}
