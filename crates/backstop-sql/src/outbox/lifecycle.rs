//! A background loop that is started once and closed once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use backstop_core::Shutdown;
use tokio::task::JoinHandle;

use crate::Error;

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
    Closed,
}

impl Lifecycle {
    /// Starts the loop. Starting what runs has no effect; starting what was closed is an error.
    pub(super) fn start<F>(&self, run: impl FnOnce(Shutdown) -> F, closed: &'static str) -> Result<(), Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.lock();
        match *state {
            State::Closed => return Err(Error::State(closed)),
            State::Running(..) => {}
            State::Idle => {
                let shutdown = Shutdown::new();
                *state = State::Running(shutdown.clone(), tokio::spawn(run(shutdown)));
            }
        }
        Ok(())
    }

    /// Ends the loop and waits for it. Closing again has no effect.
    pub(super) async fn close(&self, name: &'static str) {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        if let State::Running(shutdown, task) = state {
            shutdown.begin();
            if let Err(panic) = task.await {
                tracing::error!(%panic, name, "a background loop ended early");
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.lock(), State::Closed)
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
