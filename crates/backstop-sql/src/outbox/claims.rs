//! The claims that this node holds are kept alive while their events wait or are handled.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::lifecycle::Lifecycle;
use backstop_core::{Clock, Shutdown, SystemClock};
use tokio::time::{Instant, timeout};

use super::lease::{Lease, Leases};
use super::ledger::{Claimed, Lasts};
use crate::store::{At, Store};
use crate::{Error, aside};

/// How long claims are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// A claim that a row was born with.
    pub(super) hot_grace: Duration,
    /// A claim that was taken or renewed.
    pub(super) timeout: Duration,
}

impl Terms {
    /// Renewing three times before a claim runs out leaves room for two failures.
    fn renew_every(self) -> Duration {
        (self.hot_grace.min(self.timeout) / 3).max(Duration::from_millis(1))
    }

    /// A claim that has less than this left when its event is to be handled is renewed first: the renewal that is under
    /// way may have begun without it, and the next one comes a period later.
    pub(super) fn enough(self) -> Duration {
        self.renew_every() * 2
    }
}

/// Renews claims: in the background, and at once where one would run out under its handler.
pub(super) struct Renewer {
    store: Arc<dyn Store>,
    leases: Leases,
    terms: Terms,
}

/// So many claims are renewed at once: what is renewed counts although the rest takes longer than there is time.
const TOGETHER: usize = 500;

impl Renewer {
    pub(super) fn new(store: Arc<dyn Store>, leases: Leases, terms: Terms) -> Self {
        Self { store, leases, terms }
    }

    /// Makes sure that the claim of an event lasts until the next renewal. False if that cannot be had: the claim would run
    /// out while its event is handled.
    pub(super) async fn ensure(self: &Arc<Self>, lease: &Lease) -> bool {
        match lease.lasts() {
            Lasts::LongEnough => true,
            Lasts::NotForLong(claim) => {
                // Where a handler that blocks cannot hold it up, and the connection with it.
                let renewer = self.clone();
                let _ = aside::spawn(async move { renewer.renew(&[claim]).await }).await;
                lease.lasts() == Lasts::LongEnough
            }
            Lasts::NoLonger => false,
        }
    }

    async fn renew_all(&self) {
        let living = self.leases.ledger().living(SystemClock.ticks());
        for rows in living.chunks(TOGETHER) {
            if !self.renew(rows).await {
                return;
            }
        }
    }

    /// Renews claims, and tells whether the database answered.
    async fn renew(&self, rows: &[Claimed]) -> bool {
        // Counted from before the question was asked: the database counts from later on.
        let until = SystemClock.ticks() + self.terms.timeout;
        // One that is swallowed must leave time for the next.
        let renewed = timeout(self.terms.renew_every(), renew(&*self.store, rows)).await;
        match renewed.unwrap_or(Err(Error::State("the database did not answer in time"))) {
            Ok((renewed, lost)) => {
                let lost = {
                    let mut ledger = self.leases.ledger();
                    ledger.renewed(&renewed, until);
                    ledger.lost(&lost, SystemClock.ticks())
                };
                if lost > 0 {
                    tracing::warn!(
                        lost,
                        "claims were lost to other nodes, which may deliver their events too"
                    );
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, claims = rows.len(), "cannot renew claims; trying again soon");
                false
            }
        }
    }
}

/// Renews the claims that are held, in the background, on a thread that no handler can block.
pub(super) struct Renewal {
    lifecycle: Lifecycle,
}

impl Renewal {
    pub(super) fn start(renewer: Arc<Renewer>) -> Self {
        let renew = move |shutdown| {
            let (pulse, every) = (Arc::new(Pulse::default()), renewer.terms.renew_every());
            let renewal = aside::spawn(renew_until(shutdown, renewer, pulse.clone()));
            async move {
                tokio::select! {
                    ended = renewal => drop(ended),
                    () = pulse.beat(every) => {}
                }
            }
        };
        Self { lifecycle: Lifecycle::started(renew) }
    }

    pub(super) async fn close(&self) {
        self.lifecycle.close("renewal").await;
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").field("lifecycle", &self.lifecycle).finish()
    }
}

async fn renew_until(shutdown: Shutdown, renewer: Arc<Renewer>, pulse: Arc<Pulse>) {
    let every = renewer.terms.renew_every();
    let mut next = Instant::now() + every;
    let mut stood_still = false;
    while shutdown.interrupts(tokio::time::sleep_until(next)).await.is_some() {
        // Counted from its beginning: one that is swallowed must not take the time of the next with it.
        next = Instant::now() + every;
        let stands_still = pulse.is_gone(SystemClock.ticks());
        if stands_still && !stood_still {
            let claims = renewer.leases.ledger().living(SystemClock.ticks()).len();
            tracing::error!(
                claims,
                still_for = ?LONGEST_STANDSTILL,
                "handlers block every thread of this node; its claims are not renewed any more, and other nodes take its \
                 events when they have run out"
            );
        }
        stood_still = stands_still;
        if !stands_still {
            renewer.renew_all().await;
        }
    }
}

/// A node whose handlers block every thread of its runtime keeps its claims for so long, and no longer: they may never end.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(300);

/// When the runtime on which handlers run last did something else.
struct Pulse(Mutex<Tick>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Mutex::new(SystemClock.ticks()))
    }
}

impl Pulse {
    /// Beats for as long as it runs on that runtime.
    async fn beat(&self, every: Duration) {
        loop {
            *self.lock() = SystemClock.ticks();
            tokio::time::sleep(every).await;
        }
    }

    fn is_gone(&self, now: Tick) -> bool {
        now.since(*self.lock()) > LONGEST_STANDSTILL
    }

    fn lock(&self) -> MutexGuard<'_, Tick> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Claims = Vec<Claimed>;

/// Renews claims, and tells which were and which had been lost. One that was lost looks alive from here if this machine
/// stood still: its clock stood still with it. One that is neither is in somebody's hands for the moment, and stays as
/// it is.
async fn renew(store: &dyn Store, rows: &[Claimed]) -> Result<(Claims, Claims), Error> {
    let renewed: HashSet<_> = store.renew(At::Database, rows).await?.into_iter().collect();
    let (renewed, others): (Claims, Claims) = rows.iter().cloned().partition(|(id, _)| renewed.contains(id));
    if others.is_empty() {
        return Ok((renewed, others));
    }
    // What cannot be told now is told by the next renewal.
    let Ok(alive) = store.still_claimed(&others).await else { return Ok((renewed, Vec::new())) };
    let alive: HashSet<_> = alive.into_iter().collect();
    let lost = others.into_iter().filter(|(id, _)| !alive.contains(id)).collect();
    Ok((renewed, lost))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_runtime_that_has_not_moved_for_five_minutes_loses_its_claims() {
        let (pulse, moment) = (Pulse::default(), Duration::from_millis(5));
        let at_last = *pulse.lock() + LONGEST_STANDSTILL;
        assert!(!pulse.is_gone(at_last) && pulse.is_gone(at_last + moment));
        tokio::time::sleep(moment).await;
        let _ = pulse.beat(moment).now_or_never();
        assert!(!pulse.is_gone(at_last + moment));
    }

    #[test]
    fn claims_are_renewed_three_times_before_the_shorter_term_is_over() {
        let terms = Terms { hot_grace: Duration::from_secs(30), timeout: Duration::from_secs(300) };
        assert_eq!(terms.renew_every(), Duration::from_secs(10));
    }
}
