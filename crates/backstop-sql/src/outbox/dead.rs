//! Dead events: look at them, count them, and replay them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::telemetry;
use tokio::sync::Notify;

use crate::Error;
use crate::store::{After, At, DeadEvent, DeadFilter, Store};
use crate::wake_up::WakeOthers;

/// The dead events of an outbox.
///
/// ```
/// use backstop_core::{Event, Outcome};
/// use backstop_sql::{Outbox, store::DeadFilter};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
/// # let outbox = Outbox::single_node(pool).start().await?;
/// let dead = outbox.dead();
/// for event in dead.query(&DeadFilter::default(), 100).await? {
///     println!("{} died after {} attempts: {:?}", event.id, event.attempts, event.error);
/// }
///
/// // First see how many it would be, then do it, a hundred per second.
/// let orders = DeadFilter { aggregate_type: Some("Order".into()), ..DeadFilter::default() };
/// let would_be = dead.replay_all(orders.clone()).dry_run().run().await?;
/// let replayed = dead.replay_all(orders).per_second(100).run().await?;
/// assert_eq!(would_be, replayed);
/// # outbox.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct DeadEvents {
    store: Arc<dyn Store>,
    metrics: Arc<telemetry::Outbox>,
    replayed: Arc<Notify>,
    wake_others: WakeOthers,
}

impl DeadEvents {
    /// The dead events of a store, without a running outbox.
    pub fn of(store: Arc<dyn Store>) -> Self {
        let metrics = Arc::new(telemetry::Outbox::new(telemetry::Outbox::DEFAULT_PREFIX));
        Self::assembled(store, metrics, Arc::default(), WakeOthers::default())
    }

    pub(super) fn assembled(
        store: Arc<dyn Store>,
        metrics: Arc<telemetry::Outbox>,
        replayed: Arc<Notify>,
        wake_others: WakeOthers,
    ) -> Self {
        Self { store, metrics, replayed, wake_others }
    }

    /// Dead events that match, the oldest first.
    pub async fn query(&self, filter: &DeadFilter, limit: u32) -> Result<Vec<DeadEvent>, Error> {
        logged(self.store.query_dead(filter, None, limit).await)
    }

    /// How many dead events match.
    pub async fn count(&self, filter: &DeadFilter) -> Result<u64, Error> {
        logged(self.store.count_dead(filter).await)
    }

    /// Sets one dead event back to be delivered again, as if it had never been tried. False if it is not dead.
    pub async fn replay(&self, event_id: &str) -> Result<bool, Error> {
        let replayed = logged(self.store.replay_dead(At::Database, &[event_id.to_owned()]).await)?;
        self.tell(replayed);
        Ok(replayed > 0)
    }

    /// Replays every dead event that matches. Nothing happens until [`run`](Replay::run).
    pub fn replay_all(&self, filter: DeadFilter) -> Replay {
        Replay {
            dead: self.clone(),
            filter,
            batch_size: 100,
            per_second: None,
            dry_run: false,
            progress: None,
        }
    }

    fn tell(&self, replayed: u64) {
        if replayed > 0 {
            self.metrics.replay.add(replayed);
            self.replayed.notify_one();
            self.wake_others.ask();
        }
    }
}

impl fmt::Debug for DeadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadEvents")
    }
}

/// A replay of many events, in batches.
#[must_use = "a replay does nothing until `run` is called"]
pub struct Replay {
    dead: DeadEvents,
    filter: DeadFilter,
    batch_size: u32,
    per_second: Option<u32>,
    dry_run: bool,
    progress: Option<Box<dyn Fn(u64) + Send + Sync>>,
}

impl Replay {
    /// How many events are replayed at once. Defaults to 100.
    pub fn batch_size(mut self, events: u32) -> Self {
        self.batch_size = events;
        self
    }

    /// At most this many events per second, so that the part that failed is not overrun. Defaults to no limit.
    pub fn per_second(mut self, events: u32) -> Self {
        self.per_second = Some(events);
        self
    }

    /// Only counts what would be replayed.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Calls `progress` after each batch with the number replayed so far.
    pub fn on_progress(mut self, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Replays the events that are dead now, the oldest first. Events that die while it runs, for the first time or
    /// again, do not keep it going. Returns how many; after an error, [`ReplayStopped`] says how many were replayed
    /// before it.
    pub async fn run(self) -> Result<u64, ReplayStopped> {
        let mut replayed = 0;
        self.run_counting(&mut replayed).await.map_err(|source| ReplayStopped { replayed, source })?;
        Ok(replayed)
    }

    async fn run_counting(&self, replayed: &mut u64) -> Result<(), Error> {
        let mut left = logged(self.dead.store.count_dead(&self.filter).await)?;
        let mut after: Option<After> = None;
        while left > 0 {
            let batch_size = self.batch().min(u32::try_from(left).unwrap_or(u32::MAX));
            let batch = logged(self.dead.store.query_dead(&self.filter, after.as_ref(), batch_size).await)?;
            let ids: Vec<_> = batch.iter().map(|event| event.id.clone()).collect();
            // The order of creation is walked once, so an event that dies again is already behind us.
            after = batch.last().map(|last| After { created_at: last.created_at, id: last.id.clone() });
            *replayed += self.replay(&ids).await?;
            if let Some(progress) = &self.progress {
                progress(*replayed);
            }
            left -= u64::from(batch_size);
            if ids.len() < batch_size as usize {
                break; // somebody else was faster
            }
            if left > 0 {
                self.rest(batch_size).await;
            }
        }
        Ok(())
    }

    /// How many at once: never more than may be replayed in a second.
    fn batch(&self) -> u32 {
        self.batch_size.min(self.per_second.unwrap_or(u32::MAX)).max(1)
    }

    async fn replay(&self, ids: &[String]) -> Result<u64, Error> {
        if self.dry_run {
            return Ok(ids.len() as u64);
        }
        let changed = logged(self.dead.store.replay_dead(At::Database, ids).await)?;
        self.dead.tell(changed);
        Ok(changed)
    }

    /// Waits for the time that this many events must take.
    async fn rest(&self, events: u32) {
        if let (Some(per_second), false) = (self.per_second, self.dry_run) {
            tokio::time::sleep(Duration::from_secs(1) * events / per_second.max(1)).await;
        }
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("filter", &self.filter)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// A replay that a database error stopped.
#[derive(Debug, thiserror::Error)]
#[error("stopped after replaying {replayed} events: {source}")]
pub struct ReplayStopped {
    /// How many events had been replayed by then.
    pub replayed: u64,
    /// What stopped it.
    pub source: Error,
}

fn logged<T>(answer: Result<T, Error>) -> Result<T, Error> {
    answer.inspect_err(|error| tracing::error!(%error, "cannot reach the dead events"))
}
