//! The settler: gathers what became of events and writes it down, many in one statement.

use std::sync::Arc;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, telemetry};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::in_flight::{Hold, InFlight};
use crate::store::{At, Settle, Store};

/// At most so many settlements are written at once.
const BATCH: usize = 500;

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
        in_flight: Arc<InFlight>,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(BATCH);
        let task = tokio::spawn(settle_all(store, in_flight, metrics, receiver));
        Self { sender: Sender(sender), task }
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

async fn settle_all(
    store: Arc<dyn Store>,
    in_flight: Arc<InFlight>,
    metrics: Arc<telemetry::Outbox>,
    mut receiver: mpsc::Receiver<Settled>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    // What comes in while one batch is written makes the next: under load batches grow, at rest nothing waits.
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        let (settles, told): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|settled| (settled.settle.clone(), settled)).unzip();
        match store.settle(At::Database, &settles).await {
            Ok(changed) => {
                told.iter().for_each(|settled| tell(&metrics, settled));
                if changed < settles.len() as u64 {
                    let late = settles.len() as u64 - changed;
                    tracing::warn!(
                        late,
                        "settlements came too late: their rows had been settled or claimed elsewhere"
                    );
                }
            }
            Err(error) => {
                let events = settles.len();
                tracing::error!(%error, events, "cannot write what became of events: they are delivered again");
            }
        }
        told.iter().for_each(|settled| in_flight.release(&settled.hold));
    }
}

/// Counts and logs one settlement. Never the payload.
fn tell(metrics: &telemetry::Outbox, settled: &Settled) {
    let Settled { settle, event, attempts, .. } = settled;
    match &settle.settlement {
        Settlement::Done => metrics.dispatch_success.increment(),
        Settlement::Deferred { .. } => metrics.dispatch_deferred.increment(),
        Settlement::Retry { error, after } => {
            metrics.dispatch_failure.increment();
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
            metrics.dispatch_dead.increment();
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
