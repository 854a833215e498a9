//! The settler: gathers what became of events and writes it down, many in one statement.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Shutdown, telemetry};
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::dispatcher::Feed;
use super::in_flight::Hold;
use crate::Error;
use crate::store::{At, Settle, Store};

/// At most so many settlements are written at once.
const BATCH: usize = 500;

/// How long to wait before what could not be written together is tried one by one.
const SECOND_TRY_AFTER: Duration = Duration::from_millis(100);

/// A settlement on its way to the table, with what is needed to tell about it.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) settle: Settle,
    pub(super) event: Event,
    pub(super) attempts: u32,
    pub(super) hold: Hold,
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
        // What comes in while one batch is written makes the next: under load batches grow, at rest nothing waits.
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

    /// Takes what has come in, and waits for it unless it is time to close.
    async fn receive(&self, receiver: &mut mpsc::Receiver<Settled>, batch: &mut Vec<Settled>) -> usize {
        tokio::select! {
            count = receiver.recv_many(batch, BATCH) => count,
            () = self.closing.begun() => {
                receiver.close();
                receiver.recv_many(batch, BATCH).await
            }
        }
    }

    /// Writes all that are done together, which may be said twice. The others are written each by itself: were
    /// one of them written again because of its neighbour, its try would count twice.
    async fn settle_batch(&self, batch: &mut [Settled]) {
        batch.sort_by_key(|settled| settled.settle.settlement != Settlement::Done);
        let done = batch.partition_point(|settled| settled.settle.settlement == Settlement::Done);
        let (done, others) = batch.split_at(done);
        if !done.is_empty() {
            self.settle(done).await;
        }
        for other in others {
            self.settle(std::slice::from_ref(other)).await;
        }
    }

    async fn settle(&self, batch: &[Settled]) {
        let settles: Vec<_> = batch.iter().map(|settled| settled.settle.clone()).collect();
        match self.write(&settles).await {
            Ok(changed) => self.written(batch, changed),
            Err(error) => {
                tracing::warn!(%error, events = batch.len(), "cannot write what became of events; trying them one by one");
                tokio::time::sleep(SECOND_TRY_AFTER).await;
                for settled in batch {
                    self.settle_alone(settled).await;
                }
            }
        }
    }

    /// One that cannot be written must not take the others with it.
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

    fn written(&self, batch: &[Settled], changed: u64) {
        // Only what took effect is told. More than one comes together only if all are done, which count alike.
        batch
            .iter()
            .take(usize::try_from(changed).unwrap_or(usize::MAX))
            .for_each(|settled| self.tell(settled));
        let late = (batch.len() as u64).saturating_sub(changed);
        if late > 0 {
            self.metrics.settle_late.add(late);
            tracing::warn!(
                late,
                "settlements came too late: their rows had been settled or claimed elsewhere"
            );
        }
    }

    /// Counts and logs one settlement. Never the payload.
    fn tell(&self, settled: &Settled) {
        let Settled { settle, event, attempts, .. } = settled;
        match &settle.settlement {
            Settlement::Done => self.metrics.dispatch_success.increment(),
            Settlement::Deferred { .. } => {
                self.feed.scheduled().notify_one();
                self.metrics.dispatch_deferred.increment();
                if self.strict_order {
                    let (event_id, aggregate_id) = (event.id(), event.aggregate_id());
                    tracing::warn!(
                        event_id,
                        aggregate_id,
                        "a deferred event lets later ones of its aggregate overtake it"
                    );
                }
            }
            Settlement::Retry { error, after } => {
                self.feed.scheduled().notify_one();
                self.metrics.dispatch_failure.increment();
                tracing::info!(
                    event_id = event.id(),
                    event_type = event.event_type(),
                    aggregate_type = event.aggregate_type(),
                    aggregate_id = event.aggregate_id(),
                    attempt = attempts + 1,
                    ?after,
                    error,
                    "an event failed and is tried again"
                );
            }
            Settlement::Dead { error } => {
                self.metrics.dispatch_dead.increment();
                tracing::error!(
                    event_id = event.id(),
                    event_type = event.event_type(),
                    aggregate_type = event.aggregate_type(),
                    aggregate_id = event.aggregate_id(),
                    attempt = attempts + 1,
                    error,
                    "an event is dead"
                );
            }
        }
    }
}
