//! Leases on events: a part of the process that works on an event has one; when it drops the lease, the event is free
//! for others.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_core::clock::Tick;
use backstop_core::{Clock, Event, SystemClock};
use tokio::sync::Notify;

use super::claims::Terms;
use super::feed::Source;
use super::in_flight::{Hold, Tracker};
use super::ledger::{Claimed, Committed, Ledger, Readiness, Writing};
use crate::Error;
use crate::store::{Claim, Store};

/// This many claims are given back in one statement: after a burst that found the hot queue full, the poller must not
/// be held up by a statement for each claim.
const TOGETHER: usize = 500;

/// The ledger of an outbox, shared by all its parts.
#[derive(Clone)]
pub(super) struct Leases(Arc<Shared>);

struct Shared {
    /// Asked before an id is taken, and told when it is released.
    tracker: Arc<dyn Tracker>,
    ledger: Mutex<Ledger>,
    /// Told when a row was scheduled ahead, or is still due and in no hand.
    scheduled: Notify,
    /// Told when there is a claim to be given back at once.
    disowned: Notify,
    /// Held while claims are given back.
    giving_back: tokio::sync::Mutex<()>,
}

impl Leases {
    pub(super) fn new(tracker: Arc<dyn Tracker>, terms: Option<Terms>) -> Self {
        Self(Arc::new(Shared {
            tracker,
            ledger: Mutex::new(Ledger::new(terms)),
            scheduled: Notify::new(),
            disowned: Notify::new(),
            giving_back: tokio::sync::Mutex::default(),
        }))
    }

    /// A lease on an event that was committed or read, unless it is in a hand already, under the claim that its row was
    /// written or taken with.
    pub(super) fn take(&self, id: &str, source: Source, claim: Option<&Claim>) -> Option<Lease> {
        let hold = self.0.tracker.try_acquire(id)?;
        let epoch = self.ledger().take(hold.clone(), SystemClock.ticks());
        Some(self.lease(hold, epoch, source, claim))
    }

    /// Takes the ids of events that were inserted from `since` on, before their transaction commits: from then on the
    /// poller can see their rows, and must leave them to the hot path; but for those that wait in the table.
    pub(super) async fn write(&self, events: &[Event], except: &HashSet<String>, since: Tick) -> Writing {
        // One of the same id may be about to be given back; this one has the same claim.
        let own_again = |event: &&Event| self.ledger().own_again(event.id());
        if events.iter().filter(own_again).count() > 0 {
            drop(self.0.giving_back.lock().await);
        }
        let writing = self.ledger().begin_writing();
        for event in events {
            if event.is_delayed() || except.contains(event.id()) {
                let hold = self.ledger().write_delayed(event.id());
                self.release(hold);
            } else if !self.ledger().write(event.id(), writing, since)
                && let Some(hold) = self.0.tracker.try_acquire(event.id())
            {
                self.ledger().take_written(hold, since);
            }
        }
        writing
    }

    /// A lease on an event whose transaction has committed, unless it is in a hand already, or another event was written
    /// under its id since.
    pub(super) fn commit(&self, id: &str, writing: Writing, claim: Option<&Claim>) -> Option<Lease> {
        let committed = self.ledger().commit(id, writing);
        match committed {
            Committed::Held(hold, epoch) => Some(self.lease(hold, epoch, Source::Hot, claim)),
            Committed::InAnotherHand => self.take(id, Source::Hot, claim),
            Committed::Stale => None,
        }
    }

    /// Nobody here delivers an event that was written. False if another was written under its id since.
    pub(super) fn give_up(&self, id: &str, writing: Writing) -> bool {
        let (was_last, hold) = self.ledger().give_up(id, writing);
        self.release(hold);
        was_last
    }

    /// A look at the table, from before rows are read until they are handed on. One at a time.
    pub(super) fn look(&self) -> Look<'_> {
        self.ledger().begin_look(SystemClock.ticks());
        Look(self)
    }

    /// How many events are in hand.
    pub(super) fn in_flight(&self) -> usize {
        self.0.tracker.held()
    }

    /// Whether an event is in hand.
    pub(super) fn holds(&self, id: &str) -> bool {
        self.ledger().holds(id)
    }

    /// A row was scheduled ahead, or is still due and in no hand.
    pub(super) fn scheduled(&self) -> &Notify {
        &self.0.scheduled
    }

    /// The ledger, for one question or one entry.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self, hold: Hold, epoch: u64, source: Source, claim: Option<&Claim>) -> Lease {
        if let Some(claim) = claim {
            self.ledger().claim(&hold, source, claim);
        }
        Lease { leases: self.clone(), hold: Some(hold), epoch }
    }

    /// A tracker of the user's that panics must not take more than this event with it.
    fn release(&self, hold: Option<Hold>) {
        let Some(hold) = hold else { return };
        if catch_unwind(AssertUnwindSafe(|| self.0.tracker.release(&hold))).is_err() {
            tracing::error!(event_id = hold.id, "the tracker panicked; the event may stay in flight");
        }
    }
}

