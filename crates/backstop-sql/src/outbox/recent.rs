//! Events that were settled while the poller was reading the table.
//!
//! A poll sees the rows as they were when it began. One that is settled meanwhile is no longer in flight
//! when the poll hands it over, and would be delivered a second time. So what is settled during a read is
//! remembered until the read is over. (A claim needs none of this: it takes the row as it is now.)

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ids settled since the read began; nothing is remembered while nobody reads.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Option<HashSet<String>>>);

impl Recent {
    pub(super) fn begin_read(&self) {
        *self.lock() = Some(HashSet::new());
    }

    pub(super) fn end_read(&self) {
        *self.lock() = None;
    }

    /// Remembers an id, before it is let go.
    pub(super) fn settled(&self, id: &str) {
        if let Some(ids) = &mut *self.lock() {
            ids.insert(id.to_owned());
        }
    }

    /// Whether an id was settled since the read began.
    pub(super) fn was_settled(&self, id: &str) -> bool {
        self.lock().as_ref().is_some_and(|ids| ids.contains(id))
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_settled_during_a_read_is_remembered() {
        let recent = Recent::default();
        recent.settled("before");
        recent.begin_read();
        recent.settled("during");
        assert!(recent.was_settled("during") && !recent.was_settled("before"));
        recent.end_read();
        assert!(!recent.was_settled("during"));
    }
}
