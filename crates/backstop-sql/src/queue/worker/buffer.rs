//! Events that were taken and wait in memory for a free handler, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::Taken;

/// How many bytes of events may wait in memory. An empty buffer takes an event of any size.
const BYTES: usize = 64 << 20;

/// What is believed of the size of events before any was seen.
const FIRST_GUESS: usize = 64 << 10;

pub(super) struct Buffer {
    inner: Mutex<Inner>,
    /// As many permits as there are events.
    ready: Semaphore,
    /// Told when an event was taken out.
    taken_out: Notify,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<Taken>,
    bytes: usize,
    /// The mean size of an event, as of the last that came in.
    typical: usize,
    /// How many were handled since anybody asked.
    handled: usize,
}

impl Buffer {
    pub(super) fn new() -> Self {
        let inner = Inner { events: VecDeque::new(), bytes: 0, typical: FIRST_GUESS, handled: 0 };
        Self { inner: Mutex::new(inner), ready: Semaphore::new(0), taken_out: Notify::new() }
    }

    /// How many more events there is room for, if `target` may wait.
    pub(super) fn room(&self, target: usize) -> usize {
        let inner = self.lock();
        let by_bytes = BYTES.saturating_sub(inner.bytes) / inner.typical.max(1);
        let room = target.saturating_sub(inner.events.len()).min(by_bytes);
        if inner.events.is_empty() { room.max(1) } else { room }
    }

    /// Whether nothing is to be taken before an event is taken out: more than half of `target` wait, or there is no room.
    pub(super) fn has_enough(&self, target: usize) -> bool {
        self.len() > target / 2 || self.room(target) == 0
    }

    fn len(&self) -> usize {
        self.lock().events.len()
    }

    pub(super) fn push(&self, events: Vec<Taken>) {
        let count = events.len();
        if count == 0 {
            return;
        }
        let bytes: usize = events.iter().map(Taken::bytes).sum();
        let mut inner = self.lock();
        inner.bytes += bytes;
        inner.typical = (inner.typical + 3 * (bytes / count)) / 4;
        inner.events.extend(events);
        drop(inner);
        self.ready.add_permits(count);
    }

    /// An event that comes before all others.
    pub(super) fn push_first(&self, taken: Taken) {
        let mut inner = self.lock();
        inner.bytes += taken.bytes();
        inner.events.push_front(taken);
        drop(inner);
        self.ready.add_permits(1);
    }

    /// The next event; none once the buffer is closed.
    pub(super) async fn next(&self) -> Option<Taken> {
        self.ready.acquire().await.ok()?.forget();
        let mut inner = self.lock();
        let taken = inner.events.pop_front()?;
        inner.bytes = inner.bytes.saturating_sub(taken.bytes());
        drop(inner);
        self.taken_out.notify_one();
        Some(taken)
    }

    /// Waits until an event is taken out.
    pub(super) async fn shrinks(&self) {
        self.taken_out.notified().await;
    }

    /// An event that was taken out has been handled.
    pub(super) fn was_handled(&self) {
        self.lock().handled += 1;
    }

    /// How many events were handled since the last time this was asked.
    pub(super) fn handled(&self) -> usize {
        std::mem::take(&mut self.lock().handled)
    }

    /// Lets nobody take any more, and returns what is left.
    pub(super) fn close(&self) -> Vec<Taken> {
        self.ready.close();
        let mut inner = self.lock();
        inner.bytes = 0;
        inner.events.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::Timestamp;

    use super::*;
    use crate::queue::claim::{Claim, Row, read_event};

    fn taken(id: i64, bytes: usize) -> Taken {
        let json = format!("\"{}\"", "x".repeat(bytes));
        let claim = Claim { id, attempt: 1, seq: 1 };
        let created_at = Timestamp::UNIX_EPOCH;
        Taken::of(Row { claim, created_at, has_type: false, event: read_event(id, Some(json), created_at) })
    }

    #[tokio::test]
    async fn a_few_events_that_fill_the_room_are_enough_until_one_is_taken_out() {
        let buffer = Buffer::new();
        assert!(!buffer.has_enough(32), "it is empty");
        buffer.push(vec![taken(1, 16), taken(2, BYTES)]);
        assert!(buffer.has_enough(32), "nothing could be taken, and asking again at once helps nobody");
        buffer.next().await.unwrap();
        buffer.next().await.unwrap();
        assert!(!buffer.has_enough(32), "an empty buffer takes an event of any size");
    }
}
