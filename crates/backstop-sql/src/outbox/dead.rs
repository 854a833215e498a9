//! Dead events: look at them, count them, and move them as an operator says: replay, redriven, discard.

mod operation;

use std::fmt;
use std::sync::Arc;

use backstop_core::inspect::Count;
use backstop_core::operate::{self, AUDIT, Changed, Refused};
use backstop_core::{Event, telemetry};
use tokio::sync::Notify;

use crate::Error;
use crate::store::{After, At, DeadEvent, DeadFilter, Status, Store, Whereabouts};
use crate::wake_up::WakeOthers;

use operation::Verb;
pub use operation::{Operation, Stopped};

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
    /// Whom a replay wakes: the poller and the other nodes of a running outbox, or all nodes by way of the store.
    nodes: Nodes,
    operator: Arc<str>,
}

#[derive(Clone)]
enum Nodes {
    OfOutbox { replayed: Arc<Notify>, others: WakeOthers },
    OfTable,
}

/// What became of a dead event whose letter has arrived elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redriven {
    /// Its row was dead, and is done.
    Settled,
    /// Its row is not dead, and is left as it is.
    NotDead,
    /// It has no row.
    NoRow,
}

/// What became of an event that was to be delivered from its table again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BroughtBack {
    /// Its row was dead, and is replayed.
    Replayed,
    /// It had no row, and was appended.
    Appended,
    /// Its row waits or retries: it is delivered as it is.
    Pending,
    /// Its row is done: it was delivered, and is not again.
    Done,
}

/// How often a row is looked at that changes each time.
const LOOKS: u32 = 5;

impl DeadEvents {
    /// The dead events of a store, without a running outbox.
    pub fn of(store: Arc<dyn Store>) -> Self {
        let metrics = Arc::new(telemetry::Outbox::new(telemetry::Outbox::DEFAULT_PREFIX));
        Self { store, metrics, nodes: Nodes::OfTable, operator: "the program".into() }
    }

    pub(super) fn assembled(
        store: Arc<dyn Store>,
        metrics: Arc<telemetry::Outbox>,
        replayed: Arc<Notify>,
        others: WakeOthers,
    ) -> Self {
        Self { nodes: Nodes::OfOutbox { replayed, others }, metrics, ..Self::of(store) }
    }

    /// Who moves events, for the record. Defaults to `the program`.
    pub fn operator(mut self, name: impl Into<Arc<str>>) -> Self {
        self.operator = name.into();
        self
    }

    /// Dead events that match, the oldest first.
    pub async fn query(&self, filter: &DeadFilter, limit: u32) -> Result<Vec<DeadEvent>, Error> {
        self.query_after(filter, None, limit).await
    }

    /// The same from behind a [place](DeadEvent::place) on, for a list that is read in pages.
    pub async fn query_after(
        &self,
        filter: &DeadFilter,
        after: Option<&After>,
        limit: u32,
    ) -> Result<Vec<DeadEvent>, Error> {
        logged(self.store.query_dead(filter, after, limit).await)
    }

    /// How many dead events match, with a look at each dead event; see [`count_up_to`](Self::count_up_to) for a large table.
    pub async fn count(&self, filter: &DeadFilter) -> Result<u64, Error> {
        logged(self.store.count_dead(filter).await)
    }

    /// How many dead events match among the oldest `cap`, with a look at those alone, so that it costs the same however many
    /// are dead. It is capped if more are dead than that; those may match, too. Events that are meant by their ids are
    /// always counted exactly.
    pub async fn count_up_to(&self, filter: &DeadFilter, cap: u32) -> Result<Count, Error> {
        logged(self.store.count_dead_up_to(filter, cap).await)
    }

    /// Where an event is, dead or not; none if it has no row.
    pub async fn whereabouts(&self, event_id: &str) -> Result<Option<Whereabouts>, Error> {
        logged(self.store.whereabouts(At::Database, event_id).await)
    }

    /// Sets one dead event back to be delivered again, as if it had never been tried. False if it is not dead.
    pub async fn replay(&self, event_id: &str) -> Result<bool, Error> {
        let replayed = logged(self.store.replay_dead(At::Database, &[event_id.to_owned()]).await)?;
        self.note_replayed(replayed).await;
        Ok(replayed > 0)
    }

