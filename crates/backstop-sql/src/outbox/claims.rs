//! The claims that this node holds: kept alive while their events wait or are handled, and given back when
//! nobody will handle them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::{Clock, Shutdown, SystemClock};
use tokio::time::{Instant, timeout};

use super::lifecycle::Lifecycle;
use super::queues::Source;
use crate::store::{At, Claim, Store};
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
    fn enough(self) -> Duration {
        self.renew_every() * 2
    }
}

/// The claims of events that are queued or being handled.
#[derive(Debug, Default)]
pub(super) struct HeldClaims {
    held: Mutex<HashMap<String, HeldClaim>>,
    terms: Option<Terms>,
}

#[derive(Debug)]
struct HeldClaim {
    claim: Claim,
    good_until: Tick,
    /// What became of its event is on its way to the table, and ends the claim.
    settling: bool,
}

impl HeldClaims {
    pub(super) fn new(terms: Option<Terms>) -> Self {
        Self { held: Mutex::default(), terms }
    }

    /// Holds the claim of an event that was queued. It counts from when the row was written or taken.
    pub(super) fn hold(&self, source: Source, id: &str, claim: &Claim, since: Tick) {
        let Some(terms) = self.terms else { return };
        let good_for = match source {
            Source::Hot => terms.hot_grace,
            Source::Cold => terms.timeout,
        };
        let claim = HeldClaim { claim: claim.clone(), good_until: since + good_for, settling: false };
        self.lock().insert(id.to_owned(), claim);
    }

    /// Says that the claim of an event is about to end by itself.
    pub(super) fn settling(&self, id: &str) {
        if let Some(held) = self.lock().get_mut(id) {
            held.settling = true;
        }
    }

    /// Forgets a claim: its row was settled, or somebody else sees to it.
    pub(super) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Whether the claim of an event has run out, so that another node may be handling it by now.
    pub(super) fn has_run_out(&self, id: &str) -> bool {
        self.lock().get(id).is_some_and(|held| SystemClock.ticks() >= held.good_until)
    }

    /// All claims, which are then no longer held.
    pub(super) fn take_all(&self) -> Vec<(String, Claim)> {
        self.lock().drain().map(|(id, held)| (id, held.claim)).collect()
    }

    /// Whether the claim of an event may run out before it is renewed by itself.
    fn is_short(&self, id: &str) -> bool {
        let Some(terms) = self.terms else { return false };
        let soon = SystemClock.ticks() + terms.enough();
        self.lock().get(id).is_some_and(|held| held.good_until < soon)
    }

    /// The claims that have not run out, those that run out first in front. One that has must not be taken back from
    /// whoever has it now.
    fn living(&self) -> Claims {
        let now = SystemClock.ticks();
        let mut living: Vec<_> = {
            let held = self.lock();
            let living = held.iter().filter(|(_, held)| now < held.good_until);
            living.map(|(id, held)| (held.good_until, (id.clone(), held.claim.clone()))).collect()
        };
        living.sort_by_key(|(good_until, _)| *good_until);
        living.into_iter().map(|(_, claim)| claim).collect()
    }

    /// The claim of an event, unless it has run out.
    fn of(&self, id: &str) -> Option<(String, Claim)> {
        let now = SystemClock.ticks();
        let held = self.lock();
        held.get(id).filter(|held| now < held.good_until).map(|held| (id.to_owned(), held.claim.clone()))
    }

    fn renewed(&self, rows: &[(String, Claim)], until: Tick) {
        let mut held = self.lock();
        for (id, claim) in rows {
            if let Some(held) = held.get_mut(id).filter(|held| held.claim == *claim) {
                held.good_until = held.good_until.max(until);
            }
        }
    }

