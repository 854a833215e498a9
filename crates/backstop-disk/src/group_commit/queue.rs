//! Where items wait for the threads that write them.
//!
//! One batch is written at a time, and whatever arrives meanwhile is the next. Only for a crowd does another thread
//! begin beside it: many small batches would cost more than they save.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// If this many wait, they are taken at once, although another batch is being written.
pub(super) const CROWD: usize = 64;

/// How long those who come back are waited for.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Where the first thread waits. It takes whatever comes one by one, and stays warm.
    arrived: Condvar,
    /// Where the others wait.
    crowded: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: Vec<T>,
    /// How many batches are being written.
    busy: usize,
    is_closed: bool,
}

/// Where a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    First,
    Behind,
}

/// What a thread is to do next.
pub(super) enum Next<'a, T> {
    Write(Vec<T>, Busy<'a, T>),
    /// Nothing came for as long as one was ready to wait.
    Idle,
    End,
}

/// A batch is being written until this is dropped.
pub(super) struct Busy<'a, T>(&'a Queue<T>);

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State { waiting: Vec::new(), busy: 0, is_closed: false };
        Self { state: Mutex::new(state), arrived: Condvar::new(), crowded: Condvar::new() }
    }

    /// Adds to what waits, or gives it back when nobody will come for it.
    pub(super) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed {
            return Err(item);
        }
        state.waiting.push(item);
        // After the item that makes the batch due, others need not call again; and a thread that is called finds the
        // lock free.
        let (count, due) = (state.waiting.len(), state.due());
        drop(state);
        if count == due {
            self.call(count);
        }
        Ok(())
    }

    /// Waits for the next batch, and takes at most this many items.
    pub(super) fn next(&self, seat: Seat, most: usize, patience: Option<Duration>) -> Next<'_, T> {
        let called = if seat == Seat::First { &self.arrived } else { &self.crowded };
        let until = patience.map(|patience| Instant::now() + patience);
        let mut state = self.state();
        loop {
            if state.waiting.len() >= state.due() {
                let batch = state.take(most);
                let left = state.waiting.len();
                drop(state);
                if left >= CROWD {
                    self.call(left);
                }
                return Next::Write(batch, Busy(self));
            }
            if state.is_closed && state.waiting.is_empty() {
                return Next::End;
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Next::Idle,
                Some(left) => called.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => called.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Lets those who were just answered come back, so that the first of them is not a batch alone: waits until this
    /// many are there, or until the time is over.
    pub(super) fn gather(&self, expected: usize, at_most: Duration) {
        let until = Instant::now() + at_most;
        while self.state().waiting.len() < expected && Instant::now() < until {
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Stays awake for a moment: senders that were just answered may come back, and waking up takes as long as a part
    /// of the work itself.
    pub(super) fn stay_awake(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        while self.state().waiting.is_empty() && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Nothing more will come; what waits is still written.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_all();
        self.crowded.notify_all();
    }

    /// Nothing more will be written: what waits is dropped.
    pub(super) fn abandon(&self) {
        let dropped = std::mem::take(&mut self.state().waiting);
        self.close();
        drop(dropped);
    }

    /// Wakes a thread that has nothing to do.
    fn call(&self, count: usize) {
        self.arrived.notify_one();
        if count >= CROWD {
            self.crowded.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// How many must wait for the next batch to begin.
    fn due(&self) -> usize {
        // Once it is closed nobody calls any more, so nobody may wait for a crowd.
        if self.busy == 0 || self.is_closed { 1 } else { CROWD }
    }

    fn take(&mut self, most: usize) -> Vec<T> {
        self.busy += 1;
        if self.waiting.len() > most {
            return self.waiting.drain(..most).collect();
        }
        let as_many = Vec::with_capacity(self.waiting.len());
        std::mem::replace(&mut self.waiting, as_many)
    }
}

impl<T> Drop for Busy<'_, T> {
    fn drop(&mut self) {
        // What waits is for this same thread, which now asks for the next batch.
        self.0.state().busy -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_PATIENCE: Option<Duration> = Some(Duration::ZERO);

    fn filled(count: usize) -> Queue<usize> {
        let queue = Queue::new();
        fill(&queue, count);
        queue
    }

    fn fill(queue: &Queue<usize>, count: usize) {
        (0..count).for_each(|number| queue.push(number).unwrap());
    }

    fn batch(queue: &Queue<usize>, most: usize) -> Option<(Vec<usize>, Busy<'_, usize>)> {
        match queue.next(Seat::First, most, NO_PATIENCE) {
            Next::Write(batch, busy) => Some((batch, busy)),
            Next::Idle | Next::End => None,
        }
    }

    #[test]
    fn at_rest_one_is_taken_at_once_and_with_it_whatever_waits() {
        let queue = filled(1);
        assert_eq!(batch(&queue, 10).unwrap().0, [0]);
        assert!(batch(&queue, 10).is_none());
        fill(&queue, 3);
        assert_eq!(batch(&queue, 10).unwrap().0, [0, 1, 2]);
    }

    #[test]
    fn no_more_are_taken_than_asked_for_and_the_rest_keeps_its_order() {
        let queue = filled(5);
        assert_eq!(batch(&queue, 3).unwrap().0, [0, 1, 2]);
        assert_eq!(batch(&queue, 3).unwrap().0, [3, 4]);
    }

    #[test]
    fn while_one_batch_is_written_only_a_crowd_is_taken() {
        let queue = filled(1);
        let first = batch(&queue, 10).unwrap();
        fill(&queue, CROWD - 1);
        assert!(batch(&queue, 1000).is_none());
        fill(&queue, 1);
        let second = batch(&queue, 1000).unwrap();
        assert_eq!(second.0.len(), CROWD);

        fill(&queue, 1);
        drop(first);
        assert!(batch(&queue, 10).is_none(), "the second is still being written");
        drop(second);
        assert_eq!(batch(&queue, 10).unwrap().0, [0]);
    }

    #[test]
    fn a_crowd_calls_a_second_thread_while_the_first_is_busy() {
        let queue = filled(1);
        let _busy = batch(&queue, 10).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| match queue.next(Seat::Behind, 1000, None) {
                Next::Write(batch, _) => batch.len(),
                Next::Idle | Next::End => 0,
            });
            fill(&queue, CROWD);
            assert_eq!(second.join().unwrap(), CROWD);
        });
    }

    #[test]
    fn what_waits_when_it_is_closed_is_still_taken_and_nothing_more_comes() {
        let queue = filled(1);
        queue.close();
        assert_eq!(queue.push(7), Err(7));
        assert_eq!(batch(&queue, 10).unwrap().0, [0]);
        assert!(matches!(queue.next(Seat::Behind, 10, None), Next::End));
    }

    #[test]
    fn closed_while_a_batch_is_written_it_lets_every_thread_end() {
        let queue = filled(1);
        let _busy = batch(&queue, 10).unwrap();
        fill(&queue, 2);
        queue.close();
        assert_eq!(batch(&queue, 10).unwrap().0, [0, 1]);
        for seat in [Seat::First, Seat::Behind] {
            assert!(matches!(queue.next(seat, 10, None), Next::End));
        }
    }

    #[test]
    fn those_who_come_back_are_waited_for_until_they_are_there_or_the_time_is_over() {
        let queue = filled(1);
        queue.gather(2, Duration::ZERO);
        queue.gather(1, Duration::from_secs(86_400));
        std::thread::scope(|scope| {
            scope.spawn(|| fill(&queue, 2));
            queue.gather(3, Duration::from_secs(86_400));
        });
        assert_eq!(batch(&queue, 10).unwrap().0.len(), 3);
    }

    #[test]
    fn what_waits_when_it_is_abandoned_is_dropped() {
        let queue = filled(2);
        queue.abandon();
        assert_eq!(queue.push(7), Err(7));
        assert!(matches!(queue.next(Seat::First, 10, None), Next::End));
    }
}
