//! One look at the table: read or claim what is due, hand it on, bury what cannot be decoded.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, Event, SystemClock, telemetry};

use super::sweep::{Next, Seen, Sweep};
use super::{Locking, PollHandler, Settings};
use crate::Error;
use crate::outbox::bell::Bell;
use crate::outbox::feed::Feed;
use crate::outbox::in_flight::LettingGo;
use crate::outbox::standing::Standing;
use crate::outbox::unheld::Unheld;
use crate::store::{At, Claim, Due, Order, Place, Row, Settle, Store};

/// At most so many rows that are held are read again, however much is in flight: memory must not grow with it.
const MOST_READ_AGAIN: u32 = 5_000;

/// One look at the table.
pub(super) struct Cycle {
    store: Arc<dyn Store>,
    pub(super) handler: Arc<dyn PollHandler>,
    pub(super) unheld: Arc<Unheld>,
    letting_go: Option<Arc<LettingGo>>,
    standing: Arc<Standing>,
    /// How this node stood when rows were last read.
    turn: u64,
    /// Rung when rows were given back that another node may have room for.
    bell: Bell,
    metrics: Arc<telemetry::Outbox>,
    pub(super) settings: Settings,
    sweep: Sweep,
    /// How many rows the last look found, and where it ended.
    found: (usize, Option<Place>),
}

impl Cycle {
    pub(super) fn new(
        store: Arc<dyn Store>,
        handler: Arc<dyn PollHandler>,
        metrics: Arc<telemetry::Outbox>,
        settings: Settings,
    ) -> Self {
        let sweep = Sweep::new(settings.batch_size, false);
        Self {
            store,
            handler,
            unheld: Arc::default(),
            letting_go: None,
            standing: Arc::default(),
            turn: 0,
            bell: Bell::default(),
            metrics,
            settings,
            sweep,
            found: (0, None),
        }
    }

    /// The cycle of a poller that feeds a dispatcher shares these with it.
    pub(super) fn feeding(self, feed: &Feed, bell: Bell) -> Self {
        let sweep = Sweep::new(self.settings.batch_size, self.settings.order == Order::Due);
        let (unheld, letting_go) = (feed.unheld().clone(), Some(feed.letting_go().clone()));
        Self { unheld, letting_go, standing: feed.standing().clone(), sweep, bell, ..self }
    }

    /// Polls once, tells what follows, and whether there was anything new.
    pub(super) async fn run(&mut self) -> Result<(Next, bool), Error> {
        if self.unheld.release(&*self.store).await {
            self.bell.ring();
        }
        let turn = self.standing.turn();
        if self.standing.is_down() || !self.may_begin(turn) {
            return Ok((Next::Rest, false));
        }
        let wanted = self.sweep.batch(self.handler.available_capacity());
        if wanted == 0 {
            return Ok((Next::WhenThereIsRoom, true));
        }
        let letting_go = self.letting_go.clone();
        let _look = letting_go.as_ref().map(|letting_go| letting_go.look());
        let after = self.sweep.begin(SystemClock.ticks());
        let held_before = self.handler.held();
        let limit = self.limit(wanted, after.as_ref(), held_before);
        let rows = self.read(limit, after.as_ref()).await?;
        if !self.standing.is_up_since(turn) {
            // Another node has had the table since they were read.
            self.sweep.start_over();
            return Ok((Next::Rest, false));
        }
        if after.is_none() {
            self.show_lag(&rows);
        }
        let full = rows.len() >= limit as usize;
        let last = rows.iter().filter_map(|row| Some((row.due_at?, row.created_at?, &row.id))).max();
        let last = last.map(|(due_at, created_at, id)| Place { due_at, created_at, id: id.clone() });
        let found = (rows.len(), last.clone());
        let found_before = std::mem::replace(&mut self.found, found);
        let all_taken = self.hand_over(rows).await?;
        // Who does not tell what it holds is judged by whether it is shown something else than before.
        let held = self.handler.held();
        let new = held > held_before || (held == 0 && self.found != found_before);
        let next = self.sweep.seen(Seen { full, new, all_taken, last }, SystemClock.ticks());
        Ok((next, new))
    }

    /// Whether rows may be taken after this node has stood down and up again. Where the order counts, what it held before
    /// must be out of its hands first: it would come behind what is read now.
    fn may_begin(&mut self, turn: u64) -> bool {
        let is_first = self.turn != turn;
        if is_first && self.settings.order == Order::Created && self.handler.held() > 0 {
            return false;
        }
        self.turn = turn;
        true
    }

    /// Begins the next look with the first due row, wherever the last one ended.
    pub(super) fn start_over(&mut self) {
        self.sweep.start_over();
    }

    /// How long it is until a row that is scheduled ahead becomes due.
    pub(super) async fn next_due(&self) -> Option<Duration> {
        // A database that does not answer is told of by the next look.
        self.store.next_due(At::Database).await.unwrap_or_default()
    }

    /// How many rows to read. Without claims, a look from the beginning also reads those that are held, which must
    /// not hide the others.
    fn limit(&self, wanted: u32, after: Option<&Place>, held: usize) -> u32 {
        match (&self.settings.locking, after) {
            (None, None) => {
                wanted.saturating_add(u32::try_from(held).unwrap_or(u32::MAX).min(MOST_READ_AGAIN))
            }
            _ => wanted,
        }
    }

    async fn read(&self, limit: u32, after: Option<&Place>) -> Result<Vec<Row>, Error> {
        let Settings { skip_recent, order, .. } = self.settings;
        let due = Due { at: At::Database, skip_recent, limit, order, after };
        match &self.settings.locking {
            Some(Locking { owner, timeout }) => self.store.claim(owner, *timeout, due).await,
            None => self.store.poll(due).await,
        }
    }

    /// Hands rows over until one is refused; buries what cannot be decoded, and gives back what was claimed
    /// and not taken. Tells whether all were taken.
    async fn hand_over(&self, rows: Vec<Row>) -> Result<bool, Error> {
        let (mut unreadable, mut refused) = (Vec::new(), Vec::new());
        let mut room = true;
        for Row { id, attempts, claim, event, .. } in rows {
            match event {
                Err(problem) => unreadable.push(bury(id, claim, &problem)),
                Ok(event) => {
                    room = room && self.handler.handle(event, attempts, claim.clone());
                    if let (false, Some(claim)) = (room, claim) {
                        refused.push((id, claim));
                    }
                }
            }
        }
        // Each is done whatever becomes of the other.
        let released = self.give_back(refused).await;
        let buried =
            if unreadable.is_empty() { Ok(0) } else { self.store.settle(At::Database, &unreadable).await };
        self.metrics.dispatch_dead.add(buried?);
        released?;
        Ok(room)
    }

    /// Gives back what was claimed and refused; if that fails, it is tried again with the next look.
    async fn give_back(&self, refused: Vec<(String, Claim)>) -> Result<(), Error> {
        if refused.is_empty() {
            return Ok(());
        }
        let released = self.store.release(&refused).await;
        if released.is_err() {
            for (id, claim) in refused {
                self.unheld.add_for_later(id, claim);
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

fn bury(id: String, claim: Option<Claim>, problem: &str) -> Settle {
    tracing::error!(event_id = id, problem, "a row cannot be decoded: the event is dead");
    Settle {
        id,
        claim,
        attempts: None,
        settlement: Settlement::Dead { error: format!("the row cannot be decoded: {problem}") },
    }
}
