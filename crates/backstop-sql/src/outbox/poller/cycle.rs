//! One look at the table: read or claim what is due, hand it on, bury what cannot be decoded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::{Clock, Event, SystemClock, Timestamp, telemetry};

use super::passing::Pairs;
use super::sweep::{Next, Seen, Sweep};
use super::unreadable::Unburied;
use super::{Looking, PollHandler};
use crate::Error;
use crate::outbox::claims::Locking;
use crate::outbox::feed::{Feed, Offer, Queued};
use crate::outbox::in_flight::InFlight;
use crate::outbox::lease::Leases;
use crate::store::{At, Claim, Due, Order, Pair, Place, Row, Store, Unreadable};
use crate::wake_up::WakeOthers;

/// At most this many rows that are held are read again, however much is in flight: memory must not grow with it.
const MOST_READ_AGAIN: u32 = 5_000;

/// This many rows that this node claimed without knowing are taken up at once.
const TAKEN_UP: u32 = 500;

/// One look at the table.
pub(super) struct Cycle {
    pub(super) store: Arc<dyn Store>,
    pub(super) handler: Arc<dyn PollHandler>,
    /// Who has what in hand here.
    pub(super) leases: Leases,
    /// The way to a dispatcher, where the poller feeds one.
    pub(super) feed: Option<Feed>,
    /// How this node stood when rows were last read.
    epoch: u64,
    /// Asked for when rows were given back that another node may have room for.
    wake_others: WakeOthers,
    metrics: Arc<telemetry::Outbox>,
    /// Whether somebody tells the lag who sees all rows, also those that are claimed.
    lag_is_told: Arc<AtomicBool>,
    pub(super) looking: Looking,
    sweep: Sweep,
    /// How many rows the last look found, and where it ended.
    found: (usize, Option<Place>),
    /// When the table was last asked for the next due row, by its database's clock.
    asked_at: Option<Timestamp>,
    /// Whether a claim may have been taken of which no answer came.
    lost_answer: bool,
    unburied: Unburied,
    pub(super) pairs: Pairs,
}

/// What was read, and how far.
pub(super) struct Read {
    pub(super) rows: Vec<Row>,
    /// Whether there may be more.
    pub(super) full: bool,
    /// Where to go on, if that is known.
    pub(super) last: Option<Place>,
}

impl Cycle {
    pub(super) fn new(
        store: Arc<dyn Store>,
        handler: Arc<dyn PollHandler>,
        metrics: Arc<telemetry::Outbox>,
        looking: Looking,
    ) -> Self {
        let sweep = Sweep::new(looking.config.batch_size, false);
        Self {
            unburied: Unburied::new(store.clone()),
            store,
            handler,
            leases: Leases::new(Arc::new(InFlight::new()), None),
            feed: None,
            epoch: 0,
            wake_others: WakeOthers::default(),
            metrics,
            lag_is_told: Arc::default(),
            looking,
            sweep,
            found: (0, None),
            asked_at: None,
            lost_answer: false,
            pairs: Pairs::default(),
        }
    }

    /// The cycle of a poller that feeds a dispatcher.
    pub(super) fn feeding(self, feed: &Feed, wake_others: WakeOthers, lag_is_told: Arc<AtomicBool>) -> Self {
        let sweep = Sweep::new(self.looking.config.batch_size, self.looking.order == Order::Due);
        let (leases, feed) = (feed.leases().clone(), Some(feed.clone()));
        Self { leases, feed, wake_others, lag_is_told, sweep, ..self }
    }

