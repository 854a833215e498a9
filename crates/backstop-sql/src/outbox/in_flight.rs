//! Which events this process holds, so that the hot path and the poller never deliver the same one twice.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ids in flight: from the moment an event is queued until it is settled.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    tokens: HashMap<String, u64>,
    last_token: u64,
}

/// The right to hold one id. Letting go with it frees nothing that somebody else holds by then.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hold {
    id: String,
    token: u64,
}

impl InFlight {
    /// Takes an id, unless it is held already.
    pub(super) fn try_acquire(&self, id: &str) -> Option<Hold> {
        let mut held = self.lock();
        if held.tokens.contains_key(id) {
            return None;
        }
        held.last_token += 1;
        let token = held.last_token;
        held.tokens.insert(id.to_owned(), token);
        Some(Hold { id: id.to_owned(), token })
    }

    /// Lets go of an id.
    pub(super) fn release(&self, hold: &Hold) {
        let mut held = self.lock();
        if held.tokens.get(&hold.id) == Some(&hold.token) {
            held.tokens.remove(&hold.id);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().tokens.len()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_held_by_one_at_a_time() {
        let in_flight = InFlight::default();
        let first = in_flight.try_acquire("a").unwrap();
        assert!(in_flight.try_acquire("a").is_none());
        assert!(in_flight.try_acquire("b").is_some());
        in_flight.release(&first);
        let second = in_flight.try_acquire("a").unwrap();
        in_flight.release(&first);
        assert!(in_flight.try_acquire("a").is_none(), "a late release freed another's hold");
        in_flight.release(&second);
        assert_eq!(in_flight.len(), 1);
    }

    #[test]
    fn of_many_who_want_an_id_exactly_one_gets_it() {
        let in_flight = InFlight::default();
        let winners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..16).map(|_| scope.spawn(|| usize::from(in_flight.try_acquire("a").is_some()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
    }
}
