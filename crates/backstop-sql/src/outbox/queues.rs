//! The hot and the cold queue: bounded in number and in bytes, drawn two to one, and never waiting on one while the other
//! has work.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

/// Where a queued event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From a transaction of this process that has just committed.
    Hot,
    /// From the table, by the poller.
    Cold,
}

/// Two bounded queues with one place to wait.
#[derive(Debug)]
pub(super) struct Queues<T> {
    lanes: Mutex<Lanes<T>>,
    /// One permit for each item in either queue.
    items: Semaphore,
    /// Told when the cold queue is half empty, and when it is empty after it had no room for a large item.
    room: Notify,
    limits: Limits,
}

/// What each queue holds at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many items the hot one takes.
    pub(super) hot: usize,
    /// How many items the cold one takes.
    pub(super) cold: usize,
    /// How many bytes each takes. An empty one takes an item of any size.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Lanes<T> {
    hot: Lane<T>,
    cold: Lane<T>,
    draws: usize,
    /// Whether the cold one had no room for an item since it was empty.
    refused: bool,
    closed: bool,
}

/// A queue, and how many bytes are in it.
#[derive(Debug)]
struct Lane<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    /// How large items were on average when there were some.
    average: usize,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0, average: 0 }
    }
}

impl<T> Lane<T> {
    fn push(&mut self, item: T, bytes: usize) {
        self.items.push_back((item, bytes));
        self.bytes += bytes;
        self.average = self.bytes / self.items.len();
    }

    fn pop(&mut self) -> Option<T> {
        let (item, bytes) = self.items.pop_front()?;
        self.bytes -= bytes;
        Some(item)
    }

    /// Whether it takes an item of that size.
    fn takes(&self, bytes: usize, items: usize, limit: usize) -> bool {
        self.items.len() < items && (self.items.is_empty() || self.bytes.saturating_add(bytes) <= limit)
    }

    /// How many more items it is likely to take, if they are as large as those before.
    fn room(&self, items: usize, limit: usize) -> usize {
        let by_bytes = match self.average {
            0 => items,
            average => limit.saturating_sub(self.bytes) / average,
        };
        // An empty one takes an item of any size.
        let at_least = usize::from(self.items.is_empty());
        items.saturating_sub(self.items.len()).min(by_bytes.max(at_least))
    }
}

impl<T> Queues<T> {
    pub(super) fn new(limits: Limits) -> Self {
        let lanes =
            Lanes { hot: Lane::default(), cold: Lane::default(), draws: 0, refused: false, closed: false };
        Self { lanes: Mutex::new(lanes), items: Semaphore::new(0), room: Notify::new(), limits }
    }

    /// Queues an item of that size, or gives it back when its queue is full or closed.
    pub(super) fn push(&self, source: Source, item: T, bytes: usize) -> Result<(), T> {
        let mut lanes = self.lock();
        let closed = lanes.closed;
        let (lane, items) = match source {
            Source::Hot => (&mut lanes.hot, self.limits.hot),
            Source::Cold => (&mut lanes.cold, self.limits.cold),
        };
        if closed || !lane.takes(bytes, items, self.limits.bytes) {
            lanes.refused |= source == Source::Cold;
            return Err(item);
        }
        lane.push(item, bytes);
        self.items.add_permits(1);
        Ok(())
    }

