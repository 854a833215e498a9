//! Wake-ups: how nodes learn that another has written rows, without asking the table.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::Shutdown;
use backstop_core::lifecycle::Lifecycle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::{BoxFuture, Error};

/// The wake-ups of one table, where the database supports them.
pub trait WakeUps: Send + Sync + 'static {
    /// Wakes every node that listens, on a connection of its own: no business transaction waits for it.
    fn send(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Listens until the connection breaks, and returns why. Calls `heard` when it begins to listen and at each
    /// wake-up.
    fn listen<'a>(&'a self, heard: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, Error>;
}

/// How long to wait before what failed is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A wake-up that takes longer has been swallowed.
const LONGEST: Duration = Duration::from_secs(5);

/// What a closing node still waits for, so that others take over at once what it gave back.
const LAST: Duration = Duration::from_secs(1);

/// Wakes other nodes, without waiting for it. Cheap to clone; without a database that has wake-ups it does nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct WakeOthers(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    asked: AtomicBool,
    woken: Notify,
}

impl WakeOthers {
    /// Wakes the other nodes soon. Many wake-ups at once are one.
    pub(crate) fn ask(&self) {
        self.0.asked.store(true, Ordering::Release);
        self.0.woken.notify_one();
    }

    /// Whether somebody asked for it since this was last called.
    fn was_asked(&self) -> bool {
        self.0.asked.swap(false, Ordering::AcqRel)
    }
}

/// The loops of a node: one that wakes others, and one that listens where there is somebody to wake.
#[derive(Debug, Default)]
pub(crate) struct WakeUpLoops {
    waking: Lifecycle,
    listening: Lifecycle,
}

impl WakeUpLoops {
    /// Wakes other nodes from now on, whenever somebody asks for it.
    pub(crate) fn start_waking(&self, others: WakeOthers, wake_ups: Arc<dyn WakeUps>) {
        let _ = self.waking.start(|shutdown| wake_until(shutdown, others, wake_ups));
    }

    /// Wakes `woken` when others send, and says in `hears` whether wake-ups are received.
    pub(crate) fn start_listening(
        &self,
        wake_ups: Arc<dyn WakeUps>,
        woken: Arc<Notify>,
        hears: Arc<AtomicBool>,
    ) {
        let _ = self.listening.start(|shutdown| listen_until(shutdown, wake_ups, woken, hears));
    }

    /// Stops listening.
    pub(crate) async fn close_listening(&self) {
        self.listening.close("listening for wake-ups").await;
    }

    /// Wakes others for the last time, if they are to be woken, and ends.
    pub(crate) async fn close(&self) {
        self.close_listening().await;
        self.waking.close("waking other nodes").await;
    }
}

async fn wake_until(shutdown: Shutdown, others: WakeOthers, wake_ups: Arc<dyn WakeUps>) {
    let mut pause = FIRST_PAUSE;
    while shutdown.interrupts(others.0.woken.notified()).await.is_some() {
        if !others.was_asked() {
            continue;
        }
        // Requests that come while this one is on its way make the next: a burst of commits is a few wake-ups.
        let late = || Err(Error::database("waking other nodes")(sqlx::Error::Io(ErrorKind::TimedOut.into())));
        let sent = shutdown.interrupts(timeout(LONGEST, wake_ups.send())).await;
        let Some(sent) = sent else {
            others.ask(); // once more, for the last time
            break;
        };
        match sent.unwrap_or_else(|_| late()) {
            Ok(()) => pause = FIRST_PAUSE,
            Err(error) => {
                tracing::warn!(%error, "cannot wake other nodes; they look at the table at their own interval");
                others.ask();
                let _ = shutdown.interrupts(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    if others.was_asked() {
        let _ = timeout(LAST, wake_ups.send()).await;
    }
}

async fn listen_until(
    shutdown: Shutdown,
    wake_ups: Arc<dyn WakeUps>,
    woken: Arc<Notify>,
    hears: Arc<AtomicBool>,
) {
    let mut pause = FIRST_PAUSE;
    let on_wake_up = || {
        hears.store(true, Ordering::Release);
        woken.notify_one();
    };
    while let Some(error) = shutdown.interrupts(wake_ups.listen(&on_wake_up)).await {
        // It worked for a while, so it is worth trying again soon.
        if hears.swap(false, Ordering::AcqRel) {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(%error, "wake-ups are not received; looking at the table more often until they are");
        // Look for what was missed meanwhile.
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

    /// Wake-ups that fail so many times, and then do not.
    #[derive(Default)]
    struct Flaky {
        broken: AtomicUsize,
        sent: AtomicUsize,
    }

    impl WakeUps for Flaky {
        fn send(&self) -> BoxFuture<'_, Result<(), Error>> {
            Box::pin(async {
                if self.broken.load(Ordering::SeqCst) > 0 {
                    self.broken.fetch_sub(1, Ordering::SeqCst);
                    return Err(Error::State("flaky"));
                }
                self.sent.fetch_add(1, Ordering::SeqCst);
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
    async fn a_burst_of_wake_ups_is_few_and_none_is_the_last_to_be_forgotten() {
        let (others, flaky, loops) =
            (WakeOthers::default(), Arc::new(Flaky::default()), WakeUpLoops::default());
        loops.start_waking(others.clone(), flaky.clone());
        for _ in 0..1_000 {
            others.ask();
        }
        eventually("a wake-up", async || flaky.sent.load(Ordering::SeqCst) > 0).await;
        others.ask();
        loops.close().await;
        let sent = flaky.sent.load(Ordering::SeqCst);
        assert!((2..20).contains(&sent), "{sent}");
    }

    #[tokio::test]
    async fn a_wake_up_that_failed_is_sent_later() {
        let (others, loops) = (WakeOthers::default(), WakeUpLoops::default());
        let flaky = Arc::new(Flaky { broken: 1.into(), ..Flaky::default() });
        loops.start_waking(others.clone(), flaky.clone());
        others.ask();
        eventually("a wake-up", async || flaky.sent.load(Ordering::SeqCst) == 1).await;
        loops.close().await;
    }

    #[tokio::test]
    async fn who_cannot_hear_says_so_and_tries_again() {
        let (woken, hears) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let loops = WakeUpLoops::default();
        loops.start_listening(Arc::new(Flaky::default()), woken.clone(), hears.clone());
        woken.notified().await;
        woken.notified().await; // again, after it broke
        loops.close().await;
        assert!(!hears.load(Ordering::SeqCst));
    }
}
