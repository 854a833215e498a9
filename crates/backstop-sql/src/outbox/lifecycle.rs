//! A background loop that is started once and closed once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use backstop_core::Shutdown;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::task::JoinHandle;

use crate::{BoxFuture, Error};

/// Idle, running or closed, and never back.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Running(Shutdown, JoinHandle<()>),
    /// With the end of the loop, if there was one, for whoever closes again.
    Closed(Option<Shared<BoxFuture<'static, ()>>>),
}

impl Lifecycle {
    /// Starts the loop. Starting what runs has no effect; starting what was closed is an error.
    pub(super) fn start<F>(&self, run: impl FnOnce(Shutdown) -> F, closed: &'static str) -> Result<(), Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.lock();
        match *state {
            State::Closed(_) => return Err(Error::State(closed)),
            State::Running(..) => {}
            State::Idle => {
                let shutdown = Shutdown::new();
                *state = State::Running(shutdown.clone(), tokio::spawn(run(shutdown)));
            }
        }
        Ok(())
    }

    /// Ends the loop and waits for it. Given up, the loop still ends, and whoever closes next waits for it.
    pub(super) async fn close(&self, name: &'static str) {
        if let Some(end) = self.begin_to_close(name) {
            end.await;
        }
    }

    /// The end of the loop, if there is one.
    fn begin_to_close(&self, name: &'static str) -> Option<Shared<BoxFuture<'static, ()>>> {
        let mut state = self.lock();
        let end = match std::mem::take(&mut *state) {
            State::Idle => None,
            State::Running(shutdown, task) => {
                shutdown.begin();
                let end: BoxFuture<'static, ()> = Box::pin(async move {
                    if let Err(panic) = task.await {
                        tracing::error!(%panic, name, "a background loop ended early");
                    }
                });
                Some(end.shared())
            }
            State::Closed(end) => end,
        };
        *state = State::Closed(end.clone());
        end
    }

    pub(super) fn is_closed(&self) -> bool {
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
