//! Claims are kept alive while their events wait or are handled, on a thread that no handler can block.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::lifecycle::Lifecycle;
use backstop_core::{Clock, Shutdown, SystemClock};
use tokio::time::Instant;

use crate::{BoxFuture, aside};

/// Something that has claims.
pub(crate) trait Renews: Send + Sync + 'static {
    /// Renews all that have not run out.
    fn renew_all(&self) -> BoxFuture<'_, ()>;

    /// How many there are.
    fn claims(&self) -> usize;
}

/// Renews the claims that are held, in the background, on a thread that no handler can block.
pub(crate) struct Renewal {
    lifecycle: Lifecycle,
}

impl Renewal {
    pub(crate) fn start(renewer: Arc<impl Renews>, every: Duration) -> Self {
        let renew = move |shutdown| {
            let pulse = Arc::new(Pulse::default());
            let renewal = aside::spawn(renew_until(shutdown, renewer, every, pulse.clone()));
            async move {
                tokio::select! {
                    ended = renewal => drop(ended),
                    () = pulse.beat(every) => {}
                }
            }
        };
        Self { lifecycle: Lifecycle::started(renew) }
    }

    pub(crate) async fn close(&self) {
        self.lifecycle.close("renewal").await;
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").field("lifecycle", &self.lifecycle).finish()
    }
}

async fn renew_until(shutdown: Shutdown, renewer: Arc<impl Renews>, every: Duration, pulse: Arc<Pulse>) {
    let mut next = Instant::now() + every;
    let mut stood_still = false;
    while shutdown.interrupts(tokio::time::sleep_until(next)).await.is_some() {
        // Counted from its beginning: one that is swallowed must not take the time of the next with it.
        next = Instant::now() + every;
        let stands_still = pulse.is_gone(SystemClock.ticks());
        if stands_still && !stood_still {
            tracing::error!(
                claims = renewer.claims(),
                still_for = ?LONGEST_STANDSTILL,
                "handlers block every thread of this node; its claims are no longer renewed, and other nodes take its \
                 events when the claims have run out"
            );
        }
        stood_still = stands_still;
        if !stands_still {
            renewer.renew_all().await;
        }
    }
}

/// A node whose handlers block every thread of its runtime keeps its claims for this long, and no longer: the
/// handlers may never end.
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
}
