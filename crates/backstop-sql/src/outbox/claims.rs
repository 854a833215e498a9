//! The claims that this node holds are kept alive while their events wait or are handled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::config::{Parsed, ValueKind};
use backstop_core::{Clock, SystemClock};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::lease::Leases;
use super::ledger::Claimed;
use crate::renewal::Renews;
use crate::store::{At, Store};
use crate::{BoxFuture, Error, aside};

backstop_core::config! {
    /// How several nodes share a table.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// Whether rows are claimed before they are delivered. `multi-node` requires it.
        enabled: bool = false => "enabled": one(ValueKind::Flag);
        /// How old a claim must be before another node may take the row. The events of a node that died wait that
        /// long. Must be the same on all nodes.
        lock_timeout: Duration = Duration::from_secs(300) => "lock-timeout": one(ValueKind::TIME);
        /// The name under which this node claims rows, new at each start. At most 128 characters.
        owner_id: Option<String> = None => "owner-id": one(ValueKind::Parsed(&OWNER)), unset("made up at each start");
        /// How long a node that has just written a row keeps it to itself before it must renew its claim. Never
        /// longer than `lock-timeout`.
        hot_grace: Duration = Duration::from_secs(30) => "hot-grace": one(ValueKind::TIME);
    }
}

const OWNER: Parsed = Parsed {
    word: "text of at most 128 characters",
    rule: "a name of 1 to 128 characters without NUL",
    secret: false,
    check: |text| {
        let fits = (1..=128).contains(&text.chars().count()) && !text.contains('\0');
        if fits { Ok(()) } else { Err(format!("must be {}", OWNER.rule)) }
    },
};

/// Under which name rows are claimed, and how old a claim must be to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Locking {
    pub(super) owner: Arc<str>,
    pub(super) timeout: Duration,
}

impl Config {
    /// With the name that this node has from now on, if rows are claimed.
    pub(super) fn locking(&self) -> Option<Locking> {
        // New at each start, so that a restarted node does not take its old claims for its own.
        let new = || format!("node-{}", backstop_core::event::next_id());
        let owner = self.owner_id.clone().unwrap_or_else(new).into();
        self.enabled.then_some(Locking { owner, timeout: self.lock_timeout })
    }
}

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
    pub(super) fn renew_every(self) -> Duration {
        (self.hot_grace.min(self.timeout) / 3).max(Duration::from_millis(1))
    }

    /// A claim that has less than this left when its event is to be handled is renewed first: the renewal that is under
    /// way may have begun without it, and the next one comes a period later.
    pub(super) fn enough(self) -> Duration {
        self.renew_every() * 2
    }

    /// A claim that has less than this left is renewed when the others are: a third of its time is over, or it would not have
    /// [enough](Self::enough) left until the next time. Renewing it sooner costs a write and gains nothing.
    pub(super) fn fresh(self) -> Duration {
        (self.timeout * 2 / 3).max(self.enough() + self.renew_every())
    }
}

/// Renews claims: in the background, and at once where one would run out under its handler.
pub(super) struct Renewer {
    store: Arc<dyn Store>,
    leases: Leases,
    terms: Terms,
    /// Held while claims are renewed that somebody waits for: others who wait may be among them.
    awaited: Mutex<()>,
}

/// This many claims are renewed at once: those that are renewed count even if there is no time left for the rest.
const TOGETHER: usize = 500;

impl Renewer {
    pub(super) fn new(store: Arc<dyn Store>, leases: Leases, terms: Terms) -> Self {
        Self { store, leases, terms, awaited: Mutex::default() }
    }

    /// Renews a claim at once.
    pub(super) async fn renew_now(self: &Arc<Self>, claim: Claimed) {
        // Where a handler that blocks cannot hold it up, and the connection with it.
        let renewer = self.clone();
        let _ = aside::spawn(async move { renewer.renew_with_next(claim).await }).await;
    }

    /// Renews a claim, and with it those that run out next. A node that has more claims than it can renew in time would
    /// otherwise renew them one by one, each when its event is to be handled, and fall behind even more.
    async fn renew_with_next(&self, claim: Claimed) {
        let _turn = self.awaited.lock().await;
        let now = SystemClock.ticks();
        let rows = {
            let ledger = self.leases.ledger();
            if ledger.still_aging(std::slice::from_ref(&claim), now).is_empty() {
                return;
            }
            let mut rows = ledger.aging(now, TOGETHER - 1);
            if !rows.contains(&claim) {
                rows.push(claim);
            }
            rows
        };
        self.renew(&rows).await;
    }

    /// Renews claims, and returns whether the database answered.
    async fn renew(&self, rows: &[Claimed]) -> bool {
        // Counted from before the question was asked: the database counts from later on.
        let until = SystemClock.ticks() + self.terms.timeout;
        // A renewal that gets no answer must leave time for the next.
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

impl Renews for Renewer {
    fn renew_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let aging = self.leases.ledger().aging(SystemClock.ticks(), usize::MAX);
            for rows in aging.chunks(TOGETHER) {
                // Somebody may have waited for them, or have handled their events meanwhile.
                let rows = self.leases.ledger().still_aging(rows, SystemClock.ticks());
                if !rows.is_empty() && !self.renew(&rows).await {
                    return;
                }
            }
        })
    }

    fn claims(&self) -> usize {
        self.leases.ledger().claims()
    }
}

type Claims = Vec<Claimed>;

/// Renews claims, and returns which were renewed and which had been lost. A lost claim looks alive from here if this
/// machine stood still, since its clock stood still with it. A claim that is neither belongs to a row that somebody
/// has locked at the moment, and stays as it is.
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
    use super::*;

    #[test]
    fn claims_are_renewed_three_times_before_the_shorter_term_is_over() {
        let terms = Terms { hot_grace: Duration::from_secs(30), timeout: Duration::from_secs(300) };
        assert_eq!(terms.renew_every(), Duration::from_secs(10));
    }

    #[test]
    fn a_claim_is_renewed_when_a_third_of_it_is_over_and_always_has_enough_left_to_begin() {
        let seconds = Duration::from_secs;
        let fresh =
            |hot_grace, timeout| Terms { hot_grace: seconds(hot_grace), timeout: seconds(timeout) }.fresh();
        assert_eq!(fresh(30, 300), seconds(200));
        assert_eq!(fresh(30, 30), seconds(30), "each time");
        for (hot_grace, timeout) in [(30, 300), (3, 5), (20, 20), (100, 60)] {
            let terms = Terms { hot_grace: seconds(hot_grace), timeout: seconds(timeout) };
            assert!(terms.fresh() >= terms.renew_every() + terms.enough());
        }
    }
}
