//! A background loop that is started once and closed once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Shutdown;

/// Idle, running or closed, and never back.
///
/// ```
/// use backstop_core::lifecycle::Lifecycle;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let counting = Lifecycle::default();
/// assert!(counting.start(|shutdown| async move { shutdown.begun().await }));
/// counting.close("counting").await;
/// assert!(!counting.start(|_| async {}), "it does not come back");
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Lifecycle {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Running(Shutdown, JoinHandle<()>),
    /// Signals that the loop has ended, to those who close again.
    Closed(Option<watch::Receiver<()>>),
}

impl Lifecycle {
    /// One whose loop runs from the beginning.
    pub fn started<F>(run: impl FnOnce(Shutdown) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let lifecycle = Self::default();
        let _ = lifecycle.start(run); // it is idle
        lifecycle
    }

    /// Starts the loop. If it runs already, nothing happens; false if it was closed, since it cannot be started
    /// again.
    #[must_use = "a closed loop cannot be started again"]
    pub fn start<F>(&self, run: impl FnOnce(Shutdown) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.lock();
        match *state {
            State::Closed(_) => return false,
            State::Running(..) => {}
            State::Idle => {
                let shutdown = Shutdown::new();
                *state = State::Running(shutdown.clone(), tokio::spawn(run(shutdown)));
            }
        }
        true
    }

    /// Ends the loop and waits for it. If the caller stops waiting, the loop still ends, and the next call waits for
    /// it.
    pub async fn close(&self, name: &'static str) {
        if let Some(mut end) = self.begin_to_close(name) {
            let _ = end.changed().await; // an error: it has ended
        }
    }

    /// The end of the loop, if there is one.
    fn begin_to_close(&self, name: &'static str) -> Option<watch::Receiver<()>> {
        let mut state = self.lock();
        let end = match std::mem::take(&mut *state) {
            State::Idle => None,
            State::Running(shutdown, task) => {
                shutdown.begin();
                let (ends, end) = watch::channel(());
                tokio::spawn(async move {
                    if let Err(panic) = task.await {
                        tracing::error!(%panic, name, "a background loop ended early");
                    }
                    drop(ends);
                });
                Some(end)
            }
            State::Closed(end) => end,
        };
        *state = State::Closed(end.clone());
        end
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        matches!(*self.lock(), State::Closed(_))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loop that nobody can close any more stops by itself.
impl Drop for Lifecycle {
    fn drop(&mut self) {
        if let State::Running(shutdown, _) = &*self.lock() {
            shutdown.begin();
        }
    }
}
