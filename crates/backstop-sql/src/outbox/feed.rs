//! The way to the workers: the hot and the cold queue, and the leases on the events in them. The queues are bounded
//! in number and in bytes. Workers take two hot events for each cold one, and nobody waits at one queue while the
//! other has work.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::{Event, Timestamp, telemetry};
use tokio::sync::{Notify, Semaphore};

use super::gate::Gate;
use super::lease::{Lease, Leases};
use crate::outbox::HeldRoutes;
use crate::routes::held::Asked;
use crate::store::Claim;

/// Where a queued event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From a transaction of this process that has just committed.
    Hot,
    /// From the table, by the poller.
    Cold,
}

/// An event on its way to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The event.
    pub event: Event,
    /// Where it comes from, which decides the queue it waits in.
    pub source: Source,
    /// How many attempts have failed before.
    pub attempts: u32,
    /// The claim under which it is delivered.
    pub claim: Option<Claim>,
    /// How often its row had been claimed or replayed: if given, its settlement is written only while the row still
    /// says so.
    pub generation: Option<i64>,
    /// Since when it has been due, if that is known; otherwise since it was created.
    pub due_at: Option<Timestamp>,
    /// Whether it is to find out if its route, which is held, can be opened.
    pub(super) probe: bool,
}

impl Asked for Queued {
    fn event(&self) -> &Event {
        &self.event
    }

    fn is_probe(&self) -> bool {
        self.probe
    }
}

impl Queued {
    /// An event that has just been committed.
    pub fn hot(event: Event) -> Self {
        Self { source: Source::Hot, ..Self::cold(event, 0) }
    }

    /// An event read from its row.
    pub fn cold(event: Event, attempts: u32) -> Self {
        Self {
            event,
            source: Source::Cold,
            attempts,
            claim: None,
            generation: None,
            due_at: None,
            probe: false,
        }
    }

    /// How long it has been due. A clock that was set back gives zero.
    pub(super) fn waited(&self, now: Timestamp) -> Duration {
        (now - self.due_at.unwrap_or_else(|| self.event.occurred_at())).to_std().unwrap_or_default()
    }
}

/// Where the hot path and the poller put events.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) queues: Arc<Queues<Waiting>>,
    leases: Leases,
    gate: Arc<Gate>,
    held: HeldRoutes,
    metrics: Arc<telemetry::Outbox>,
}

/// An event in its queue.
pub(super) struct Waiting {
    pub(super) queued: Queued,
    pub(super) lease: Lease,
}

/// Whether an offered event was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// It is queued.
    Taken,
    /// This process holds it already.
    Duplicate,
    /// The queue is full or closed; the event stays in the table.
    Refused,
}

impl Feed {
    pub(super) fn new(
        queues: Queues<Waiting>,
        leases: Leases,
        held: HeldRoutes,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        Self { queues: Arc::new(queues), leases, gate: Arc::default(), held, metrics }
    }

    pub(super) fn held(&self) -> &HeldRoutes {
        &self.held
    }

    /// Offers an event that has just been committed.
    pub(super) fn offer_hot(&self, event: &Event, claim: Option<Claim>, lease: Lease) -> Offer {
        // The node that has the table delivers it.
        if self.leases.ledger().is_down() {
            return Offer::Refused;
        }
        // It waits in the table, like the others of its route.
        if self.held.keeps(event) {
            lease.refused();
            return Offer::Refused;
        }
        // Just inserted, so nobody has claimed or replayed it yet.
        let queued = Queued { claim, generation: Some(0), ..Queued::hot(event.clone()) };
        let offer = self.queue(queued, lease);
        match offer {
            Offer::Refused => self.refuse_hot(event),
            _ => self.metrics.enqueue_hot.increment(),
        }
        offer
    }

    /// Reports a committed event that is to be delivered later, so that the poller wakes up by then.
    pub(super) fn note_delayed(&self) {
        self.leases.scheduled().notify_one();
        self.metrics.enqueue_hot_skipped_delayed.increment();
    }

    /// Reports a committed event for which there is no room in memory.
    pub(super) fn refuse_hot(&self, event: &Event) {
        self.metrics.enqueue_hot_dropped.increment();
        tracing::warn!(
            event_id = event.id(),
            event_type = event.event_type(),
            "the hot queue refused an event: the poller delivers it"
        );
    }

    /// Offers an event that the poller read.
    pub(super) fn offer_cold(&self, queued: Queued) -> Offer {
        let lease = self.leases.take(queued.event.id(), Source::Cold, queued.claim.as_ref());
        let Some(lease) = lease else { return Offer::Duplicate };
        let offer = self.queue(queued, lease);
        if offer == Offer::Taken {
            self.metrics.enqueue_cold.increment();
        }
        offer
    }

    fn queue(&self, queued: Queued, lease: Lease) -> Offer {
        let bytes = size(&queued.event);
        let offer = match self.queues.push(queued.source, Waiting { queued, lease }, bytes) {
            Ok(()) => Offer::Taken,
            Err(Waiting { lease, .. }) => {
                lease.refused();
                Offer::Refused
            }
        };
        self.show_depths();
        offer
    }

    /// How many more events the poller may offer.
    pub(super) fn cold_room(&self) -> usize {
        self.queues.cold_room()
    }

    /// How many rows to fetch for the cold queue now.
    pub(super) fn cold_wanted(&self) -> usize {
        self.queues.cold_wanted()
    }

    pub(super) fn leases(&self) -> &Leases {
        &self.leases
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The next event to deliver, when events may be delivered; none once that is over.
    pub(super) async fn next(&self) -> Option<Waiting> {
        let waiting = self.queues.pop().await?;
        self.show_depths();
        self.gate.opens().await.then_some(waiting)
    }

    /// Waits until the cold queue has room again for a good part of what it holds.
    pub(super) async fn room_freed(&self) {
        self.queues.room_freed().await;
    }

    pub(super) fn show_depths(&self) {
        let (hot, cold) = self.queues.depths();
        self.metrics.queue_hot_depth.set(hot as u64);
        self.metrics.queue_cold_depth.set(cold as u64);
    }
}

/// What an event takes in memory, about.
fn size(event: &Event) -> usize {
    let headers: usize = event.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
    event.payload_json().len() + headers
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
#[path = "feed_tests.rs"]
mod tests;
