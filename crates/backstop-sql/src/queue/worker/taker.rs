//! The loop that takes events from the table, as many as the handlers get through soon.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::rest::Rest;
use backstop_core::{Clock, Shutdown, SystemClock, telemetry};
use tokio::sync::Notify;

use super::buffer::Buffer;
use super::in_hand::InHand;
use super::pace::Pace;
use super::{Lane, Taken, Woken, WorkerConfig};
use crate::Error;
use crate::database::At;
use crate::queue::claim::Row;
use crate::queue::table::{Tables, Which};

/// Abandoned events are looked for at most this often, and at least as often as the loop looks for anything.
const LOOK_FOR_ABANDONED: Duration = Duration::from_secs(1);

/// While there is much to do, those whose moment has come are looked for this often.
const LOOK_FOR_DUE: Duration = Duration::from_millis(50);

/// When to look again for what is rarely there.
struct Times {
    abandoned: Tick,
    due: Tick,
}

pub(super) struct Taker {
    pub(super) tables: Tables,
    pub(super) buffer: Arc<Buffer>,
    pub(super) in_hand: InHand,
    pub(super) lane: Lane,
    pub(super) metrics: Arc<telemetry::Queue>,
    pub(super) settings: WorkerConfig,
    pub(super) timeout: Duration,
    pub(super) woken: Woken,
    /// Told when an event of ours waits for a moment.
    pub(super) scheduled: Arc<Notify>,
    /// Why nothing can be taken, for operators.
    pub(super) failing: Arc<Mutex<Option<String>>>,
}

/// What a look found.
struct Look {
    /// Whether it found anything.
    found: bool,
    /// Whether there may be more at once.
    more: bool,
    /// How long it is until the next event becomes due.
    next_due: Option<Duration>,
}

impl Taker {
    pub(super) async fn run(self, shutdown: Shutdown) {
        let mut pace = Pace::new(self.settings.concurrency, self.settings.batch_size);
        let mut rest = Rest::new(self.settings.idle_wait);
        let mut filled_at = SystemClock.ticks();
        let mut times = Times { abandoned: filled_at, due: filled_at };
        while !shutdown.has_begun() {
            let target = pace.target();
            if self.buffer.len() > target / 2 {
                let _ = shutdown.interrupts(self.buffer.shrinks()).await;
                continue;
            }
            let now = SystemClock.ticks();
            let handled = self.buffer.take_out_count();
            if handled > 0 {
                pace.handled(handled, now.since(filled_at));
            }
            let looked = shutdown.interrupts(self.look(pace.target(), &mut times)).await;
            filled_at = SystemClock.ticks();
            let Some(looked) = looked else { break };
            match looked {
                Ok(Look { found, more, next_due }) => {
                    self.went_well();
                    rest.after_a_look(found);
                    if !more {
                        let hears = self.woken.hears.load(Ordering::Acquire);
                        let _ = shutdown.interrupts(self.wait(rest.length(next_due, hears))).await;
                    }
                }
                Err(error) => {
                    self.failed(&error);
                    rest.failed();
                    let pause = rest.after_failure().unwrap_or(LOOK_FOR_ABANDONED);
                    let _ = shutdown.interrupts(tokio::time::sleep(pause)).await;
                }
            }
        }
    }

    async fn wait(&self, rest: Duration) {
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.woken.by_others.notified() => {}
            () = self.scheduled.notified() => {}
            () = self.lane.freed() => {}
        }
    }

    fn failed(&self, error: &Error) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.replace(error.to_string()).is_none() {
            tracing::error!(%error, "cannot take events from the queue; trying again until it works");
        }
    }

    fn went_well(&self) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.take().is_some() {
            tracing::info!("events are taken from the queue again");
        }
    }

    /// Takes what can be taken: one abandoned event, those whose moment has come, and those that wait for nothing.
    async fn look(&self, target: usize, times: &mut Times) -> Result<Look, Error> {
        let mut found = self.take_over(&mut times.abandoned).await?;
        let mut more = false;
        let now = SystemClock.ticks();
        if times.due <= now {
            let wanted = self.wanted(target);
            let due = self.take(Which::Due, wanted).await?;
            more |= due == wanted;
            found |= due > 0;
            times.due = if more { now } else { now + LOOK_FOR_DUE };
        }
        let wanted = self.wanted(target);
        if wanted > 0 {
            let ready = self.take(Which::Ready { after: None }, wanted).await?;
            more |= ready == wanted;
            found |= ready > 0;
        } else {
            more = true;
        }
        let next_due = if more { None } else { self.tables.next_due(At::Database).await? };
        if next_due.is_some() {
            times.due = now; // by the database's clock, so it is asked when this rest is over
        }
        Ok(Look { found, more, next_due })
    }

    fn wanted(&self, target: usize) -> u32 {
        let room = u32::try_from(self.buffer.room(target)).unwrap_or(u32::MAX);
        room.min(self.settings.batch_size)
    }

    /// Takes over one abandoned event, if none is in hand.
    async fn take_over(&self, look_at: &mut Tick) -> Result<bool, Error> {
        let now = SystemClock.ticks();
        if now < *look_at {
            return Ok(false);
        }
        let Some(pass) = self.lane.enter() else { return Ok(false) };
        let since = SystemClock.ticks();
        let rows = self.tables.claim(Which::Abandoned(self.timeout), At::Database, 1).await?;
        let Some(row) = rows.into_iter().next() else {
            *look_at = now + LOOK_FOR_ABANDONED.min(self.timeout / 2);
            return Ok(false);
        };
        tracing::warn!(
            id = row.claim.id,
            attempt = row.claim.attempt,
            "an abandoned event is taken over: its worker died, or stood still for too long"
        );
        self.metrics.taken_over.increment();
        self.hand_over(vec![row], since, Some(pass));
        Ok(true)
    }

    async fn take(&self, which: Which<'_>, wanted: u32) -> Result<u32, Error> {
        let since = SystemClock.ticks();
        let rows = self.tables.claim(which, At::Database, wanted).await?;
        let taken = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        self.hand_over(rows, since, None);
        Ok(taken)
    }

    fn hand_over(&self, rows: Vec<Row>, since: Tick, mut lane: Option<super::LanePass>) {
        self.metrics.taken.add(rows.len() as u64);
        self.in_hand.add(rows.iter().map(|row| row.claim), since);
        let taken = rows.into_iter().map(|Row { claim, created_at, has_type, event }| Taken {
            claim,
            created_at,
            event,
            has_type,
            lane: lane.take(),
        });
        self.buffer.push(taken.collect());
    }
}