    /// Replays every dead event that matches. Nothing happens until [`run`](Operation::run).
    pub fn replay_all(&self, filter: DeadFilter) -> Operation {
        Operation::new(self.clone(), Verb::Replay, filter)
    }

    /// Deletes one dead event for good. False if it is not dead.
    pub async fn discard(&self, event_id: &str) -> Result<bool, Error> {
        let ids = [event_id.to_owned()];
        let discarded = logged(self.store.discard_dead(&DeadFilter::default(), &ids).await)?;
        self.note_discarded(&ids, discarded);
        Ok(discarded > 0)
    }

    /// Deletes every dead event that matches, for good. Nothing happens until [`run`](Operation::run).
    pub fn discard_all(&self, filter: DeadFilter) -> Operation {
        Operation::new(self.clone(), Verb::Discard, filter)
    }

    /// Settles a dead event as done, because its dead letter has arrived elsewhere. Only a row that is dead is changed.
    pub async fn redriven(&self, event_id: &str) -> Result<Redriven, Error> {
        if logged(self.store.redriven(At::Database, &[event_id.to_owned()]).await)? > 0 {
            self.metrics.redrive.increment();
            return Ok(Redriven::Settled);
        }
        Ok(match self.whereabouts(event_id).await? {
            Some(_) => Redriven::NotDead,
            None => Redriven::NoRow,
        })
    }

    /// Has an event delivered from its table again, from a copy of it: a row that is dead is replayed, and an event
    /// without a row is appended. A row of any other status is left as it is.
    pub async fn bring_back(&self, event: &Event) -> Result<BroughtBack, Error> {
        for _ in 0..LOOKS {
            if self.replay(event.id()).await? {
                return Ok(BroughtBack::Replayed);
            }
            match self.whereabouts(event.id()).await?.map(|row| row.status()) {
                Some(Some(Status::New | Status::Retry)) => return Ok(BroughtBack::Pending),
                Some(Some(Status::Done)) => return Ok(BroughtBack::Done),
                Some(None) => return Err(Error::State("its row has a status that is none of ours")),
                Some(Some(Status::Dead)) => {} // since just now
                None => {
                    if logged(self.store.bring_back(event).await)? {
                        self.wake().await;
                        return Ok(BroughtBack::Appended);
                    }
                }
            }
        }
        Err(Error::State("its row changes each time it is looked at"))
    }

    /// What an operator asks for, by ids.
    pub(super) async fn operate(&self, asked: &operate::Operation) -> Result<Changed, Refused> {
        let of = |ids: &[String]| DeadFilter { ids: Some(ids.to_vec()), ..DeadFilter::default() };
        let (operation, asked_for, done) = match asked {
            operate::Operation::Replay { ids } => (self.replay_all(of(ids)), ids.len(), "replayed"),
            operate::Operation::Discard { ids } => (self.discard_all(of(ids)), ids.len(), "discarded"),
            _ => return Err(Refused::NotOffered),
        };
        let changed = operation.run().await.map_err(|stopped| Refused::Failed(stopped.to_string()))?;
        Ok(Changed::new(changed, format!("{changed} of {asked_for} events were dead, and are {done}")))
    }

    async fn note_replayed(&self, replayed: u64) {
        if replayed > 0 {
            self.metrics.replay.add(replayed);
            self.wake().await;
        }
    }

    /// Nothing else tells afterwards which events there were.
    fn note_discarded(&self, ids: &[String], discarded: u64) {
        if discarded > 0 {
            self.metrics.discard.add(discarded);
            let by = &*self.operator;
            tracing::info!(target: AUDIT, by, discarded, ?ids, "discarded those of these events that were dead");
        }
    }

    async fn wake(&self) {
        match &self.nodes {
            Nodes::OfOutbox { replayed, others } => {
                replayed.notify_one();
                others.ask();
            }
            Nodes::OfTable => {
                if let Err(error) = self.store.wake_nodes().await {
                    tracing::debug!(%error, "cannot wake the nodes; they look at the table at their own interval");
                }
            }
        }
    }
}

impl fmt::Debug for DeadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadEvents")
    }
}

fn logged<T>(answer: Result<T, Error>) -> Result<T, Error> {
    answer.inspect_err(|error| tracing::error!(%error, "cannot reach the dead events"))
}
