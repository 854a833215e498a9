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
    /// Told when few enough wait that more can be taken.
    shrunk: Notify,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<Taken>,
    bytes: usize,
    /// The mean size of an event, as of the last that came in.
    typical: usize,
    /// How many were handled since anybody asked.
    handled: usize,
    /// Whoever fills the buffer is told when no more than this many wait.
    few: usize,
}

impl Inner {
    fn room(&self, target: usize) -> usize {
        let by_bytes = BYTES.saturating_sub(self.bytes) / self.typical.max(1);
        let room = target.saturating_sub(self.events.len()).min(by_bytes);
        if self.events.is_empty() { room.max(1) } else { room }
    }

    /// Whether it is time for more. If not, remembers when to tell: not at each event, since each time costs a switch of tasks.
    fn is_low(&mut self, target: usize) -> bool {
        let few = target / 2;
        let is_low = self.events.len() <= few && self.room(target) > 0;
        self.few = few.min(self.events.len().saturating_sub(1));
        is_low
    }
}

impl Buffer {
    pub(super) fn new() -> Self {
        let inner = Inner { events: VecDeque::new(), bytes: 0, typical: FIRST_GUESS, handled: 0, few: 0 };
        Self { inner: Mutex::new(inner), ready: Semaphore::new(0), shrunk: Notify::new() }
    }

    /// How many more events there is room for, if `target` may wait.
    pub(super) fn room(&self, target: usize) -> usize {
        self.lock().room(target)
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
        let few = inner.events.len() <= inner.few;
        drop(inner);
        if few {
            self.shrunk.notify_one();
        }
        Some(taken)
    }

    /// Waits until there is room, and no more than half of `target` wait: for large events there may be none before.
    pub(super) async fn shrinks(&self, target: usize) {
        while !self.lock().is_low(target) {
            self.shrunk.notified().await;
        }
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
    use std::time::Duration;

    use backstop_core::Timestamp;
    use tokio::time::timeout;

    use super::*;
    use crate::queue::claim::{Claim, Row, read_event};

    fn taken(id: i64, payload: usize) -> Taken {
        let (claim, created_at) = (Claim { id, attempt: 1, seq: 1 }, Timestamp::UNIX_EPOCH);
        let event = read_event(id, Some(format!("\"{}\"", "x".repeat(payload))), created_at);
        Taken::of(Row { claim, created_at, has_type: false, event })
    }

    /// Whether more can be taken by now.
    async fn is_low(buffer: &Buffer, target: usize) -> bool {
        timeout(Duration::from_millis(20), buffer.shrinks(target)).await.is_ok()
    }

    #[tokio::test]
    async fn more_is_taken_when_half_of_the_target_is_left() {
        let buffer = Buffer::new();
        assert!(is_low(&buffer, 4).await);
        buffer.push((1..=4).map(|id| taken(id, 10)).collect());
        assert!(!is_low(&buffer, 4).await);
        let waiting = async { timeout(Duration::from_secs(5), buffer.shrinks(4)).await };
        let taking = async {
            for _ in 0..2 {
                buffer.next().await.expect("four wait");
            }
        };
        assert!(tokio::join!(waiting, taking).0.is_ok(), "nobody said that two are left");
    }

    #[tokio::test]
    async fn a_few_large_events_are_waited_for_although_there_is_room_for_more_small_ones() {
        let buffer = Buffer::new();
        buffer.push((1..=5).map(|id| taken(id, BYTES / 4)).collect());
        assert!(!is_low(&buffer, 1_000).await);
        let waiting = async { timeout(Duration::from_secs(5), buffer.shrinks(1_000)).await };
        let taking = async {
            for _ in 0..3 {
                buffer.next().await.expect("five wait");
            }
        };
        assert!(tokio::join!(waiting, taking).0.is_ok(), "nobody said that there is room again");
    }
}
