//! The settler: gathers what became of events and writes it down, many in one statement.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Shutdown, telemetry};
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::feed::Feed;
use super::in_flight::Hold;
use crate::Error;
use crate::store::{At, Settle, Store};

/// At most so many settlements are written at once.
const BATCH: usize = 500;

/// So many are written at once; for fewer, others are waited for, but not longer than this.
const ENOUGH: usize = 50;
const GATHER: Duration = Duration::from_millis(2);

/// How long to wait before what could not be written is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// At most so many events are named in one line of the log.
const MOST_NAMED: usize = 20;

/// A settlement on its way to the table, with what is needed to tell about it.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) settle: Settle,
    pub(super) event: Event,
    pub(super) hold: Hold,
    /// How this node stood when it took the event.
    pub(super) turn: u64,
}

impl Settled {
    /// Settlements of one kind are written and told of together.
    fn kind(&self) -> (u8, u64) {
        let kind = match self.settle.settlement {
            Settlement::Done => 0,
            Settlement::Deferred { .. } => 1,
            Settlement::Retry { .. } => 2,
            Settlement::Dead { .. } => 3,
        };
        (kind, self.turn)
    }
}

/// One task that writes settlements in the order they come.
pub(super) struct Settler {
    sender: Sender,
    closing: Shutdown,
    task: JoinHandle<()>,
}

#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<Settled>);

impl Sender {
    /// Hands a settlement over. Waits while the settler is behind, which slows the workers down with it.
    pub(super) async fn send(&self, settled: Settled) {
        // Fails only where the settler was closed while a handler still ran: its row stays as it is and is
        // delivered again.
        let _ = self.0.send(settled).await;
    }
}

impl Settler {
    pub(super) fn start(
        store: Arc<dyn Store>,
        feed: Feed,
        metrics: Arc<telemetry::Outbox>,
        strict_order: bool,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(BATCH);
        let closing = Shutdown::new();
        let desk = Desk { store, feed, metrics, strict_order, closing: closing.clone() };
        Self { sender: Sender(sender), closing, task: tokio::spawn(desk.settle_all(receiver)) }
    }

    pub(super) fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Writes what has come in and ends. False if that took longer than `patience`: what was not written
    /// by then is delivered again.
    pub(super) async fn close(self, patience: Duration) -> bool {
        self.closing.begin();
        let mut task = self.task;
        match timeout(patience, &mut task).await {
            Ok(Ok(())) => true,
            Ok(Err(panic)) => {
                tracing::error!(%panic, "the settler ended early; unsettled events are delivered again");
                false
            }
            Err(_) => {
                task.abort();
                tracing::warn!("the database did not answer in time; unsettled events are delivered again");
                false
            }
        }
    }
}

struct Desk {
    store: Arc<dyn Store>,
    feed: Feed,
    metrics: Arc<telemetry::Outbox>,
    strict_order: bool,
    closing: Shutdown,
}

impl Desk {
    async fn settle_all(self, mut receiver: mpsc::Receiver<Settled>) {
        let mut batch = Vec::with_capacity(BATCH);
        // What comes in while one batch is written makes the next, so that batches grow with the load.
        while self.receive(&mut receiver, &mut batch).await > 0 {
            // A user's recorder or tracker that panics must not end the settling of everything else.
            if AssertUnwindSafe(self.settle_batch(&mut batch)).catch_unwind().await.is_err() {
                tracing::error!("a part of the settler panicked; what it was writing may be delivered again");
            }
            for settled in batch.drain(..) {
                if catch_unwind(AssertUnwindSafe(|| self.feed.let_go(settled.hold))).is_err() {
                    tracing::error!(
                        event_id = settled.settle.id,
                        "the tracker panicked; the event may stay in flight"
                    );
                }
            }
        }
    }

