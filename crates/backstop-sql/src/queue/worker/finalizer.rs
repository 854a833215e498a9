//! Results are gathered and written together: moved to the log, or set back. What the database does not take is tried again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::{Shutdown, telemetry};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::in_hand::InHand;
use super::take_over::LanePass;
use crate::Error;
use crate::database::At;
use crate::queue::claim::Claim;
use crate::queue::table::{Ending, Finish, PutBack, Tables};

/// So many results wait at most to be written.
const ROOM: usize = 1_000;

/// A moment is waited for this many, if fewer have come in.
const ENOUGH: usize = 250;
const GATHER: Duration = Duration::from_micros(500);

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the database refuses is tried again after this time. Of more than so many, the oldest are left to be taken over.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
const MOST_REFUSED: usize = 1_000;

/// What is to be written about an event.
#[derive(Debug, Clone)]
pub(super) enum Told {
    Finish(Finish),
    PutBack(PutBack),
}

impl Told {
    fn claim(&self) -> Claim {
        match self {
            Self::Finish(finish) => finish.claim,
            Self::PutBack(back) => back.claim,
        }
    }
}

/// A result on its way to the tables.
#[derive(Debug)]
pub(super) struct Outgoing {
    told: Told,
    /// Kept until it is written.
    lane: Option<LanePass>,
}

impl Outgoing {
    pub(super) fn of(told: Told, lane: Option<LanePass>) -> Self {
        Self { told, lane }
    }
}

/// What cannot be written, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) events: usize,
    pub(super) error: String,
}

/// The task that writes results.
pub(super) struct Finalizer {
    sender: mpsc::Sender<Outgoing>,
    closing: Shutdown,
    task: JoinHandle<()>,
    trouble: Arc<Mutex<Option<Trouble>>>,
}

impl Finalizer {
    pub(super) fn start(
        tables: Tables,
        in_hand: InHand,
        metrics: Arc<telemetry::Queue>,
        scheduled: Arc<Notify>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(ROOM);
        let (closing, trouble) = (Shutdown::new(), Arc::default());
        let writing = Writing {
            tables,
            in_hand,
            metrics,
            scheduled,
            closing: closing.clone(),
            trouble: Arc::clone(&trouble),
            refused: Vec::new(),
            again_at: None,
        };
        Self { sender, closing, task: tokio::spawn(writing.write_all(receiver)), trouble }
    }

    pub(super) fn sender(&self) -> mpsc::Sender<Outgoing> {
        self.sender.clone()
    }

    pub(super) fn trouble(&self) -> Arc<Mutex<Option<Trouble>>> {
        self.trouble.clone()
    }

    /// Writes what has come in and ends. False if that took longer than `patience`: what was not written is taken over later.
    pub(super) async fn close(self, patience: Duration) -> bool {
        let Self { sender, closing, mut task, .. } = self;
        closing.begin();
        drop(sender);
        match timeout(patience, &mut task).await {
            Ok(Ok(())) => true,
            Ok(Err(panic)) => {
                tracing::error!(%panic, "writing results ended early; events without a result are handled again");
                false
            }
            Err(_) => {
                task.abort();
                tracing::warn!(
                    "the database did not answer in time; events without a result are handled again"
                );
                false
            }
        }
    }
}

struct Writing {
    tables: Tables,
    in_hand: InHand,
    metrics: Arc<telemetry::Queue>,
    /// Told when an event waits for a moment, so that the taker asks for the next.
    scheduled: Arc<Notify>,
    closing: Shutdown,
    trouble: Arc<Mutex<Option<Trouble>>>,
    /// What the database refuses, to be tried again.
    refused: Vec<Told>,
    again_at: Option<Instant>,
}

impl Writing {
    async fn write_all(mut self, mut receiver: mpsc::Receiver<Outgoing>) {
        let mut batch = Vec::with_capacity(ROOM);
        while self.receive(&mut receiver, &mut batch).await {
            let (batch, lanes): (Vec<_>, Vec<_>) = batch.drain(..).map(|it| (it.told, it.lane)).unzip();
            self.write_batch(batch).await;
            drop(lanes);
        }
    }