/// Claims that nobody here needs any more.
impl Leases {
    /// Has a claim given back at once: the poller is woken. For a row that it would take again right away that would keep
    /// it running in circles; such a claim is only entered in the ledger.
    pub(super) fn disown(&self, id: String, claim: Claim) {
        self.ledger().disown(id, claim);
        self.0.disowned.notify_one();
    }

    /// Waits until there is a claim to be given back.
    pub(super) async fn disowned(&self) {
        self.0.disowned.notified().await;
    }

    /// Gives claims back, if the database is available; those that it refuses, and those whose rows are not there
    /// yet, are tried again the next time. Returns whether any was given back.
    pub(super) async fn give_back(&self, store: &dyn Store) -> bool {
        let _giving_back = self.0.giving_back.lock().await;
        let all = self.ledger().to_give_back();
        let mut any = false;
        for part in all.chunks(TOGETHER) {
            match self.give_back_together(store, part).await {
                Ok(given_back) => any |= given_back,
                Err(error) if error.is_outage() => {
                    tracing::warn!(%error, claims = all.len(), "claims cannot be given back yet");
                    self.ledger().tried_to_give_back(part);
                    break;
                }
                // One that is refused must not keep the others.
                Err(_) => any |= self.give_back_each(store, part).await,
            }
        }
        any
    }

    /// Gives claims back in one statement. If some rows are not there yet all of them are kept, since giving back twice
    /// changes nothing.
    async fn give_back_together(&self, store: &dyn Store, rows: &[Claimed]) -> Result<bool, Error> {
        let released = store.release(rows).await?;
        if released < rows.len() as u64 {
            self.ledger().tried_to_give_back(rows);
        } else {
            self.ledger().given_back(rows);
        }
        Ok(released > 0)
    }

    async fn give_back_each(&self, store: &dyn Store, rows: &[Claimed]) -> bool {
        let mut any = false;
        for row in rows.chunks(1) {
            match self.give_back_together(store, row).await {
                Ok(given_back) => any |= given_back,
                Err(error) => {
                    tracing::warn!(%error, event_id = row[0].0, "a claim cannot be given back yet");
                    self.ledger().tried_to_give_back(row);
                }
            }
        }
        any
    }
}

/// Ends when it is dropped.
pub(super) struct Look<'a>(&'a Leases);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let later = self.0.ledger().end_look();
        for hold in later {
            self.0.release(Some(hold));
        }
    }
}

/// The right to work on one event. If it is dropped, the event is abandoned: its row is still due, for the next look
/// of any node.
pub(super) struct Lease {
    leases: Leases,
    /// None once it has ended.
    hold: Option<Hold>,
    /// That of this node when the event was taken.
    epoch: u64,
}

impl Lease {
    /// Whether no other node has had the table since the event was taken.
    pub(super) fn stands(&self) -> bool {
        self.leases.ledger().is_up_since(self.epoch)
    }

    /// Whether the event may be handled now.
    pub(super) fn readiness(&self) -> Readiness {
        let now = SystemClock.ticks();
        let readiness = |hold| self.leases.ledger().readiness(hold, self.epoch, now);
        self.hold.as_ref().map_or(Readiness::Gone, readiness)
    }

    /// Whether the claim has run out, so that another node may have the event by now.
    pub(super) fn has_run_out(&self) -> bool {
        let now = SystemClock.ticks();
        self.hold.as_ref().is_some_and(|hold| self.leases.ledger().has_run_out(hold, now))
    }

    /// The result of the event is on its way to the table, which ends its claim.
    pub(super) fn settling(&self) {
        if let Some(hold) = &self.hold {
            self.leases.ledger().settling(hold);
        }
    }

    /// The result of the event is written.
    pub(super) fn end(mut self) {
        if let Some(hold) = self.hold.take() {
            let hold = self.leases.ledger().let_go(hold);
            self.leases.release(hold);
        }
    }

    /// There is no room for the event. The caller that took its row takes care of its claim.
    pub(super) fn refused(mut self) {
        if let Some(hold) = self.hold.take() {
            self.leases.ledger().refuse(&hold);
            self.leases.release(Some(hold));
        }
    }

    /// Leaves the event, which is still due, to the next look of any node.
    pub(super) fn abandon(self) {
        drop(self);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let hold = self.leases.ledger().abandon(hold);
            self.leases.release(hold);
            self.leases.scheduled().notify_one();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.hold).finish()
    }
}
