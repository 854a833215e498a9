//! A tracker that a test can ask whether anything is still in flight.

use std::sync::Arc;

use backstop_sql::outbox::{Hold, InFlight, Tracker};

/// The standard tracker, shared with the test.
#[derive(Clone, Default)]
pub(crate) struct Tracked(Arc<InFlight>);

impl Tracked {
    /// Whether every event was settled and let go: a row that is seen settled may be held for a moment more.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.held() == 0
    }
}

impl Tracker for Tracked {
    fn try_acquire(&self, id: &str) -> Option<Hold> {
        self.0.try_acquire(id)
    }

    fn release(&self, hold: &Hold) {
        self.0.release(hold);
    }

    fn held(&self) -> usize {
        self.0.held()
    }
}
