//! The events that this process has taken and not finished, and how their claims are kept alive.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock, telemetry};
use tokio::time::timeout;

use crate::database::At;
use crate::queue::claim::Claim;
use crate::queue::table::Tables;
use crate::renewal::Renews;
use crate::{BoxFuture, Error};

/// This many claims are renewed at once: those that are renewed count even if there is no time left for the rest.
const TOGETHER: usize = 500;

/// The claims of this process, for all who take part in handling. Cheap to clone.
#[derive(Clone)]
pub(super) struct InHand(Arc<Inner>);

struct Inner {
    tables: Tables,
    timeout: Duration,
    metrics: Arc<telemetry::Queue>,
    claims: Mutex<HashMap<Claim, Hand>>,
}

struct Hand {
    /// Until when it is certainly ours, by this process's clock.
    good_until: Tick,
    /// Whether its result is being written: it may vanish at any moment, by ourselves.
    settling: bool,
}

impl InHand {
    pub(super) fn new(tables: Tables, timeout: Duration, metrics: Arc<telemetry::Queue>) -> Self {
        Self(Arc::new(Inner { tables, timeout, metrics, claims: Mutex::default() }))
    }

    /// Renewing three times before a claim runs out leaves room for two failures.
    pub(super) fn renew_every(&self) -> Duration {
        (self.0.timeout / 3).max(Duration::from_millis(1))
    }

    /// Claims that were asked for at `since`: the database counts from later on.
    pub(super) fn add(&self, claims: impl Iterator<Item = Claim>, since: Tick) {
        let good_until = since + self.0.timeout;
        self.lock().extend(claims.map(|claim| (claim, Hand { good_until, settling: false })));
        self.show();
    }

    /// Whether an event is still certainly ours.
    pub(super) fn is_ours(&self, claim: &Claim) -> bool {
        self.lock().get(claim).is_some_and(|hand| SystemClock.ticks() < hand.good_until)
    }

    /// The results of events are being written from now on.
    pub(super) fn settling(&self, claims: impl Iterator<Item = Claim>) {
        let mut held = self.lock();
        for claim in claims {
            if let Some(hand) = held.get_mut(&claim) {
                hand.settling = true;
            }
        }
    }

    /// An event is out of our hands.
    pub(super) fn end(&self, claims: impl Iterator<Item = Claim>) {
        let mut held = self.lock();
        for claim in claims {
            held.remove(&claim);
        }
        drop(held);
        self.show();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn show(&self) {
        self.0.metrics.in_hand.set(self.len() as u64);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Claim, Hand>> {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews claims, and tells whether the database answered.
    async fn renew(&self, claims: &[Claim]) -> bool {
        let since = SystemClock.ticks();
        // A renewal that gets no answer must leave time for the next.
        let renewed = timeout(self.renew_every(), self.renew_or_lose(claims)).await;
        match renewed.unwrap_or(Err(Error::State("the database did not answer in time"))) {
            Ok((renewed, lost)) => {
                let good_until = since + self.0.timeout;
                let mut held = self.lock();
                for claim in claims.iter().filter(|claim| renewed.contains(&claim.id)) {
                    if let Some(hand) = held.get_mut(claim) {
                        hand.good_until = good_until;
                    }
                }
                let mut gone = 0;
                for claim in &lost {
                    if let Some(hand) = held.get_mut(claim).filter(|hand| !hand.settling) {
                        hand.good_until = Tick::ZERO;
                        gone += 1;
                    }
                }
                drop(held);
                if gone > 0 {
                    tracing::warn!(
                        events = gone,
                        "events were taken over by other workers, which may handle them too; this worker's results are ignored"
                    );
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, events = claims.len(), "cannot renew the claims of events; trying again soon");
                false
            }
        }
    }

    /// Which claims were renewed, and which had been lost. One that is neither belongs to a row that somebody has locked.
    async fn renew_or_lose(&self, claims: &[Claim]) -> Result<(HashSet<i64>, Vec<Claim>), Error> {
        let renewed: HashSet<_> = self.0.tables.renew(At::Database, claims).await?.into_iter().collect();
        let others: Vec<_> = claims.iter().copied().filter(|claim| !renewed.contains(&claim.id)).collect();
        if others.is_empty() {
            return Ok((renewed, others));
        }
        let held: HashSet<_> = self.0.tables.still_held(&others).await?.into_iter().collect();
        let lost = others.into_iter().filter(|claim| !held.contains(&claim.id)).collect();
        Ok((renewed, lost))
    }
}

impl Renews for InHand {
    fn renew_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let now = SystemClock.ticks();
            let mut living: Vec<_> = self
                .lock()
                .iter()
                .filter(|(_, hand)| now < hand.good_until)
                .map(|(claim, _)| *claim)
                .collect();
            living.sort_unstable();
            for claims in living.chunks(TOGETHER) {
                if !self.renew(claims).await {
                    return;
                }
            }
        })
    }

    fn claims(&self) -> usize {
        self.len()
    }
}
