//! Taking over what dead workers left behind, one event at a time: if one of them kills its worker, only its own attempts add up,
//! and not those of the events beside it.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::{Clock, Shutdown, SystemClock, telemetry};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Taken;
use super::buffer::Buffer;
use super::in_hand::InHand;
use super::taker::unless_late;
use crate::Error;
use crate::database::At;
use crate::queue::table::{Tables, Which};

/// Abandoned events are looked for no more often than this, while there are none.
const SHORTEST_REST: Duration = Duration::from_millis(50);

/// The rest after a look that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

pub(super) struct TakeOver {
    pub(super) tables: Tables,
    pub(super) buffer: Arc<Buffer>,
    pub(super) in_hand: InHand,
    pub(super) metrics: Arc<telemetry::Queue>,
    pub(super) timeout: Duration,
    pub(super) idle_wait: Duration,
}

/// Goes with an event that was taken over, and is dropped when its result is recorded, or when it is out of our hands otherwise.
#[derive(Debug)]
pub(super) struct LanePass(#[expect(dead_code, reason = "it tells by being dropped")] oneshot::Sender<()>);

impl TakeOver {
    pub(super) async fn run(self, shutdown: Shutdown) {
        while !shutdown.has_begun() {
            let Some(taken_over) = unless_late(&shutdown, self.take_one()).await else { return };
            match taken_over {
                // The next one only when this one is through, recorded and all; or when it has run for so long that it will hardly
                // kill anybody any more.
                Ok(Some(through)) => _ = shutdown.interrupts(timeout(self.timeout, through)).await,
                Ok(None) => {
                    let Some(rest) = unless_late(&shutdown, self.rest()).await else { return };
                    let _ = shutdown.interrupts(tokio::time::sleep(rest)).await;
                }
                // Whoever takes what waits says it loud enough.
                Err(error) => {
                    tracing::debug!(%error, "cannot look for abandoned events; trying again soon");
                    let _ = shutdown.interrupts(tokio::time::sleep(AFTER_FAILURE)).await;
                }
            }
        }
    }

    /// Takes over one abandoned event, and tells what to wait for before the next.
    async fn take_one(&self) -> Result<Option<oneshot::Receiver<()>>, Error> {
        let since = SystemClock.ticks();
        let rows = self.tables.claim(Which::Abandoned(self.timeout), At::Database, 1).await?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        tracing::warn!(
            id = row.claim.id,
            attempt = row.claim.attempt,
            "an abandoned event is taken over: its worker died, or stood still for too long"
        );
        self.metrics.taken.increment();
        self.metrics.taken_over.increment();
        self.in_hand.add(std::iter::once(row.claim), since);
        let (pass, through) = oneshot::channel();
        self.buffer.push_first(Taken { lane: Some(LanePass(pass)), ..Taken::of(row) });
        Ok(Some(through))
    }

    /// How long it is until an event can be abandoned that somebody has taken.
    async fn rest(&self) -> Duration {
        let ahead = self.tables.ahead(At::Database, self.timeout).await;
        let next = ahead.ok().and_then(|ahead| ahead.abandoned).unwrap_or(self.idle_wait);
        // One that is taken from now on is not abandoned before the time-out is over.
        next.min(self.timeout).clamp(SHORTEST_REST, self.idle_wait.max(SHORTEST_REST))
    }
}
