//! One look at the table: read or claim what is due, hand it on, bury what cannot be decoded.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, Event, SystemClock, telemetry};

use super::{Locking, PollHandler, Settings};
use crate::Error;
use crate::outbox::in_flight::LettingGo;
use crate::outbox::unheld::Unheld;
use crate::store::{At, Claim, Due, Row, Settle, Store};

/// At most so many rows that are held are read again, however much is in flight: memory must not grow with it.
const MOST_READ_AGAIN: u32 = 5_000;

/// What follows a look at the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More rows are likely to wait.
    Again,
    /// More rows may wait, and nobody has room for them.
    WhenThereIsRoom,
    /// Nothing is known to wait.
    Rest,
}

/// One look at the table.
pub(super) struct Cycle {
    store: Arc<dyn Store>,
    pub(super) handler: Arc<dyn PollHandler>,
    pub(super) unheld: Arc<Unheld>,
    letting_go: Option<Arc<LettingGo>>,
    metrics: Arc<telemetry::Outbox>,
    pub(super) settings: Settings,
    /// The ids that the last look found.
    found: Vec<String>,
}

impl Cycle {
    pub(super) fn new(
        store: Arc<dyn Store>,
        handler: Arc<dyn PollHandler>,
        metrics: Arc<telemetry::Outbox>,
        settings: Settings,
    ) -> Self {
        Self {
            store,
            handler,
            unheld: Arc::default(),
            letting_go: None,
            metrics,
            settings,
            found: Vec::new(),
        }
    }

    /// The cycle of a poller that feeds a dispatcher shares these with it.
    pub(super) fn feeding(self, unheld: Arc<Unheld>, letting_go: Arc<LettingGo>) -> Self {
        Self { unheld, letting_go: Some(letting_go), ..self }
    }

    /// Polls once and tells what follows.
    pub(super) async fn run(&mut self) -> Result<Next, Error> {
        self.unheld.release(&*self.store).await;
        let room = u32::try_from(self.handler.available_capacity()).unwrap_or(u32::MAX);
        let wanted = self.settings.batch_size.min(room);
        if wanted == 0 {
            return Ok(Next::WhenThereIsRoom);
        }
        let letting_go = self.letting_go.clone();
        let _look = letting_go.as_ref().map(|letting_go| letting_go.look());
        let held_before = self.handler.held();
        let limit = self.limit(wanted, held_before);
        let rows = self.read(limit).await?;
        self.show_lag(&rows);
        let found = rows.iter().map(|row| row.id.clone()).collect();
        let found_before = std::mem::replace(&mut self.found, found);
        let all_taken = self.hand_over(rows).await?;
        // The same rows as before, and none of them taken: nothing moves, and looking again would spin.
        let moved = self.handler.held() > held_before || self.found != found_before;
        Ok(if !all_taken {
            Next::WhenThereIsRoom
        } else if self.found.len() >= limit as usize && moved {
            Next::Again
        } else {
            Next::Rest
        })
    }

    /// How long to rest: the interval, or less if a row is scheduled before its end.
    pub(super) async fn pause(&self) -> Duration {
        let interval = self.settings.interval;
        match self.store.next_due(At::Database).await {
            Ok(Some(ahead)) => ahead.clamp(Duration::from_millis(1), interval),
            // A database that does not answer is told of by the next look.
            Ok(None) | Err(_) => interval,
        }
    }

    /// How many rows to read. Without claims those that are held are read as well, and must not hide the others.
    fn limit(&self, wanted: u32, held: usize) -> u32 {
        match self.settings.locking {
            Some(_) => wanted,
            None => wanted.saturating_add(u32::try_from(held).unwrap_or(u32::MAX).min(MOST_READ_AGAIN)),
        }
    }

    async fn read(&self, limit: u32) -> Result<Vec<Row>, Error> {
        let Settings { skip_recent, order, .. } = self.settings;
        let due = Due { at: At::Database, skip_recent, limit, order };
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
        for Row { id, attempts, claim, event } in rows {
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
