//! The settler: gathers the results of events and writes them, many in one statement.

mod stuck;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, Shutdown, SystemClock, Timestamp, telemetry};
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::feed::{Feed, Queued};
use super::gate::Trouble;
use super::lease::Lease;
use crate::Error;
use crate::store::{At, Settle, Status, Store};
use stuck::Stuck;

/// At most this many settlements are written at once.
const BATCH: usize = 500;

/// This many are written at once; if there are fewer, the settler waits for others, but not longer than this.
const ENOUGH: usize = 50;
const GATHER: Duration = Duration::from_millis(2);

/// How long to wait before what could not be written is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest wait in strict order, where nothing else goes on while the database refuses a settlement.
const LONGEST_PAUSE_IN_ORDER: Duration = Duration::from_secs(30);

/// At most this many events are named in one line of the log.
const MOST_NAMED: usize = 20;

/// What is said of a statement that changed nothing.
const SWALLOWED: &str =
    "the database took the statement and changed no row; look for a trigger or a rule on the table";

/// A settlement on its way to the table, with what is needed to log it. The payload is left out: it would be kept in
/// memory for as long as the database takes.
#[derive(Debug)]
pub(super) struct Settled {
    settle: Settle,
    /// None if it is done, since nothing is logged then.
    named: Option<Named>,
    created_at: Timestamp,
    lease: Lease,
}

/// An event as the log names it.
#[derive(Debug)]
struct Named {
    event_type: String,
    aggregate_type: String,
    aggregate_id: Option<String>,
}

impl Settled {
    pub(super) fn new(queued: Queued, settlement: Settlement, lease: Lease) -> Self {
        lease.settling();
        let Queued { event, attempts, claim, generation, .. } = queued;
        let named = (settlement != Settlement::Done).then(|| Named {
            event_type: event.event_type().to_owned(),
            aggregate_type: event.aggregate_type().to_owned(),
            aggregate_id: event.aggregate_id().map(str::to_owned),
        });
        Self {
            settle: Settle {
                id: event.id().to_owned(),
                claim,
                attempts: Some(attempts),
                generation,
                settlement,
            },
            named,
            created_at: event.occurred_at(),
            lease,
        }
    }

    /// Settlements that lead to the same status are written and reported together.
    fn status(&self) -> Status {
        Status::of(&self.settle.settlement)
    }