    /// Waits for settlements, and a moment longer for enough of them to be worth a statement. Nothing is waited
    /// for when it is time to close.
    async fn receive(&self, receiver: &mut mpsc::Receiver<Settled>, batch: &mut Vec<Settled>) -> usize {
        let gathered = async {
            receiver.recv_many(batch, BATCH).await;
            let until = Instant::now() + GATHER;
            while (1..ENOUGH).contains(&batch.len()) {
                match timeout_at(until, receiver.recv_many(batch, BATCH - batch.len())).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
        };
        if self.closing.interrupts(gathered).await.is_none() {
            receiver.close();
            receiver.recv_many(batch, BATCH).await;
        }
        batch.len()
    }

    /// Writes what ended alike together, each kind by itself.
    async fn settle_batch(&self, batch: &mut [Settled]) {
        batch.sort_by_key(Settled::kind);
        for alike in batch.chunk_by(|one, next| one.kind() == next.kind()) {
            self.settle(alike).await;
        }
    }

    /// Writes settlements of one kind. While the database is away they are kept and written when it is back;
    /// what it refuses is tried one by one, since one that cannot be written must not take the others with it.
    async fn settle(&self, alike: &[Settled]) {
        let settles: Vec<_> = alike.iter().map(|settled| settled.settle.clone()).collect();
        let (mut pause, mut said_before) = (FIRST_PAUSE, false);
        loop {
            if !self.may_write(alike) {
                tracing::warn!(
                    events = alike.len(),
                    "another node has the table, and what it makes of events counts"
                );
                return;
            }
            match self.write(&settles).await {
                Ok(changed) => {
                    // Without claims nobody else settles: what is settled already was settled by the try before.
                    let ours = said_before && settles.iter().all(|settle| settle.claim.is_none());
                    let changed = if ours { settles.len() as u64 } else { changed };
                    return self.written(alike, changed);
                }
                // Also while closing, which ends this when its patience does.
                Err(error) if error.is_outage() => {
                    tracing::warn!(%error, events = alike.len(), "cannot write what became of events; trying again soon");
                    said_before = true;
                    let closing = self.closing.interrupts(tokio::time::sleep(pause)).await.is_none();
                    if closing {
                        tokio::time::sleep(FIRST_PAUSE).await;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => {
                    tracing::warn!(%error, events = alike.len(), "cannot write what became of events; trying them one by one");
                    tokio::time::sleep(FIRST_PAUSE).await;
                    break;
                }
            }
        }
        for settled in alike {
            self.settle_alone(settled).await;
        }
    }

    /// Whether what became of events is still this node's to tell. That one was handled well always is.
    fn may_write(&self, alike: &[Settled]) -> bool {
        alike.first().is_none_or(|first| {
            first.settle.settlement == Settlement::Done || self.feed.standing().is_up_since(first.turn)
        })
    }

    async fn settle_alone(&self, settled: &Settled) {
        match self.write(std::slice::from_ref(&settled.settle)).await {
            Ok(changed) => self.written(std::slice::from_ref(settled), changed),
            Err(error) => {
                let event_id = settled.event.id();
                tracing::error!(%error, event_id, "cannot write what became of an event: it is delivered again");
                if let Some(claim) = settled.settle.claim.clone() {
                    self.feed.unheld().add_for_later(event_id.to_owned(), claim);
                }
            }
        }
    }

    /// A store that panics has failed like any other: the settler must go on.
    async fn write(&self, settles: &[Settle]) -> Result<u64, Error> {
        let writing = AssertUnwindSafe(async { self.store.settle(At::Database, settles).await });
        writing.catch_unwind().await.unwrap_or(Err(Error::State("the store panicked")))
    }

    /// Tells of settlements of one kind, of which so many took effect. Only what did is counted.
    fn written(&self, alike: &[Settled], changed: u64) {
        let Some(first) = alike.first() else { return };
        self.count(&first.settle.settlement, changed);
        let late = (alike.len() as u64).saturating_sub(changed);
        if late == 0 {
            for settled in alike {
                self.log(settled);
            }
            return;
        }
        self.metrics.settle_late.add(late);
        let events: Vec<_> = alike.iter().map(|settled| settled.event.id()).take(MOST_NAMED).collect();
        tracing::warn!(
            late,
            of = alike.len(),
            ?events,
            "settlements came too late: their rows had been claimed elsewhere, or settled by a try whose answer was lost"
        );
    }

    fn count(&self, settlement: &Settlement, events: u64) {
        match settlement {
            Settlement::Done => self.metrics.dispatch_success.add(events),
            Settlement::Deferred { .. } => self.metrics.dispatch_deferred.add(events),
            Settlement::Retry { .. } => self.metrics.dispatch_failure.add(events),
            Settlement::Dead { .. } => self.metrics.dispatch_dead.add(events),
        }
        if matches!(settlement, Settlement::Deferred { .. } | Settlement::Retry { .. }) {
            self.feed.scheduled().notify_one();
        }
    }

    /// Logs one settlement. Never the payload.
    fn log(&self, settled: &Settled) {
        let Settled { settle, event, .. } = settled;
        let attempt = settle.attempts.unwrap_or_default() + 1;
        match &settle.settlement {
            Settlement::Deferred { .. } if self.strict_order => tracing::warn!(
                event_id = event.id(),
                aggregate_id = event.aggregate_id(),
                "a deferred event lets later ones of its aggregate overtake it"
            ),
            Settlement::Done | Settlement::Deferred { .. } => {}
            Settlement::Retry { error, after } => tracing::info!(
                event_id = event.id(),
                event_type = event.event_type(),
                aggregate_type = event.aggregate_type(),
                aggregate_id = event.aggregate_id(),
                attempt,
                ?after,
                error,
                "an event failed and is tried again"
            ),
            Settlement::Dead { error } => tracing::error!(
                event_id = event.id(),
                event_type = event.event_type(),
                aggregate_type = event.aggregate_type(),
                aggregate_id = event.aggregate_id(),
                attempt,
                error,
                "an event is dead"
            ),
        }
    }
}
