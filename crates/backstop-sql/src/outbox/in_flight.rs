//! Which events this process holds, so that the hot path and the poller never deliver the same one twice.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock};

/// Remembers the ids in flight: from the moment an event is queued until it is settled. In memory only.
pub trait Tracker: Send + Sync + 'static {
    /// Takes an id, unless it is held already.
    fn try_acquire(&self, id: &str) -> Option<Hold>;

    /// Releases an id.
    fn release(&self, hold: &Hold);

    /// How many ids are held.
    fn held(&self) -> usize;
}

/// The right to hold one id. Releasing with it frees nothing that somebody else holds by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The event's id.
    pub id: String,
    /// The number of this hold, new each time the id is taken.
    pub token: u64,
}

/// The standard tracker.
///
/// ```
/// use backstop_sql::outbox::{InFlight, Tracker};
///
/// let in_flight = InFlight::new();
/// let hold = in_flight.try_acquire("a").unwrap();
/// assert!(in_flight.try_acquire("a").is_none());
/// in_flight.release(&hold);
/// assert!(in_flight.try_acquire("a").is_some());
/// ```
pub struct InFlight {
    held: Mutex<Held>,
    ttl: Option<Duration>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Held {
    holds: HashMap<String, (u64, Tick)>,
    last_token: u64,
}

impl InFlight {
    /// A tracker that holds ids until they are released.
    pub fn new() -> Self {
        Self { held: Mutex::default(), ttl: None, clock: Arc::new(SystemClock) }
    }

    /// A tracker whose ids can be taken again once they are older than this: for handlers that may vanish.
    pub fn with_ttl(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..Self::new() }
    }

    /// Measures age by this clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracker for InFlight {
    fn try_acquire(&self, id: &str) -> Option<Hold> {
        let now = self.clock.ticks();
        let mut held = self.lock();
        if let Some((_, since)) = held.holds.get(id)
            && self.ttl.is_none_or(|ttl| now.since(*since) <= ttl)
        {
            return None;
        }
        held.last_token += 1;
        let token = held.last_token;
        held.holds.insert(id.to_owned(), (token, now));
        Some(Hold { id: id.to_owned(), token })
    }

    fn release(&self, hold: &Hold) {
        let holds = &mut self.lock().holds;
        // Somebody else's is put back, which is rare.
        if let Some((id, held)) = holds.remove_entry(&hold.id)
            && held.0 != hold.token
        {
            holds.insert(id, held);
        }
    }

    fn held(&self) -> usize {
        self.lock().holds.len()
    }
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("held", &self.held()).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