    /// Lets claims run out now: another node has taken their rows. Tells how many that matters to.
    fn lost(&self, rows: &[(String, Claim)]) -> usize {
        let (now, mut held) = (SystemClock.ticks(), self.lock());
        let mut lost = 0;
        for (id, claim) in rows {
            if let Some(held) = held.get_mut(id).filter(|held| held.claim == *claim && !held.settling) {
                held.good_until = held.good_until.min(now);
                lost += 1;
            }
        }
        lost
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HeldClaim>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews claims: in the background, and at once where one would run out under its handler.
pub(super) struct Renewer {
    store: Arc<dyn Store>,
    held: Arc<HeldClaims>,
    terms: Terms,
}

/// So many claims are renewed at once: what is renewed counts although the rest takes longer than there is time.
const TOGETHER: usize = 500;

impl Renewer {
    pub(super) fn new(store: Arc<dyn Store>, held: Arc<HeldClaims>, terms: Terms) -> Self {
        Self { store, held, terms }
    }

    /// Makes sure that the claim of an event lasts until the next renewal. False if that cannot be had: the claim would run
    /// out while its event is handled.
    pub(super) async fn ensure(self: &Arc<Self>, id: &str) -> bool {
        if !self.held.is_short(id) {
            return true;
        }
        if let Some(claim) = self.held.of(id) {
            // Where a handler that blocks cannot hold it up, and the connection with it.
            let renewer = self.clone();
            let _ = aside::spawn(async move { renewer.renew(&[claim]).await }).await;
        }
        !self.held.is_short(id)
    }

    async fn renew_all(&self) {
        for rows in self.held.living().chunks(TOGETHER) {
            if !self.renew(rows).await {
                return;
            }
        }
    }

    /// Renews claims, and tells whether the database answered.
    async fn renew(&self, rows: &[(String, Claim)]) -> bool {
        // Counted from before the question was asked: the database counts from later on.
        let until = SystemClock.ticks() + self.terms.timeout;
        // One that is swallowed must leave time for the next.
        let renewed = timeout(self.terms.renew_every(), renew(&*self.store, rows)).await;
        match renewed.unwrap_or(Err(Error::State("the database did not answer in time"))) {
            Ok((renewed, lost)) => {
                self.held.renewed(&renewed, until);
                let lost = self.held.lost(&lost);
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
    pub(super) fn start(renewer: Arc<Renewer>) -> Result<Self, Error> {
        let lifecycle = Lifecycle::default();
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
        lifecycle.start(renew, "the renewal of claims was closed and cannot be started again")?;
        Ok(Self { lifecycle })
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
            tracing::error!(
                claims = renewer.held.living().len(),
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

type Claims = Vec<(String, Claim)>;

/// Renews claims, and tells which were and which had been lost. One that was lost looks alive from here if this machine
/// stood still: its clock stood still with it. One that is neither is in somebody's hands for the moment, and stays as
/// it is.
async fn renew(store: &dyn Store, rows: &[(String, Claim)]) -> Result<(Claims, Claims), Error> {
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

    fn claim() -> Claim {
        Claim { owner: "a".into(), seq: 1 }
    }

    #[test]
    fn a_claim_is_good_for_its_term_and_longer_when_it_is_renewed() {
        let day = Duration::from_secs(86_400);
        let held = HeldClaims::new(Some(Terms { hot_grace: Duration::ZERO, timeout: day }));
        held.hold(Source::Hot, "hot", &claim(), SystemClock.ticks());
        held.hold(Source::Cold, "cold", &claim(), SystemClock.ticks());
        assert!(held.has_run_out("hot") && !held.has_run_out("cold") && !held.has_run_out("unknown"));
        assert_eq!(held.living(), [("cold".to_owned(), claim())]);
        held.renewed(&[("hot".to_owned(), claim())], SystemClock.ticks() + day);
        assert!(!held.has_run_out("hot"));
        let other = Claim { seq: 2, ..claim() };
        assert_eq!(held.lost(&[("hot".to_owned(), other), ("unknown".to_owned(), claim())]), 0);
        assert!(!held.has_run_out("hot"));
        assert_eq!(held.lost(&[("hot".to_owned(), claim())]), 1);
        assert!(held.has_run_out("hot"));
        held.settling("cold");
        assert_eq!(held.lost(&[("cold".to_owned(), claim())]), 0, "it ends by itself");
        assert!(!held.has_run_out("cold"));
        held.forget("hot");
        assert_eq!(held.take_all(), [("cold".to_owned(), claim())]);
        assert!(held.take_all().is_empty());
    }

    #[test]
    fn a_claim_with_less_than_two_periods_left_is_renewed_before_its_event_is_handled() {
        let (second, now) = (Duration::from_secs(1), SystemClock.ticks());
        let held = HeldClaims::new(Some(Terms { hot_grace: second * 300, timeout: second * 900 }));
        held.hold(Source::Hot, "fresh", &claim(), now);
        held.hold(Source::Cold, "taken", &claim(), now);
        assert!(!held.is_short("fresh") && !held.is_short("taken") && !held.is_short("unknown"));
        let held = HeldClaims::new(Some(Terms { hot_grace: second * 300, timeout: second * 100 }));
        held.hold(Source::Cold, "taken", &claim(), now);
        assert!(!held.is_short("taken"), "it has three of its own periods");
        let older = |left| HeldClaim { claim: claim(), good_until: now + left, settling: false };
        held.lock().insert("older".to_owned(), older(second * 50));
        assert!(held.is_short("older"));
        let both = ["older", "taken"].map(|id| (id.to_owned(), claim()));
        assert_eq!(held.living(), both, "the one that runs out first in front");
        held.renewed(&both[..1], now + second * 100);
        assert!(!held.is_short("older"));
        held.renewed(&both[..1], now);
        assert!(!held.is_short("older"), "an earlier answer that comes late takes nothing back");
        held.lock().insert("over".to_owned(), older(Duration::ZERO));
        assert!(held.is_short("over") && held.of("over").is_none());
        assert_eq!(held.living().len(), 2, "one that has run out is not ours any more");
    }

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