    /// Whether this node may still record the result of the event. It may always record that an event was handled.
    fn may_be_told(&self) -> bool {
        self.settle.settlement == Settlement::Done || self.lease.stands()
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
        let stuck = Stuck::new(feed.gate().clone());
        let writing = Writing { store, feed, metrics, strict_order, closing: closing.clone(), stuck };
        Self { sender: Sender(sender), closing, task: tokio::spawn(writing.settle_all(receiver)) }
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

/// The task that writes.
struct Writing {
    store: Arc<dyn Store>,
    feed: Feed,
    metrics: Arc<telemetry::Outbox>,
    strict_order: bool,
    closing: Shutdown,
    /// What the database refuses, to be tried again.
    stuck: Stuck,
}

/// Which settlements the database did not take, by the ids of their events, and why.
type Refused = HashMap<String, String>;

impl Writing {
    async fn settle_all(mut self, mut receiver: mpsc::Receiver<Settled>) {
        let mut batch = Vec::with_capacity(BATCH);
        // What comes in while one batch is written makes the next, so that batches grow with the load.
        while self.receive(&mut receiver, &mut batch).await {
            let mut refused = Refused::new();
            // A user's recorder or tracker that panics must not end the settling of everything else.
            if AssertUnwindSafe(self.settle_batch(&mut batch, &mut refused)).catch_unwind().await.is_err() {
                tracing::error!(
                    "a part of the settler panicked; events that it was settling may be delivered again"
                );
            }
            for settled in batch.drain(..) {
                let error = if refused.is_empty() { None } else { refused.remove(&settled.settle.id) };
                match error {
                    // Still in our hands: it was handled, and would be handled again.
                    Some(error) if !self.closing.has_begun() => self.stuck.add(settled, error),
                    _ if settled.may_be_told() => settled.lease.end(),
                    _ => settled.lease.abandon(), // its row is still due
                }
            }
            if !self.stuck.is_quiet() && self.stuck.show() {
                self.feed.leases().scheduled().notify_one(); // the poller has rested meanwhile
            }
        }
    }

    /// Waits for settlements, and a moment longer for enough of them to be worth a statement; or until it is time to
    /// try again what was refused. Nothing is waited for when it is time to close. False at the end.
    async fn receive(&mut self, receiver: &mut mpsc::Receiver<Settled>, batch: &mut Vec<Settled>) -> bool {
        if self.stuck.is_due() {
            batch.extend(self.stuck.take(ENOUGH)); // by themselves, so that they cannot take others with them
            return true;
        }
        let again_at = self.stuck.again_at();
        let gathered = async {
            let first = receiver.recv_many(batch, BATCH);
            match again_at {
                None => first.await,
                Some(at) => timeout_at(at, first).await.unwrap_or_default(),
            };
            let until = Instant::now() + GATHER;
            while (1..ENOUGH).contains(&batch.len()) {
                match timeout_at(until, receiver.recv_many(batch, BATCH - batch.len())).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
        };
        let closing = self.closing.interrupts(gathered).await.is_none();
        if closing {
            receiver.close();
            receiver.recv_many(batch, BATCH).await;
            if batch.is_empty() {
                batch.extend(self.stuck.take(BATCH)); // for a last attempt
            }
        }
        !batch.is_empty() || (!closing && !receiver.is_closed())
    }

    /// Writes settlements that lead to one status together. In strict order as they came: a crash in between leaves
    /// the later ones to be delivered again, and never an earlier one.
    async fn settle_batch(&mut self, batch: &mut [Settled], refused: &mut Refused) {
        if !self.strict_order {
            batch.sort_by_key(|settled| settled.status().rank());
        }
        // Together is what one statement settles: a row that was replayed is of another generation, and would be written
        // before or after the others.
        let strict_order = self.strict_order;
        let same = move |one: &Settled, next: &Settled| {
            one.status() == next.status()
                && (!strict_order || one.settle.generation == next.settle.generation)
        };
        for group in batch.chunk_by(same) {
            let group: Vec<_> = group.iter().collect();
            if self.strict_order {
                self.settle_in_order(&group).await;
            } else {
                self.settle(&group, refused).await;
            }
        }
    }

    /// Writes settlements of one kind. If the database refuses them, they are tried one by one, since one that cannot
    /// be written must not hold back the others.
    async fn settle(&mut self, group: &[&Settled], refused: &mut Refused) {
        let Some(error) = self.write(group, false, refused).await else { return };
        tracing::warn!(%error, events = group.len(), "cannot record the results of events; trying them one by one");
        tokio::time::sleep(FIRST_PAUSE).await;
        for settled in group {
            if let Some(error) = self.write(&[settled], true, refused).await {
                let event_id = &settled.settle.id;
                tracing::error!(%error, event_id, "the database refuses to record the result of an event; trying again later");
                refused.insert(event_id.clone(), error.to_string());
            }
        }
    }

    /// Writes settlements one after the other, each until the database takes it. Nothing is delivered meanwhile: a
    /// later event would be settled before an earlier one.
    async fn settle_in_order(&mut self, group: &[&Settled]) {
        let mut left = group.to_vec();
        let (mut pause, mut refused) = (FIRST_PAUSE, Refused::new());
        while !left.is_empty() {
            let error = self.write(&left, pause > FIRST_PAUSE, &mut refused).await;
            // Those that were not taken, and in what order: all after an error, since nobody knows which were.
            left.retain(|settled| {
                settled.may_be_told() && (error.is_some() || refused.contains_key(&settled.settle.id))
            });
            let swallowed = refused.drain().next().map(|(_, error)| error);
            let Some(error) = error.map(|error| error.to_string()).or(swallowed) else { return };
            if self.feed.gate().set(Trouble { events: left.len(), error: error.clone(), shut: true }) {
                let event_id = left.first().map(|settled| &settled.settle.id);
                tracing::error!(
                    error,
                    event_id,
                    "the database refuses to record the results of events; deliveries are stopped until it accepts them"
                );
            }
            if self.closing.interrupts(tokio::time::sleep(pause)).await.is_none() {
                return; // they stay in the table as they are
            }
            pause = (pause * 2).min(LONGEST_PAUSE_IN_ORDER);
        }
    }

    /// Writes settlements of one kind, and returns the error with which the database refuses all of them. Those that
    /// it takes without changing a row are `refused`. While it is unavailable, or too busy, they are kept and written
    /// when it is back.
    async fn write(
        &mut self,
        group: &[&Settled],
        mut said_before: bool,
        refused: &mut Refused,
    ) -> Option<Error> {
        let mut group = group.to_vec();
        let mut pause = FIRST_PAUSE;
        loop {
            let before = group.len();
            group.retain(|settled| settled.may_be_told());
            if group.len() < before {
                let events = before - group.len();
                tracing::warn!(events, "another node has the table; this node's late results are ignored");
            }
            if group.is_empty() {
                return None;
            }
            let settles: Vec<_> = group.iter().map(|settled| settled.settle.clone()).collect();
            match self.try_to_write(&settles, said_before).await {
                Ok(answer) => {
                    self.answered(&group, &answer, refused);
                    return None;
                }
                // Also while closing, which ends this when its patience does.
                Err(error) if error.is_outage() => {
                    tracing::warn!(%error, events = group.len(), "cannot record the results of events; trying again soon");
                    if pause > FIRST_PAUSE {
                        self.feed.gate().note(group.len(), &error.to_string());
                    }
                }
                Err(error) => return Some(error),
            }
            said_before = true;
            let closing = self.closing.interrupts(tokio::time::sleep(pause)).await.is_none();
            if closing {
                tokio::time::sleep(FIRST_PAUSE).await;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn answered(&mut self, group: &[&Settled], answer: &Answer, refused: &mut Refused) {
        let (lost, kept): (Vec<_>, Vec<_>) =
            group.iter().partition(|settled| answer.swallowed.contains(&settled.settle.id));
        self.told(&kept, answer.changed);
        if answer.changed > 0 {
            self.stuck.something_was_written();
        }
        refused.extend(lost.iter().map(|settled| (settled.settle.id.clone(), SWALLOWED.to_owned())));
    }

    /// A store that panics has failed like any other: the settler must go on.
    async fn try_to_write(&self, settles: &[Settle], said_before: bool) -> Result<Answer, Error> {
        let writing = AssertUnwindSafe(async {
            let changed = self.store.settle(At::Database, settles).await?;
            if changed >= settles.len() as u64 {
                return Ok(Answer { changed, swallowed: HashSet::new() });
            }
            let swallowed: HashSet<_> = self.store.unsettled(settles).await?.into_iter().collect();
            // Without claims nobody else settles: what is settled already was settled by the attempt before.
            let ours = said_before && settles.iter().all(|settle| settle.claim.is_none());
            let changed = if ours { (settles.len() - swallowed.len()) as u64 } else { changed };
            Ok(Answer { changed, swallowed })
        });
        writing.catch_unwind().await.unwrap_or(Err(Error::State("the store panicked")))
    }

    /// Logs and counts settlements of one kind, of which `changed` took effect. Only those are counted.
    fn told(&self, group: &[&Settled], changed: u64) {
        let Some(first) = group.first() else { return };
        self.count(&first.settle.settlement, changed);
        if first.settle.settlement == Settlement::Done {
            self.measure(group, changed);
        }
        let late = (group.len() as u64).saturating_sub(changed);
        if late == 0 {
            for settled in group {
                self.log(settled);
            }
            return;
        }
        self.metrics.settle_late.add(late);
        let events: Vec<_> = group.iter().map(|settled| &settled.settle.id).take(MOST_NAMED).collect();
        tracing::warn!(
            late,
            of = group.len(),
            ?events,
            "settlements came too late: their rows had been claimed elsewhere, or settled by a statement whose answer was lost"
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
            self.feed.leases().scheduled().notify_one();
        }
    }

    /// Records how long events took from their creation, by the wall clock: another process may have created them. If
    /// some came too late nobody knows which, so the first ones are counted, as many as took effect.
    fn measure(&self, done: &[&Settled], changed: u64) {
        let now = SystemClock.now();
        for settled in done.iter().take(usize::try_from(changed).unwrap_or(usize::MAX)) {
            // A clock that was set back gives zero.
            let took = (now - settled.created_at).to_std().unwrap_or_default();
            self.metrics.delivery_latency.record(took);
        }
    }

    /// Logs one settlement. Never the payload.
    fn log(&self, settled: &Settled) {
        let Settled { settle, named: Some(Named { event_type, aggregate_type, aggregate_id }), .. } = settled
        else {
            return;
        };
        let (event_id, attempt) = (&settle.id, settle.attempts.unwrap_or_default() + 1);
        match &settle.settlement {
            Settlement::Deferred { .. } if self.strict_order => tracing::warn!(
                event_id,
                aggregate_id,
                "a deferred event lets later ones of its aggregate overtake it"
            ),
            Settlement::Done | Settlement::Deferred { .. } => {}
            Settlement::Retry { error, after } => tracing::info!(
                event_id,
                event_type,
                aggregate_type,
                aggregate_id,
                attempt,
                ?after,
                error,
                "an event failed and is tried again"
            ),
            Settlement::Dead { error } => tracing::error!(
                event_id,
                event_type,
                aggregate_type,
                aggregate_id,
                attempt,
                error,
                "an event is dead"
            ),
        }
    }
}

/// What the database made of settlements.
struct Answer {
    /// How many took effect.
    changed: u64,
    /// Those whose rows wait for them as before, by the ids of their events.
    swallowed: HashSet<String>,
}