    /// Waits for results, and a moment longer for enough of them to be worth a statement, or until it is time to try again what
    /// was refused. False at the end.
    async fn receive(&mut self, receiver: &mut mpsc::Receiver<Outgoing>, batch: &mut Vec<Outgoing>) -> bool {
        let again_at = self.again_at;
        let gathered = async {
            match again_at {
                None => _ = receiver.recv_many(batch, ROOM).await,
                Some(at) => _ = timeout_at(at, receiver.recv_many(batch, ROOM)).await,
            }
            let until = Instant::now() + GATHER;
            while (1..ENOUGH).contains(&batch.len()) {
                match timeout_at(until, receiver.recv_many(batch, ROOM - batch.len())).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
        };
        let closing = self.closing.interrupts(gathered).await.is_none();
        if closing {
            // Those who send have ended, or are about to; what they have sent is written.
            while batch.len() < ROOM
                && let Ok(result) = receiver.try_recv()
            {
                batch.push(result);
            }
        }
        if batch.is_empty() && (closing || self.again_at.is_some_and(|at| at <= Instant::now())) {
            batch.extend(self.refused.drain(..).map(|told| Outgoing::of(told, None)));
            self.again_at = None;
        }
        !batch.is_empty() || (!closing && !receiver.is_closed())
    }

    /// Writes what completed first: after a crash it would be handled again.
    async fn write_batch(&mut self, batch: Vec<Told>) {
        self.in_hand.settling(batch.iter().map(Told::claim));
        let (mut finished, mut back) = (Vec::new(), Vec::new());
        for result in batch {
            match result {
                Told::Finish(finish) => finished.push(finish),
                Told::PutBack(put_back) => back.push(put_back),
            }
        }
        finished.sort_by_key(|finish| finish.ending);
        for finished in finished.chunk_by(|one, next| one.ending == next.ending) {
            self.write(finished, Told::Finish).await;
        }
        if !back.is_empty() {
            self.write(&back, Told::PutBack).await;
        }
    }

    /// Writes results of one kind. If the database refuses them, they are tried one by one: one that cannot be written must
    /// not hold back the others.
    async fn write<T: Written>(&mut self, results: &[T], wrapped: fn(T) -> Told) {
        let Err(error) = self.write_until_answered(results).await else { return };
        if results.len() == 1 {
            return self.refuse(wrapped(results[0].clone()), &error);
        }
        tracing::warn!(%error, events = results.len(), "cannot record the results of events; trying them one by one");
        for result in results {
            if let Err(error) = self.write_until_answered(std::slice::from_ref(result)).await {
                self.refuse(wrapped(result.clone()), &error);
            }
        }
    }

    /// Keeps what was refused, and its event in hand: it was handled, and would be handled again.
    fn refuse(&mut self, result: Told, error: &Error) {
        let id = result.claim().id;
        tracing::error!(%error, id, "the database refuses to record the result of an event; trying again later");
        self.refused.push(result);
        if self.closing.has_begun() || self.refused.len() > MOST_REFUSED {
            let given_up = self.refused.remove(0);
            self.in_hand.end(std::iter::once(given_up.claim()));
        }
        self.again_at.get_or_insert_with(|| Instant::now() + REFUSED_PAUSE);
        self.tell(Some(Trouble { events: self.refused.len(), error: error.to_string() }));
    }

    fn tell(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Writes results of one kind, again while the database is unavailable, and returns the error with which it refuses them.
    async fn write_until_answered<T: Written>(&mut self, results: &[T]) -> Result<(), Error> {
        let (mut pause, mut asked_before) = (FIRST_PAUSE, false);
        loop {
            match T::write(&self.tables, results).await {
                Ok(written) => {
                    self.answered(results, written, asked_before).await;
                    return Ok(());
                }
                Err(error) if error.is_outage() => {
                    tracing::warn!(%error, events = results.len(), "cannot record the results of events; trying again soon");
                    if asked_before {
                        self.tell(Some(Trouble { events: results.len(), error: error.to_string() }));
                    }
                }
                Err(error) => return Err(error),
            }
            asked_before = true;
            // Also while closing, which ends this when its patience does.
            let _ = self.closing.interrupts(tokio::time::sleep(pause)).await;
            if self.closing.has_begun() {
                tokio::time::sleep(FIRST_PAUSE).await;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn answered<T: Written>(&mut self, results: &[T], written: Wrote, asked_before: bool) {
        if self.refused.is_empty() {
            self.tell(None);
        }
        let late: Vec<_> = match written {
            Wrote::All => Vec::new(),
            Wrote::Only(ids) => {
                results.iter().map(Written::claim).filter(|claim| !ids.contains(&claim.id)).collect()
            }
            // Nobody knows which, so the last ones are taken for those.
            Wrote::Number(number) => results.iter().map(Written::claim).skip(number).collect(),
        };
        // A statement whose answer was lost may have taken effect.
        let ours =
            if asked_before && !late.is_empty() { self.ended_by_us(&late).await } else { HashSet::new() };
        let late: HashSet<_> = late.into_iter().filter(|claim| !ours.contains(claim)).collect();
        for result in results.iter().filter(|result| !late.contains(&result.claim())) {
            result.count(&self.metrics);
            if result.is_scheduled() {
                self.scheduled.notify_one();
            }
        }
        if !late.is_empty() {
            self.metrics.late.add(late.len() as u64);
            let mut ids: Vec<_> = late.iter().map(|claim| claim.id).collect();
            ids.sort_unstable();
            ids.truncate(20);
            tracing::warn!(
                events = late.len(),
                ?ids,
                "results came too late and were ignored: the events had been taken over, or set back by an operator"
            );
        }
        self.in_hand.end(results.iter().map(Written::claim));
    }

    /// Which of these are in the log as this process would have written them.
    async fn ended_by_us(&self, claims: &[Claim]) -> HashSet<Claim> {
        let ids: Vec<_> = claims.iter().map(|claim| claim.id).collect();
        let Ok(ended) = self.tables.ended(&ids).await else { return HashSet::new() };
        let ended: HashMap<_, _> = ended.into_iter().collect();
        let is_ours = |claim: &&Claim| ended.get(&claim.id) == Some(&claim.attempt);
        claims.iter().filter(is_ours).copied().collect()
    }
}

/// What a statement wrote.
enum Wrote {
    All,
    /// Only those of these ids.
    Only(HashSet<i64>),
    /// Only so many.
    Number(usize),
}

/// A kind of result.
trait Written: Clone {
    fn claim(&self) -> Claim;

    fn write(tables: &Tables, results: &[Self]) -> impl Future<Output = Result<Wrote, Error>> + Send;

    fn count(&self, metrics: &telemetry::Queue);

    /// Whether the event waits for a moment from now on.
    fn is_scheduled(&self) -> bool;
}

impl Written for Finish {
    fn claim(&self) -> Claim {
        self.claim
    }

    async fn write(tables: &Tables, results: &[Self]) -> Result<Wrote, Error> {
        let moved = tables.finish(At::Database, results).await?;
        Ok(if moved.len() == results.len() { Wrote::All } else { Wrote::Only(moved.into_iter().collect()) })
    }

    fn count(&self, metrics: &telemetry::Queue) {
        match self.ending {
            Ending::Completed => metrics.completed.increment(),
            Ending::Failed | Ending::GivenUp => metrics.failed.increment(),
        }
    }

    fn is_scheduled(&self) -> bool {
        false
    }
}

impl Written for PutBack {
    fn claim(&self) -> Claim {
        self.claim
    }

    async fn write(tables: &Tables, results: &[Self]) -> Result<Wrote, Error> {
        let changed = tables.put_back(At::Database, results).await?;
        Ok(Wrote::Number(usize::try_from(changed).unwrap_or(usize::MAX)))
    }

    fn count(&self, metrics: &telemetry::Queue) {
        match (self.counted, self.after) {
            (true, _) => metrics.retried.increment(),
            (false, Some(_)) => metrics.deferred.increment(),
            (false, None) => metrics.given_back.increment(),
        }
    }

    fn is_scheduled(&self) -> bool {
        true
    }
}
