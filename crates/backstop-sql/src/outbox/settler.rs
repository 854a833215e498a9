//! The settler: gathers what became of events and writes it down, many in one statement.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, telemetry};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::dispatcher::Feed;
use super::in_flight::Hold;
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
    task: JoinHandle<()>,
}

#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<Settled>);

impl Sender {
    /// Hands a settlement over. Waits while the settler is behind, which slows the workers down with it.
    pub(super) async fn send(&self, settled: Settled) {
        // The settler outlives its senders, so this cannot fail; if it did, the row would stay as it is
        // and be delivered again.
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
        let desk = Desk { store, feed, metrics, strict_order };
        Self { sender: Sender(sender), task: tokio::spawn(desk.settle_all(receiver)) }
    }

    pub(super) fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Writes what has come in and ends, once all other senders are gone.
    pub(super) async fn close(self) {
        drop(self.sender);
        if let Err(panic) = self.task.await {
            tracing::error!(%panic, "the settler ended early; unsettled events are delivered again");
        }
    }
}

struct Desk {
    store: Arc<dyn Store>,
    feed: Feed,
    metrics: Arc<telemetry::Outbox>,
    strict_order: bool,
}

impl Desk {
    async fn settle_all(self, mut receiver: mpsc::Receiver<Settled>) {
        let mut batch = Vec::with_capacity(BATCH);
        // What comes in while one batch is written makes the next: under load batches grow, at rest nothing waits.
        while receiver.recv_many(&mut batch, BATCH).await > 0 {
            self.settle(&batch).await;
            batch.clear();
        }
    }

    async fn settle(&self, batch: &[Settled]) {
        let settles: Vec<_> = batch.iter().map(|settled| settled.settle.clone()).collect();
        match self.store.settle(At::Database, &settles).await {
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
        match self.store.settle(At::Database, std::slice::from_ref(&settled.settle)).await {
            Ok(changed) => self.written(std::slice::from_ref(settled), changed),
            Err(error) => {
                let event_id = settled.event.id();
                tracing::error!(%error, event_id, "cannot write what became of an event: it is delivered again");
                self.feed.let_go(&settled.hold, false);
            }
        }
    }

    fn written(&self, batch: &[Settled], changed: u64) {
        for settled in batch {
            self.tell(settled);
            self.feed.let_go(&settled.hold, true);
        }
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
