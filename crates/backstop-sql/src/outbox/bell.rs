//! The bell: rings for other nodes when there is something for them, and hears when they ring.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::lifecycle::Lifecycle;
use backstop_core::{Event, Shutdown};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::hook::{Hook, HookError};
use crate::Error;
use crate::wake_up::WakeUps;

/// How long to wait before what failed is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A ring that takes longer has been swallowed.
const LONGEST_RING: Duration = Duration::from_secs(5);

/// What a closing node still waits for, so that others take over at once what it gave back.
const LAST_RING: Duration = Duration::from_secs(1);

/// Rings without waiting. Cheap to clone; without a database that has wake-ups it does nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Bell(Arc<Rope>);

#[derive(Debug, Default)]
struct Rope {
    pulled: AtomicBool,
    woken: Notify,
}

impl Bell {
    /// Wakes the other nodes soon. Many rings at once are one.
    pub(super) fn ring(&self) {
        self.0.pulled.store(true, Ordering::Release);
        self.0.woken.notify_one();
    }

    /// Whether it was to ring since it was last asked.
    fn was_rung(&self) -> bool {
        self.0.pulled.swap(false, Ordering::AcqRel)
    }
}

/// Rings when a transaction has committed, for whoever delivers what it wrote.
pub(super) struct RingAfterCommit(pub(super) Bell);

impl Hook for RingAfterCommit {
    fn after_commit(&self, _events: &[Event]) -> Result<(), HookError> {
        self.0.ring();
        Ok(())
    }

    /// It may have committed.
    fn abandoned(&self, _events: &[Event]) {
        self.0.ring();
    }
}

/// The loops behind the bell: one that rings, and one that listens where there is somebody to wake.
#[derive(Debug, Default)]
pub(super) struct Ringing {
    ringing: Lifecycle,
    listening: Lifecycle,
}

impl Ringing {
    /// Carries the bell's rings to the database from now on.
    pub(super) fn start_ringing(&self, bell: Bell, wake_ups: Arc<dyn WakeUps>) {
        let _ = self.ringing.start(|shutdown| ring_until(shutdown, bell, wake_ups));
    }

    /// Wakes `woken` when others ring, and says in `hears` whether they would be heard.
    pub(super) fn start_listening(
        &self,
        wake_ups: Arc<dyn WakeUps>,
        woken: Arc<Notify>,
        hears: Arc<AtomicBool>,
    ) {
        let _ = self.listening.start(|shutdown| listen_until(shutdown, wake_ups, woken, hears));
    }

    /// Stops listening.
    pub(super) async fn close_listening(&self) {
        self.listening.close("listening for wake-ups").await;
    }

    /// Rings what is still to be rung, and ends.
    pub(super) async fn close(&self) {
        self.close_listening().await;
        self.ringing.close("ringing for other nodes").await;
    }
}

async fn ring_until(shutdown: Shutdown, bell: Bell, wake_ups: Arc<dyn WakeUps>) {
    let mut pause = FIRST_PAUSE;
    while shutdown.interrupts(bell.0.woken.notified()).await.is_some() {
        if !bell.was_rung() {
            continue;
        }
        // What is rung while this one is on its way makes the next: a burst of commits is a few wake-ups.
        let late = || Err(Error::database("waking other nodes")(sqlx::Error::Io(ErrorKind::TimedOut.into())));
        let rung = shutdown.interrupts(timeout(LONGEST_RING, wake_ups.ring())).await;
        let Some(rung) = rung else {
            bell.ring(); // once more, for the last time
            break;
        };
        match rung.unwrap_or_else(|_| late()) {
            Ok(()) => pause = FIRST_PAUSE,
            Err(error) => {
                tracing::warn!(%error, "cannot wake other nodes; they look for themselves at their interval");
                bell.ring();
                let _ = shutdown.interrupts(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    if bell.was_rung() {
        let _ = timeout(LAST_RING, wake_ups.ring()).await;
    }
}

async fn listen_until(
    shutdown: Shutdown,
    wake_ups: Arc<dyn WakeUps>,
    woken: Arc<Notify>,
    hears: Arc<AtomicBool>,
) {
    let mut pause = FIRST_PAUSE;
    let on_ring = || {
        hears.store(true, Ordering::Release);
        woken.notify_one();
    };
    while let Some(error) = shutdown.interrupts(wake_ups.listen(&on_ring)).await {
        // It worked for a while, so it is worth trying again soon.
        if hears.swap(false, Ordering::AcqRel) {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(%error, "wake-ups are not heard; looking at the table more often until they are");
        // What was rung meanwhile is looked for.
        woken.notify_one();
        let _ = shutdown.interrupts(tokio::time::sleep(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    hears.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use backstop_testkit::eventually;

    use super::*;
    use crate::BoxFuture;

    /// A bell that cannot be rung so many times, and then can.
    #[derive(Default)]
    struct Rusty {
        broken: AtomicUsize,
        rung: AtomicUsize,
    }

    impl WakeUps for Rusty {
        fn ring(&self) -> BoxFuture<'_, Result<(), Error>> {
            Box::pin(async {
                if self.broken.load(Ordering::SeqCst) > 0 {
                    self.broken.fetch_sub(1, Ordering::SeqCst);
                    return Err(Error::State("rusty"));
                }
                self.rung.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
        }

        fn listen<'a>(&'a self, heard: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, Error> {
            Box::pin(async move {
                heard();
                Error::State("deaf")
            })
        }
    }

    #[tokio::test]
    async fn a_burst_of_rings_is_few_and_none_is_the_last_to_be_forgotten() {
        let (bell, rusty, ringing) = (Bell::default(), Arc::new(Rusty::default()), Ringing::default());
        ringing.start_ringing(bell.clone(), rusty.clone());
        for _ in 0..1_000 {
            bell.ring();
        }
        eventually("a ring", async || rusty.rung.load(Ordering::SeqCst) > 0).await;
        bell.ring();
        ringing.close().await;
        let rung = rusty.rung.load(Ordering::SeqCst);
        assert!((2..20).contains(&rung), "{rung}");
    }

    #[tokio::test]
    async fn a_ring_that_failed_is_rung_later() {
        let (bell, ringing) = (Bell::default(), Ringing::default());
        let rusty = Arc::new(Rusty { broken: 1.into(), ..Rusty::default() });
        ringing.start_ringing(bell.clone(), rusty.clone());
        bell.ring();
        eventually("a ring", async || rusty.rung.load(Ordering::SeqCst) == 1).await;
        ringing.close().await;
    }

    #[tokio::test]
    async fn who_cannot_hear_says_so_and_tries_again() {
        let (woken, hears) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let ringing = Ringing::default();
        ringing.start_listening(Arc::new(Rusty::default()), woken.clone(), hears.clone());
        woken.notified().await;
        woken.notified().await; // again, after it broke
        ringing.close().await;
        assert!(!hears.load(Ordering::SeqCst));
    }
}
