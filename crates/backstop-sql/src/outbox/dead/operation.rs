//! An operation on many dead events: in batches, the oldest first, no faster than allowed, with a line for the record.

use std::fmt;
use std::time::Duration;

use backstop_core::operate::AUDIT;
use chrono::TimeDelta;

use super::{DeadEvents, logged};
use crate::Error;
use crate::store::{After, At, DeadEvent, DeadFilter};

/// At so many dead events it looks to count them before the first is changed.
const COUNTED: u32 = 100_000;

/// A replay or a discard of many events.
///
/// Each batch is a statement of its own, so an operation that was killed is simply started again: what it has moved is
/// not dead any more. What somebody else moves meanwhile is left to them and not counted here.
#[must_use = "nothing happens until `run` is called"]
pub struct Operation {
    dead: DeadEvents,
    verb: Verb,
    filter: DeadFilter,
    batch_size: u32,
    per_second: Option<u32>,
    limit: Option<u64>,
    dry_run: bool,
    progress: Option<Box<dyn Fn(u64) + Send + Sync>>,
}

/// What is done to each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Replay,
    Discard,
}

impl Verb {
    fn doing(self) -> &'static str {
        match self {
            Self::Replay => "replaying",
            Self::Discard => "discarding",
        }
    }
}

impl Operation {
    pub(super) fn new(dead: DeadEvents, verb: Verb, filter: DeadFilter) -> Self {
        let (batch_size, per_second, limit) = (100, None, None);
        Self { dead, verb, filter, batch_size, per_second, limit, dry_run: false, progress: None }
    }

    /// How many events are changed at once. Defaults to 100.
    pub fn batch_size(mut self, events: u32) -> Self {
        self.batch_size = events;
        self
    }

    /// At most so many events per second, so that what made them fail is not overrun. Defaults to no limit.
    pub fn per_second(mut self, events: u32) -> Self {
        self.per_second = Some(events);
        self
    }

    /// No more than so many, the oldest. Defaults to all that match.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = Some(events);
        self
    }

    /// Only counts what would be changed.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Calls `progress` after each batch with the number changed so far.
    pub fn on_progress(mut self, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Changes as many as are dead now, the oldest first: neither one that dies again on the way nor one that
    /// dies meanwhile keeps it going. Where more than 100,000 are dead they are not counted first: it goes on up to the
    /// one that was created last. Tells how many it has changed; after an error [`Stopped`] tells how many it had been by
    /// then.
    pub async fn run(self) -> Result<u64, Stopped> {
        let mut changed = 0;
        let ended = self.run_counting(&mut changed).await;
        if !self.dry_run {
            let Self { dead, verb, filter, .. } = &self;
            let (doing, by) = (verb.doing(), &*dead.operator);
            match &ended {
                Ok(()) => tracing::info!(target: AUDIT, by, %filter, changed, "ended {doing} dead events"),
                Err(error) => {
                    tracing::warn!(target: AUDIT, by, %filter, changed, %error, "stopped {doing} dead events");
                }
            }
        }
        ended.map_err(|source| Stopped { changed, doing: self.verb.doing(), source })?;
        Ok(changed)
    }

    async fn run_counting(&self, changed: &mut u64) -> Result<(), Error> {
        let limit = self.limit.unwrap_or(u64::MAX);
        if self.dry_run {
            *changed = logged(self.dead.store.count_dead(&self.filter).await)?.min(limit);
            return Ok(());
        }
        let (mut left, walked) = self.extent().await?;
        left = left.min(limit);
        // Before the first change: whoever kills it half-way leaves this line at least.
        let (by, filter, doing) = (&*self.dead.operator, &self.filter, self.verb.doing());
        let dead = (left < u64::MAX).then_some(left);
        tracing::info!(target: AUDIT, by, %filter, dead, "begins {doing} dead events");
        let mut after: Option<After> = None;
        while left > 0 {
            let batch_size = self.batch().min(u32::try_from(left).unwrap_or(u32::MAX));
            let batch = logged(self.dead.store.query_dead(&walked, after.as_ref(), batch_size).await)?;
            let ids: Vec<_> = batch.iter().map(|event| event.id.clone()).collect();
            // The order of creation is walked once, so an event that dies again lies behind.
            after = batch.last().map(DeadEvent::place);
            if ids.is_empty() {
                break;
            }
            *changed += self.change(&ids).await?;
            if let Some(progress) = &self.progress {
                progress(*changed);
            }
            left -= u64::from(batch_size);
            if ids.len() < batch_size as usize {
                break; // that was the last, or somebody else was faster
            }
            if left > 0 {
                self.rest(batch_size).await;
            }
        }
        Ok(())
    }

    /// How many are changed at most, and which are walked over: those that are dead now, as far as they can be counted
    /// without holding up the first change; else all up to the one that was created last.
    async fn extent(&self) -> Result<(u64, DeadFilter), Error> {
        let Self { dead: DeadEvents { store, .. }, filter, .. } = self;
        let dead = logged(store.count_dead_up_to(filter, COUNTED).await)?;
        if !dead.capped {
            return Ok((dead.events, filter.clone()));
        }
        let mut walked = filter.clone();
        if let Some(newest) = logged(store.newest_dead().await)? {
            // Moments are kept to the microsecond.
            let behind = newest + TimeDelta::microseconds(1);
            walked.created_before = Some(walked.created_before.map_or(behind, |before| before.min(behind)));
        }
        Ok((u64::MAX, walked))
    }

    /// How many at once: never more than may be changed in a second.
    fn batch(&self) -> u32 {
        self.batch_size.min(self.per_second.unwrap_or(u32::MAX)).max(1)
    }

    async fn change(&self, ids: &[String]) -> Result<u64, Error> {
        let Self { dead, filter, .. } = self;
        match self.verb {
            Verb::Replay => {
                let changed = logged(dead.store.replay_dead(At::Database, ids).await)?;
                dead.note_replayed(changed).await;
                Ok(changed)
            }
            Verb::Discard => {
                let changed = logged(dead.store.discard_dead(filter, ids).await)?;
                dead.note_discarded(ids, changed);
                Ok(changed)
            }
        }
    }

    /// Waits as long as so many may take.
    async fn rest(&self, events: u32) {
        if let Some(per_second) = self.per_second {
            tokio::time::sleep(Duration::from_secs(1) * events / per_second.max(1)).await;
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("verb", &self.verb)
            .field("filter", &self.filter)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// An operation that a database error stopped.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {doing} {changed} events: {source}")]
pub struct Stopped {
    /// How many events had been changed by then.
    pub changed: u64,
    doing: &'static str,
    /// What stopped it.
    pub source: Error,
}
