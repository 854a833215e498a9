//! The way to the workers: the queues, and the leases on the events in them.

use std::sync::Arc;

use backstop_core::{Event, telemetry};

use super::dispatcher::Queued;
use super::gate::Gate;
use super::lease::{Lease, Leases};
use super::queues::Queues;
use crate::store::Claim;

/// Where the hot path and the poller put events.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) queues: Arc<Queues<Waiting>>,
    leases: Leases,
    gate: Arc<Gate>,
    metrics: Arc<telemetry::Outbox>,
}

/// An event in its queue.
pub(super) struct Waiting {
    pub(super) queued: Queued,
    pub(super) lease: Lease,
}

/// What became of an offered event.
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
    pub(super) fn new(queues: Queues<Waiting>, leases: Leases, metrics: Arc<telemetry::Outbox>) -> Self {
        Self { queues: Arc::new(queues), leases, gate: Arc::default(), metrics }
    }

    /// Offers an event that has just been committed.
    pub(super) fn offer_hot(&self, event: &Event, claim: Option<Claim>, lease: Lease) -> Offer {
        // The node that has the table delivers it.
        if self.leases.ledger().is_down() {
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

    /// Tells of a committed event that is to be delivered later, so that the poller sleeps no longer than until then.
    pub(super) fn schedule(&self) {
        self.leases.scheduled().notify_one();
        self.metrics.enqueue_hot_skipped_delayed.increment();
    }

    /// Tells of a committed event for which there is no room in memory.
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
        let Some(lease) = self.leases.take(queued.event.id()) else { return Offer::Duplicate };
        let offer = self.queue(queued, lease);
        if offer == Offer::Taken {
            self.metrics.enqueue_cold.increment();
        }
        offer
    }

    fn queue(&self, queued: Queued, lease: Lease) -> Offer {
        // Claimed before it is queued: a worker may have settled it by the time the queue returns.
        let lease = lease.under(queued.source, queued.claim.as_ref());
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