    /// The next item: two draws of three try the hot queue first, one the cold. Waits while both are
    /// empty; `None` once they are closed and empty.
    pub(super) async fn pop(&self) -> Option<T> {
        match self.items.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_closed) => {} // drain what is left, without waiting
        }
        let mut lanes = self.lock();
        let was_full = !self.is_half_empty(&lanes.cold);
        let drawn = lanes.draw();
        let is_empty = lanes.cold.items.is_empty();
        if (was_full && self.is_half_empty(&lanes.cold)) || (lanes.refused && is_empty) {
            self.room.notify_one();
        }
        lanes.refused &= !is_empty;
        drawn
    }

    fn is_half_empty(&self, cold: &Lane<T>) -> bool {
        cold.items.len() <= self.limits.cold / 2 && cold.bytes <= self.limits.bytes / 2
    }

    /// Waits until the cold queue is half empty: filling it up row by row would cost a query for each.
    pub(super) async fn room_freed(&self) {
        self.room.notified().await;
    }

    /// Refuses new items from now on; what is queued can still be drawn.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.items.close();
    }

    /// How many items wait, hot and cold.
    pub(super) fn depths(&self) -> (usize, usize) {
        let lanes = self.lock();
        (lanes.hot.items.len(), lanes.cold.items.len())
    }

    /// How many more items the cold queue takes.
    pub(super) fn cold_room(&self) -> usize {
        let lanes = self.lock();
        if lanes.closed { 0 } else { self.limits.cold.saturating_sub(lanes.cold.items.len()) }
    }

    /// How many items to fetch for the cold queue: none while it is more than half full, so that a query brings many
    /// rows and not the few for which there is room just then. [`room_freed`](Self::room_freed) tells when to ask again.
    pub(super) fn cold_wanted(&self) -> usize {
        let lanes = self.lock();
        if lanes.closed || !self.is_half_empty(&lanes.cold) {
            0
        } else {
            lanes.cold.room(self.limits.cold, self.limits.bytes)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes<T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Lanes<T> {
    fn draw(&mut self) -> Option<T> {
        let hot_first = self.draws % 3 < 2;
        self.draws = self.draws.wrapping_add(1);
        if hot_first {
            self.hot.pop().or_else(|| self.cold.pop())
        } else {
            self.cold.pop().or_else(|| self.hot.pop())
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn queues<T>(hot: usize, cold: usize) -> Queues<T> {
        Queues::new(Limits { hot, cold, bytes: 1_000_000 })
    }

    #[tokio::test]
    async fn a_queue_is_full_when_its_bytes_are_and_an_empty_one_takes_any_item() {
        let queues = Queues::new(Limits { hot: 100, cold: 100, bytes: 10 });
        assert_eq!(queues.push(Source::Hot, 'a', 50), Ok(()), "it is the only one");
        assert_eq!(queues.push(Source::Hot, 'b', 1), Err('b'));
        queues.pop().await;
        for item in ['c', 'd'] {
            assert_eq!(queues.push(Source::Hot, item, 5), Ok(()));
        }
        assert_eq!(queues.push(Source::Hot, 'e', 1), Err('e'));
        assert_eq!(queues.push(Source::Cold, 'f', 10), Ok(()), "each for itself");
    }

    #[tokio::test]
    async fn as_many_rows_are_wanted_as_are_likely_to_fit() {
        let queues = Queues::new(Limits { hot: 1, cold: 100, bytes: 10 });
        assert_eq!(queues.cold_wanted(), 100, "nobody knows how large they are");
        for n in 0..3 {
            queues.push(Source::Cold, n, 3).unwrap();
        }
        assert_eq!(queues.cold_wanted(), 0, "more than half of the bytes are there");
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_none());
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_some());
        assert_eq!(queues.cold_wanted(), 2);
        queues.pop().await;
        assert_eq!(queues.cold_wanted(), 3);
        queues.push(Source::Cold, 4, 100).unwrap();
        queues.pop().await;
        assert_eq!(queues.cold_wanted(), 1, "one of any size");
    }

    #[tokio::test]
    async fn there_is_room_for_a_large_item_when_the_queue_is_empty() {
        let queues = Queues::new(Limits { hot: 1, cold: 100, bytes: 10 });
        for n in 0..2 {
            queues.push(Source::Cold, n, 1).unwrap();
        }
        assert_eq!(queues.push(Source::Cold, 2, 100), Err(2));
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_none());
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_some());
        assert_eq!(queues.push(Source::Cold, 2, 100), Ok(()));
        queues.pop().await;
        queues.push(Source::Cold, 3, 1).unwrap();
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_some(), "more than half of it was free");
        assert!(queues.room_freed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn two_draws_of_three_are_hot_while_both_have_work() {
        let queues = queues(100, 100);
        for n in 0..30 {
            queues.push(Source::Hot, (Source::Hot, n), 1).unwrap();
            queues.push(Source::Cold, (Source::Cold, n), 1).unwrap();
        }
        let mut drawn = Vec::new();
        for _ in 0..30 {
            drawn.push(queues.pop().await.unwrap().0);
        }
        let turn = [Source::Hot, Source::Hot, Source::Cold];
        assert!(drawn.chunks(3).all(|three| three == turn), "{drawn:?}");
        assert_eq!(queues.depths(), (10, 20));
    }

    #[tokio::test]
    async fn an_empty_queue_never_holds_up_the_other() {
        let queues = queues(10, 10);
        for n in 0..9 {
            queues.push(Source::Cold, n, 1).unwrap();
        }
        for n in 0..9 {
            assert_eq!(queues.pop().await, Some(n));
        }
    }

    #[tokio::test]
    async fn half_empty_is_when_there_is_room_again() {
        let queues = queues(1, 4);
        for n in 0..4 {
            queues.push(Source::Cold, n, 1).unwrap();
        }
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_none());
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_some());
        assert!(queues.room_freed().now_or_never().is_none(), "told once");
    }

    #[tokio::test]
    async fn a_full_or_closed_queue_gives_the_item_back() {
        let queues = queues(1, 2);
        assert_eq!(queues.push(Source::Hot, 'a', 1), Ok(()));
        assert_eq!(queues.push(Source::Hot, 'b', 1), Err('b'));
        assert_eq!((queues.push(Source::Cold, 'c', 1), queues.cold_room()), (Ok(()), 1));
        queues.close();
        assert_eq!((queues.push(Source::Cold, 'd', 1), queues.cold_room()), (Err('d'), 0));
    }

    #[tokio::test]
    async fn what_was_queued_before_closing_is_still_drawn() {
        let queues = queues(10, 10);
        queues.push(Source::Hot, 1, 1).unwrap();
        queues.push(Source::Cold, 2, 1).unwrap();
        queues.close();
        assert!(queues.pop().await.is_some() && queues.pop().await.is_some());
        assert_eq!(queues.pop().await, None);
    }

    #[tokio::test]
    async fn rows_are_fetched_when_half_of_the_queue_is_free_and_then_many() {
        let queues = queues(1, 4);
        assert_eq!(queues.cold_wanted(), 4);
        for item in ["a", "b", "c", "d"] {
            queues.push(Source::Cold, item, 1).unwrap();
        }
        assert_eq!((queues.cold_room(), queues.cold_wanted()), (0, 0));
        queues.pop().await;
        assert_eq!((queues.cold_room(), queues.cold_wanted()), (1, 0), "not for one row");
        assert!(queues.room_freed().now_or_never().is_none());
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_some());
        assert_eq!(queues.cold_wanted(), 2);
    }
}