    /// Polls once, and returns what follows and whether there was anything new.
    pub(super) async fn run(&mut self) -> Result<(Next, bool), Error> {
        if self.leases.give_back(&*self.store).await {
            self.wake_others.ask();
        }
        let epoch = self.leases.ledger().epoch();
        if !self.may_begin(epoch) {
            return Ok((Next::Rest, false));
        }
        let wanted = self.sweep.batch(self.handler.available_capacity());
        if wanted == 0 {
            return Ok((Next::WhenThereIsRoom, true));
        }
        let leases = self.leases.clone();
        let _look = leases.look();
        let in_flight_before = self.handler.in_flight();
        if !self.take_up().await? {
            return Ok((Next::WhenThereIsRoom, self.handler.in_flight() > in_flight_before));
        }
        self.probe().await?;
        if self.holds_all() {
            self.sweep.start_over();
            return Ok((Next::Rest, self.handler.in_flight() > in_flight_before));
        }
        let after = self.sweep.begin(SystemClock.ticks());
        let in_flight_before = self.handler.in_flight();
        let limit = self.limit(wanted, after.as_ref(), in_flight_before);
        let Read { rows, full, last } = self.read_open(limit, after.as_ref()).await?;
        if !leases.ledger().is_up_since(epoch) {
            // Another node has had the table since they were read.
            self.sweep.start_over();
            return Ok((Next::Rest, false));
        }
        if after.is_none() && !self.lag_is_told.load(Ordering::Acquire) {
            self.show_lag(&rows);
        }
        let found = (rows.len(), last.clone());
        let found_before = std::mem::replace(&mut self.found, found);
        let all_taken = self.hand_over(rows).await?;
        if after.is_none() && !full {
            self.bury_what_never_comes().await?;
        }
        // A handler that does not say what it holds is judged by whether it is shown other rows than before.
        let in_flight = self.handler.in_flight();
        let new = in_flight > in_flight_before || (in_flight == 0 && self.found != found_before);
        let next = self.sweep.seen(Seen { full, new, all_taken, last }, SystemClock.ticks());
        Ok((next, new))
    }

    /// Whether rows may be taken: not while another node has the table, nor while results cannot be written. After
    /// this node has stood down and up again, if the order counts, the events that it held before must be out of its
    /// hands first: they would come after those that are read now.
    fn may_begin(&mut self, epoch: u64) -> bool {
        let Some(feed) = &self.feed else { return true };
        if feed.leases().ledger().is_down() || feed.gate().is_shut() {
            return false;
        }
        let is_first = self.epoch != epoch;
        if is_first && self.looking.order == Order::Created && self.handler.in_flight() > 0 {
            return false;
        }
        self.epoch = epoch;
        true
    }

    /// Begins the next look with the first due row, wherever the last one ended.
    pub(super) fn start_over(&mut self) {
        self.sweep.start_over();
    }

    /// How long it is until a row that is scheduled ahead becomes due. One that has become due since the table was last
    /// asked counts: it may have been after the last look.
    pub(super) async fn next_due(&mut self) -> Option<Duration> {
        // The next look reports a database that does not answer.
        let answer = self.store.next_due(At::Database, self.asked_at).await.unwrap_or_default()?;
        let before = self.asked_at.replace(answer.asked_at);
        match before {
            // The clock was set back, and with it what is due.
            Some(before) if before > answer.asked_at => Some(Duration::ZERO),
            _ => answer.after,
        }
    }

    /// How many rows to read. Without claims, a look from the beginning also reads those that are held, and those that
    /// cannot be buried, which must not hide the others.
    fn limit(&self, wanted: u32, after: Option<&Place>, held: usize) -> u32 {
        match (&self.looking.locking, after) {
            (None, None) => {
                let held = held + self.unburied.len();
                wanted.saturating_add(u32::try_from(held).unwrap_or(u32::MAX).min(MOST_READ_AGAIN))
            }
            _ => wanted,
        }
    }

    pub(super) async fn read(
        &mut self,
        limit: u32,
        after: Option<&Place>,
        pair: Option<&Pair>,
    ) -> Result<Vec<Row>, Error> {
        let (skip_recent, order) = (self.looking.config.skip_recent, self.looking.order);
        let due = Due { at: At::Database, skip_recent, limit, order, after, pair };
        match &self.looking.locking {
            Some(Locking { owner, timeout }) => {
                let claimed = self.store.claim(owner, *timeout, due).await;
                self.lost_answer |= claimed.is_err();
                claimed
            }
            None => self.store.poll(due).await,
        }
    }

