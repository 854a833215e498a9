//! One signal that tells every loop to finish what it holds and end.

use tokio_util::sync::CancellationToken;

/// A signal that begins once and stays begun. Clones share it; a [`child`](Shutdown::child) can begin alone.
///
/// ```
/// use backstop_core::Shutdown;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let shutdown = Shutdown::new();
/// let poller = shutdown.child();
/// poller.begin();
/// assert!(!shutdown.has_begun());
///
/// shutdown.begin();
/// shutdown.begun().await; // returns at once: the signal is a state, not an event that can be missed
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// A signal that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// A signal that begins with this one, or earlier by itself.
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }

    /// Tells everybody. Doing so again has no effect.
    pub fn begin(&self) {
        self.0.cancel();
    }

    /// Whether the signal has begun.
    pub fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the signal begins.
    pub async fn begun(&self) {
        self.0.cancelled().await;
    }

    /// Runs `work` until it ends or the signal begins, whichever comes first; `None` if the signal won.
    pub async fn interrupts<F: Future>(&self, work: F) -> Option<F::Output> {
        self.0.run_until_cancelled(work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_begins_with_its_parent_but_not_the_other_way_round() {
        let parent = Shutdown::new();
        let (first, second) = (parent.child(), parent.child());
        first.begin();
        assert!(!parent.has_begun() && !second.has_begun());
        parent.begin();
        assert!(second.has_begun());
    }

    #[tokio::test]
    async fn work_is_interrupted_only_once_the_signal_has_begun() {
        let shutdown = Shutdown::new();
        assert_eq!(shutdown.interrupts(async { 7 }).await, Some(7));
        shutdown.begin();
        assert_eq!(shutdown.interrupts(std::future::pending::<()>()).await, None);
    }
}
