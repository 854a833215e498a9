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
use super::passing::Types;
use super::{Taken, Woken, WorkerConfig};
use crate::Error;
use crate::database::At;
use crate::queue::claim::Row;
use crate::queue::table::{Tables, Which};
use crate::routes::held::HeldRoutes;

/// While there is much to do, those whose moment has come are looked for this often.
const LOOK_FOR_DUE: Duration = Duration::from_millis(50);

/// When to look again for what is rarely there.
struct Times {
    due: Tick,
    types: Types,
}

pub(super) struct Taker {
    pub(super) tables: Tables,
    pub(super) buffer: Arc<Buffer>,
    pub(super) in_hand: InHand,
    pub(super) held: HeldRoutes<i64>,
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
    /// How long it is until another event can be taken, as far as that is known.
    next: Option<Duration>,
}

impl Taker {
    pub(super) async fn run(self, shutdown: Shutdown) {
        let mut pace = Pace::new(self.settings.concurrency, self.settings.batch_size);
        let mut rest = Rest::new(self.settings.idle_wait);
        let mut filled_at = SystemClock.ticks();
        let mut times = Times { due: filled_at, types: Types::default() };
        while !shutdown.has_begun() {
            if shutdown.interrupts(self.buffer.shrinks(pace.target())).await.is_none() {
                break;
            }
            let now = SystemClock.ticks();
            let handled = self.buffer.handled();
            if handled > 0 {
                pace.handled(handled, now.since(filled_at));
            }
            // Not interrupted: what the database has just given us would be nobody's until it is abandoned.
            let looked = unless_late(&shutdown, self.look(pace.target(), &mut times)).await;
            filled_at = SystemClock.ticks();
            let Some(looked) = looked else { break };
            match looked {
                Ok(Look { found, more, next }) => {
                    self.went_well();
                    rest.after_a_look(found);
                    if !more {
                        let hears = self.woken.hears.load(Ordering::Acquire);
                        let _ = shutdown.interrupts(self.wait(rest.length(next, hears))).await;
                    }
                }
                Err(error) => {
                    self.failed(&error);
                    rest.failed();
                    let pause = rest.after_failure().unwrap_or(LOOK_FOR_DUE);
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
            () = self.held.changed() => {}
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

    /// Takes what can be taken: those whose moment has come, and those that wait for nothing.
    async fn look(&self, target: usize, times: &mut Times) -> Result<Look, Error> {
        let (mut found, mut more) = (false, false);
        let now = SystemClock.ticks();
        if times.due <= now {
            let wanted = self.wanted(target);
            let due = self.take(Which::Due, wanted).await?;
            more |= due == wanted;
            found |= due > 0;
            times.due = if more { now } else { now + LOOK_FOR_DUE };
        }
        found |= self.probe().await?;
        let wanted = self.wanted(target);
        if wanted > 0 {
            let ready = self.take_open(&mut times.types, wanted).await?;
            more |= ready == wanted;
            found |= ready > 0;
        } else {
            more = true;
        }
        let next = if more { None } else { self.next(times, now, found).await? };
        Ok(Look { found, more, next })
    }

    /// How long it is until another event can be taken, as far as that is known.
    async fn next(&self, times: &mut Times, now: Tick, found: bool) -> Result<Option<Duration>, Error> {
        let ahead = self.tables.ahead(At::Database, self.timeout).await?;
        let next = [ahead.due, self.held.next_probe()].into_iter().flatten().min();
        if next.is_some() {
            times.due = now; // by the database's clock, so it is asked when this rest is over
        }
        // What could be taken and was not is locked by somebody.
        Ok(next.map(|next| if found { next } else { next.max(LOOK_FOR_DUE) }))
    }

    fn wanted(&self, target: usize) -> u32 {
        let room = u32::try_from(self.buffer.room(target)).unwrap_or(u32::MAX);
        room.min(self.settings.batch_size)
    }

    pub(super) async fn take(&self, which: Which<'_>, wanted: u32) -> Result<u32, Error> {
        let since = SystemClock.ticks();
        let rows = self.tables.claim(which, At::Database, wanted).await?;
        let taken = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        self.hand_over(rows, since, false);
        Ok(taken)
    }

    pub(super) fn hand_over(&self, rows: Vec<Row>, since: Tick, is_probe: bool) {
        self.metrics.taken.add(rows.len() as u64);
        self.in_hand.add(rows.iter().map(|row| row.claim), since);
        self.buffer.push(rows.into_iter().map(|row| Taken { is_probe, ..Taken::of(row) }).collect());
    }
}

/// A look, even if it is time to end; given up if it takes much longer than that.
pub(super) async fn unless_late<T>(shutdown: &Shutdown, look: impl Future<Output = T>) -> Option<T> {
    let late = async {
        shutdown.begun().await;
        tokio::time::sleep(super::LAST_WORDS).await;
    };
    tokio::select! {
        looked = look => Some(looked),
        () = late => None,
    }
}
