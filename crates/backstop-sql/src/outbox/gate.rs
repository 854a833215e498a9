//! Whether events may be delivered: not while their results cannot be written.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Open, troubled, or shut until settlements can be written again.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Debug, Default)]
struct State {
    trouble: Option<Trouble>,
    closed: bool,
}

/// What is wrong with settlements, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// How many events were handled and not recorded.
    pub(super) events: usize,
    /// What the database said.
    pub(super) error: String,
    /// Whether deliveries are stopped because of it.
    pub(super) shut: bool,
}

impl Gate {
    /// Sets what is wrong, and whether deliveries are stopped because of it. Returns whether that is news.
    pub(super) fn set(&self, trouble: Trouble) -> bool {
        let mut state = self.lock();
        let news = state.trouble.as_ref().is_none_or(|before| before.shut != trouble.shut);
        let opens = !trouble.shut;
        state.trouble = Some(trouble);
        if opens {
            self.opened.notify_waiters();
        }
        news
    }

    /// Says what is wrong, and stays as open as it is.
    pub(super) fn note(&self, events: usize, error: &str) {
        let mut state = self.lock();
        let shut = state.trouble.as_ref().is_some_and(|trouble| trouble.shut);
        state.trouble = Some(Trouble { events, error: error.to_owned(), shut });
    }

    /// Nothing is wrong any more. Returns whether something was.
    pub(super) fn clear(&self) -> bool {
        let was = self.lock().trouble.take();
        self.opened.notify_waiters();
        was.is_some()
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.lock().trouble.clone()
    }

    pub(super) fn is_shut(&self) -> bool {
        self.lock().trouble.as_ref().is_some_and(|trouble| trouble.shut)
    }

    /// Waits while it is shut. False if nothing is delivered any more because the dispatcher closes.
    pub(super) async fn opens(&self) -> bool {
        while self.is_shut() {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            // Registered before the question, so that no opening is missed between the two.
            opened.as_mut().enable();
            let (shut, closed) = {
                let state = self.lock();
                (state.trouble.as_ref().is_some_and(|trouble| trouble.shut), state.closed)
            };
            match (shut, closed) {
                (false, _) => return true,
                (true, true) => return false,
                (true, false) => opened.await,
            }
        }
        true
    }

    /// Ends the waiting of those who wait for it to open: it will not.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.opened.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn trouble(shut: bool) -> Trouble {
        Trouble { events: 1, error: "no".into(), shut }
    }

    #[test]
    fn who_waits_goes_on_when_it_opens_and_ends_when_it_closes() {
        let gate = Gate::default();
        assert_eq!(gate.opens().now_or_never(), Some(true));
        assert!(gate.set(trouble(false)), "news");
        assert_eq!(gate.opens().now_or_never(), Some(true), "trouble alone stops nobody");
        assert!(gate.set(trouble(true)) && !gate.set(trouble(true)));
        assert!(gate.is_shut());
        let mut waiting = Box::pin(gate.opens());
        assert_eq!((&mut waiting).now_or_never(), None);
        assert!(gate.clear() && !gate.clear());
        assert_eq!(waiting.now_or_never(), Some(true));
        gate.set(trouble(true));
        let mut waiting = Box::pin(gate.opens());
        assert_eq!((&mut waiting).now_or_never(), None);
        gate.close();
        assert_eq!(waiting.now_or_never(), Some(false));
    }
}
