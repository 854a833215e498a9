//! The poller: looks for due rows at an interval, and hands them to the dispatcher as far as it has room.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, Shutdown, SystemClock, telemetry};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::dispatcher::{Feed, Offer};
use crate::Error;
use crate::store::{At, Claim, Due, Order, Row, Settle, Store};

#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) interval: Duration,
    pub(super) batch_size: u32,
    pub(super) skip_recent: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { interval: Duration::from_millis(5_000), batch_size: 50, skip_recent: Duration::ZERO }
    }
}

/// One task that polls until it is closed.
pub(super) struct Poller {
    shutdown: Shutdown,
    nudged: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Poller {
    pub(super) fn start(
        store: Arc<dyn Store>,
        feed: Feed,
        config: Config,
        locking: Option<(Arc<str>, Duration)>,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        let (shutdown, nudged) = (Shutdown::new(), Arc::new(Notify::new()));
        let cycle = Cycle { store, feed, config, locking, metrics };
        let task = tokio::spawn(poll_until(shutdown.clone(), nudged.clone(), cycle));
        Self { shutdown, nudged, task: Mutex::new(Some(task)) }
    }

    /// Polls now.
    pub(super) fn nudge(&self) {
        self.nudged.notify_one();
    }

    pub(super) async fn close(&self) {
        self.shutdown.begin();
        if let Some(task) = self.task.lock().await.take()
            && let Err(panic) = task.await
        {
            tracing::error!(%panic, "the poller ended early");
        }
    }
}

/// A poller that nobody can close any more stops by itself.
impl Drop for Poller {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn poll_until(shutdown: Shutdown, nudged: Arc<Notify>, cycle: Cycle) {
    while !shutdown.has_begun() {
        // A cycle is not interrupted: what it claimed must be handed over or released.
        let more_waits = match cycle.run().await {
            Ok(more_waits) => more_waits,
            Err(error) => {
                tracing::error!(%error, "cannot look for due events; trying again at the next interval");
                false
            }
        };
        if !more_waits {
            let pause = timeout(cycle.config.interval, nudged.notified());
            let _ = shutdown.interrupts(pause).await;
        }
    }
}

/// One look at the table.
struct Cycle {
    store: Arc<dyn Store>,
    feed: Feed,
    config: Config,
    locking: Option<(Arc<str>, Duration)>,
    metrics: Arc<telemetry::Outbox>,
}

impl Cycle {
    /// Polls once and tells whether more rows are likely to wait.
    async fn run(&self) -> Result<bool, Error> {
        let room = u32::try_from(self.feed.room()).unwrap_or(u32::MAX);
        let wanted = self.config.batch_size.min(room);
        if wanted == 0 {
            return Ok(false);
        }
        let rows = self.read(wanted).await?;
        self.show_lag(&rows);
        let read = rows.len();
        let handed_over = self.hand_over(rows).await?;
        // A full batch of which something was new: the next one may be waiting.
        Ok(read >= wanted as usize && handed_over > 0)
    }

    async fn read(&self, wanted: u32) -> Result<Vec<Row>, Error> {
        let due = |limit| Due { at: At::Database, skip_recent: self.config.skip_recent, limit, order: Order::Due };
        match &self.locking {
            Some((owner, timeout)) => self.store.claim(owner, *timeout, due(wanted)).await,
            // Rows that are in flight are still due, and would hide the others behind them.
            None => {
                let held = u32::try_from(self.feed.held()).unwrap_or(u32::MAX);
                self.store.poll(due(wanted.saturating_add(held))).await
            }
        }
    }

    async fn hand_over(&self, rows: Vec<Row>) -> Result<usize, Error> {
        let (mut taken, mut unreadable, mut refused) = (0, Vec::new(), Vec::new());
        for Row { id, attempts, claim, event } in rows {
            match event {
                Err(problem) => unreadable.push(bury(id, claim, &problem)),
                Ok(event) if refused.is_empty() => {
                    match self.feed.offer_cold(event, attempts, claim.clone()) {
                        Offer::Taken => taken += 1,
                        Offer::Duplicate => {}
                        Offer::Refused => refused.push((id, claim)),
                    }
                }
                Ok(_) => refused.push((id, claim)),
            }
        }
        if !unreadable.is_empty() {
            self.store.settle(At::Database, &unreadable).await?;
            self.metrics.dispatch_dead.add(unreadable.len() as u64);
        }
        let claimed: Vec<(String, Claim)> =
            refused.into_iter().filter_map(|(id, claim)| Some((id, claim?))).collect();
        if !claimed.is_empty() {
            self.store.release(&claimed).await?;
        }
        Ok(taken)
    }

    /// How long the oldest due row has waited since it was created.
    fn show_lag(&self, rows: &[Row]) {
        let oldest =
            rows.iter().filter_map(|row| row.event.as_ref().ok()).map(|event| event.occurred_at()).min();
        let waited = oldest.map(|created| (SystemClock.now() - created).num_milliseconds().max(0));
        self.metrics.lag_oldest_ms.set(waited.unwrap_or_default().unsigned_abs());
    }
}

fn bury(id: String, claim: Option<Claim>, problem: &str) -> Settle {
    tracing::error!(event_id = id, problem, "a row cannot be decoded: the event is dead");
    Settle {
        id,
        claim,
        settlement: Settlement::Dead { error: format!("the row cannot be decoded: {problem}") },
    }
}
