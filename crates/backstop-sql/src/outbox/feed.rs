//! The way to the workers: the queues, and what this process knows of the events in them.

use std::sync::Arc;

use backstop_core::clock::Tick;
use backstop_core::{Clock, Event, SystemClock, telemetry};
use tokio::sync::Notify;

use super::claims::{HeldClaims, Terms};
use super::dispatcher::Queued;
use super::gate::Gate;
use super::in_flight::{Hold, LettingGo, Tracker};
use super::queues::Queues;
use super::standing::Standing;
use super::unheld::Unheld;
use crate::store::Claim;

/// Where the hot path and the poller put events.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) queues: Arc<Queues<Waiting>>,
    tracker: Arc<dyn Tracker>,
    letting_go: Arc<LettingGo>,
    claims: Arc<HeldClaims>,
    unheld: Arc<Unheld>,
    /// Told when a row was scheduled ahead.
    scheduled: Arc<Notify>,
    standing: Arc<Standing>,
    gate: Arc<Gate>,
    metrics: Arc<telemetry::Outbox>,
}

/// An event in its queue.
pub(super) struct Waiting {
    pub(super) queued: Queued,
    pub(super) hold: Hold,
    /// How this node stood when it was taken.
    pub(super) turn: u64,
}

/// An id that was taken, and when.
pub(super) struct Reserved {
    pub(super) hold: Hold,
    since: Tick,
    turn: u64,
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
    pub(super) fn new(
        queues: Queues<Waiting>,
        tracker: Arc<dyn Tracker>,
        terms: Option<Terms>,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        Self {
            queues: Arc::new(queues),
            letting_go: Arc::new(LettingGo::new(tracker.clone())),
            tracker,
            claims: Arc::new(HeldClaims::new(terms)),
            unheld: Arc::default(),
            scheduled: Arc::default(),
            standing: Arc::default(),
            gate: Arc::default(),
            metrics,
        }
    }

    /// Takes the id of an event, unless it is held already. Its claim counts `since` then.
    fn reserve(&self, event: &Event, since: Tick) -> Option<Reserved> {
        let turn = self.standing.turn();
        let hold = self.tracker.try_acquire(event.id())?;
        Some(Reserved { hold, since, turn })
    }

    /// Takes the id of an event that was just written, which an earlier one that is gone may have held `before`.
    pub(super) fn reserve_written(
        &self,
        event: &Event,
        since: Tick,
        before: Option<Reserved>,
    ) -> Option<Reserved> {
        let turn = self.standing.turn();
        let take = || self.tracker.try_acquire(event.id()).or_else(|| self.letting_go.take_back(event.id()));
        let hold = before.map(|before| before.hold).or_else(take)?;
        Some(Reserved { hold, since, turn })
    }

    /// Offers an event that has just been committed, with its id if that was reserved.
    pub(super) fn offer_hot(&self, event: &Event, claim: Option<Claim>, reserved: Option<Reserved>) -> Offer {
        if event.is_delayed() {
            self.scheduled.notify_one();
            self.metrics.enqueue_hot_skipped_delayed.increment();
            return Offer::Refused;
        }
        if self.standing.is_down() {
            // The node that has the table delivers it.
            if let Some(Reserved { hold, .. }) = reserved {
                self.leave(hold);
            }
            return Offer::Refused;
        }
        // Just inserted, so nobody has claimed or replayed it yet.
        let queued = Queued { claim, generation: Some(0), ..Queued::hot(event.clone()) };
        let offer = match reserved {
            Some(reserved) => self.queue(queued, reserved),
            None => self.offer(queued),
        };
        match offer {
            Offer::Taken => self.metrics.enqueue_hot.increment(),
            Offer::Refused => self.refuse_hot(event),
            Offer::Duplicate => {}
        }
        offer
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
        let offer = self.offer(queued);
        if offer == Offer::Taken {
            self.metrics.enqueue_cold.increment();
        }
        offer
    }

    fn offer(&self, queued: Queued) -> Offer {
        // The claim of a row that was read counts from before it was asked for: the answer may have taken any time.
        let since = self.letting_go.looking_since().unwrap_or_else(|| SystemClock.ticks());
        match self.reserve(&queued.event, since) {
            Some(reserved) => self.queue(queued, reserved),
            None => Offer::Duplicate,
        }
    }

    fn queue(&self, queued: Queued, Reserved { hold, since, turn }: Reserved) -> Offer {
        // Held before it is queued: a worker may have settled it by the time the queue returns.
        if let Some(claim) = &queued.claim {
            self.claims.hold(queued.source, queued.event.id(), claim, since);
        }
        let bytes = size(&queued.event);
        let offer = match self.queues.push(queued.source, Waiting { queued, hold, turn }, bytes) {
            Ok(()) => Offer::Taken,
            Err(Waiting { queued, hold, .. }) => {
                self.claims.forget(queued.event.id());
                self.tracker.release(&hold);
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

    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The next event to deliver, when events may be delivered; none once that is over.
    pub(super) async fn next(&self) -> Option<Waiting> {
        let waiting = self.queues.pop().await?;
        self.show_depths();
        if !self.gate.opens().await {
            self.let_go(waiting.hold);
            return None;
        }
        Some(waiting)
    }

    /// Waits until the cold queue has room again for a good part of what it holds.
    pub(super) async fn room_freed(&self) {
        self.queues.room_freed().await;
    }

    /// A row was scheduled ahead, perhaps before whatever the poller waits for.
    pub(super) fn scheduled(&self) -> &Notify {
        &self.scheduled
    }

    /// How many events this process holds.
    pub(super) fn held(&self) -> usize {
        self.tracker.held()
    }

    pub(super) fn unheld(&self) -> &Arc<Unheld> {
        &self.unheld
    }

    pub(super) fn claims(&self) -> &Arc<HeldClaims> {
        &self.claims
    }

    /// Lets go of an event that was settled, or that somebody else sees to.
    pub(super) fn let_go(&self, hold: Hold) {
        self.claims.forget(&hold.id);
        self.letting_go.let_go(hold);
    }

    /// Lets go of an event that is still due, for whoever looks next.
    pub(super) fn leave(&self, hold: Hold) {
        self.let_go(hold);
        self.scheduled.notify_one();
    }

    pub(super) fn letting_go(&self) -> &Arc<LettingGo> {
        &self.letting_go
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
