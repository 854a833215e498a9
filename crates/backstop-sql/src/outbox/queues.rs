//! The hot and the cold queue: bounded, drawn two to one, and never waiting on one while the other has work.

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
    /// Told when the cold queue is half empty.
    room: Notify,
    hot_capacity: usize,
    cold_capacity: usize,
}

#[derive(Debug)]
struct Lanes<T> {
    hot: VecDeque<T>,
    cold: VecDeque<T>,
    draws: usize,
    closed: bool,
}

impl<T> Queues<T> {
    pub(super) fn new(hot_capacity: usize, cold_capacity: usize) -> Self {
        let lanes = Lanes { hot: VecDeque::new(), cold: VecDeque::new(), draws: 0, closed: false };
        Self {
            lanes: Mutex::new(lanes),
            items: Semaphore::new(0),
            room: Notify::new(),
            hot_capacity,
            cold_capacity,
        }
    }

    /// Queues an item, or gives it back when its queue is full or closed.
    pub(super) fn push(&self, source: Source, item: T) -> Result<(), T> {
        let mut lanes = self.lock();
        let closed = lanes.closed;
        let (queue, capacity) = match source {
            Source::Hot => (&mut lanes.hot, self.hot_capacity),
            Source::Cold => (&mut lanes.cold, self.cold_capacity),
        };
        if closed || queue.len() >= capacity {
            return Err(item);
        }
        queue.push_back(item);
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
        let before = lanes.cold.len();
        let drawn = lanes.draw();
        if lanes.cold.len() < before && lanes.cold.len() == self.cold_capacity / 2 {
            self.room.notify_one();
        }
        drawn
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
        (lanes.hot.len(), lanes.cold.len())
    }

    /// How many more items the cold queue takes.
    pub(super) fn cold_room(&self) -> usize {
        let lanes = self.lock();
        if lanes.closed { 0 } else { self.cold_capacity.saturating_sub(lanes.cold.len()) }
    }

    /// How many items to fetch for the cold queue: none while it is more than half full, so that a query brings many
    /// rows and not the few for which there is room just then. [`room_freed`](Self::room_freed) tells when to ask again.
    pub(super) fn cold_wanted(&self) -> usize {
        let lanes = self.lock();
        let waiting = lanes.cold.len();
        if lanes.closed || waiting > self.cold_capacity / 2 { 0 } else { self.cold_capacity - waiting }
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
            self.hot.pop_front().or_else(|| self.cold.pop_front())
        } else {
            self.cold.pop_front().or_else(|| self.hot.pop_front())
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn two_draws_of_three_are_hot_while_both_have_work() {
        let queues = Queues::new(100, 100);
        for n in 0..30 {
            queues.push(Source::Hot, (Source::Hot, n)).unwrap();
            queues.push(Source::Cold, (Source::Cold, n)).unwrap();
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
        let queues = Queues::new(10, 10);
        for n in 0..9 {
            queues.push(Source::Cold, n).unwrap();
        }
        for n in 0..9 {
            assert_eq!(queues.pop().await, Some(n));
        }
    }

    #[tokio::test]
    async fn half_empty_is_when_there_is_room_again() {
        let queues = Queues::new(1, 4);
        for n in 0..4 {
            queues.push(Source::Cold, n).unwrap();
        }
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_none());
        queues.pop().await;
        assert!(queues.room_freed().now_or_never().is_some());
        assert!(queues.room_freed().now_or_never().is_none(), "told once");
    }

    #[tokio::test]
    async fn a_full_or_closed_queue_gives_the_item_back() {
        let queues = Queues::new(1, 2);
        assert_eq!(queues.push(Source::Hot, 'a'), Ok(()));
        assert_eq!(queues.push(Source::Hot, 'b'), Err('b'));
        assert_eq!((queues.push(Source::Cold, 'c'), queues.cold_room()), (Ok(()), 1));
        queues.close();
        assert_eq!((queues.push(Source::Cold, 'd'), queues.cold_room()), (Err('d'), 0));
    }

    #[tokio::test]
    async fn what_was_queued_before_closing_is_still_drawn() {
        let queues = Queues::new(10, 10);
        queues.push(Source::Hot, 1).unwrap();
        queues.push(Source::Cold, 2).unwrap();
        queues.close();
        assert!(queues.pop().await.is_some() && queues.pop().await.is_some());
        assert_eq!(queues.pop().await, None);
    }

    #[tokio::test]
    async fn rows_are_fetched_when_half_of_the_queue_is_free_and_then_many() {
        let queues = Queues::new(1, 4);
        assert_eq!(queues.cold_wanted(), 4);
        for item in ["a", "b", "c", "d"] {
            queues.push(Source::Cold, item).unwrap();
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