    /// Takes up rows that this node claimed without learning of it: the answer to a claim was lost. Others would wait for
    /// the whole time-out. Returns whether there was room for all of them; the rest is taken up later.
    async fn take_up(&mut self) -> Result<bool, Error> {
        let (Some(feed), Some(Locking { owner, .. }), true) =
            (&self.feed, &self.looking.locking, self.lost_answer)
        else {
            return Ok(true);
        };
        // Those that are in flight have the same owner, and must not hide the others.
        let held = u32::try_from(self.leases.in_flight()).unwrap_or(u32::MAX).min(MOST_READ_AGAIN);
        let limit = TAKEN_UP + held;
        let rows = self.store.owned(owner, At::Database, limit).await?;
        let all = rows.len() < limit as usize;
        let claims: Vec<_> =
            rows.iter().filter_map(|row| Some((row.id.clone(), row.claim.clone()?))).collect();
        // Nobody knows how old they are.
        let renewed: HashSet<_> = self.store.renew(At::Database, &claims).await?.into_iter().collect();
        let (mut taken_up, mut unreadable, mut room) = (0, Vec::new(), true);
        for Row { id, attempts, claim, generation, key, event, due_at, .. } in rows {
            let event = match event {
                Ok(event) => event,
                Err(problem) => {
                    // One that still has the claim it was born with may be in flight from memory, however its row looks.
                    if claim.as_ref().is_some_and(|claim| claim.seq > 0) {
                        unreadable.push(Unreadable { id, key, claim, problem });
                    }
                    continue;
                }
            };
            if !room || !renewed.contains(&id) {
                continue;
            }
            let generation = Some(generation);
            let queued = Queued { claim, generation, due_at, ..Queued::cold(event, attempts) };
            match feed.offer_cold(queued) {
                Offer::Taken => taken_up += 1,
                Offer::Duplicate => {} // it knows of this one
                Offer::Refused => room = false,
            }
        }
        if taken_up > 0 {
            tracing::info!(taken_up, "took up rows that were claimed by a statement whose answer was lost");
        }
        let buried = self.unburied.bury(unreadable).await?;
        self.metrics.dispatch_dead.add(buried);
        self.lost_answer = !all || !room;
        Ok(room)
    }

    /// Hands rows over until one is refused; buries what cannot be decoded, and gives back what was claimed
    /// and not taken. Tells whether all were taken.
    pub(super) async fn hand_over(&mut self, rows: Vec<Row>) -> Result<bool, Error> {
        let (mut unreadable, mut refused) = (Vec::new(), Vec::new());
        let mut room = true;
        for Row { id, attempts, claim, generation, key, event, due_at, .. } in rows {
            match event {
                Err(problem) => unreadable.push(Unreadable { id, key, claim, problem }),
                Ok(event) => {
                    room =
                        room && self.handler.handle_row(event, attempts, claim.clone(), generation, due_at);
                    if let (false, Some(claim)) = (room, claim) {
                        refused.push((id, claim));
                    }
                }
            }
        }
        // Each is done even if the other fails.
        let released = self.give_back(refused).await;
        let buried = self.unburied.bury(unreadable).await;
        self.metrics.dispatch_dead.add(buried?);
        released?;
        Ok(room)
    }

    /// Buries rows whose moment is not a moment, so that they would never be due.
    async fn bury_what_never_comes(&mut self) -> Result<(), Error> {
        let rows = self.store.never_due(self.looking.config.batch_size).await?;
        let unreadable = rows.into_iter().filter_map(|row| {
            let problem = row.event.err()?;
            Some(Unreadable { id: row.id, key: row.key, claim: None, problem })
        });
        let buried = self.unburied.bury(unreadable.collect()).await?;
        self.metrics.dispatch_dead.add(buried);
        Ok(())
    }

    /// Gives back what was claimed and refused. If that fails, or somebody holds one of the rows, it is tried again with
    /// the next look: giving back twice changes nothing.
    pub(super) async fn give_back(&self, refused: Vec<(String, Claim)>) -> Result<(), Error> {
        if refused.is_empty() {
            return Ok(());
        }
        let released = self.store.release(&refused).await;
        if !matches!(released, Ok(rows) if rows >= refused.len() as u64) {
            for (id, claim) in refused {
                self.leases.ledger().disown(id, claim);
            }
        }
        released.map(drop)
    }

    /// How long the oldest due row has waited since it was created.
    fn show_lag(&self, rows: &[Row]) {
        let oldest = rows.iter().filter_map(|row| row.event.as_ref().ok()).map(Event::occurred_at).min();
        let waited = oldest.map(|created| (SystemClock.now() - created).num_milliseconds().max(0));
        self.metrics.lag_oldest_ms.set(waited.unwrap_or_default().unsigned_abs());
    }
}
