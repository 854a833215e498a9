//! Burial: a copy of an event that was given up is also kept somewhere else.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::{CloudEvent, Failure, Timestamp};

/// Why an event was given up, and what was tried before.
///
/// ```
/// use backstop_core::{Clock, SystemClock, burial::Cause};
///
/// let cause = Cause::new("http-422: no such product", SystemClock.now()).attempts(3);
/// assert_eq!((cause.error.as_str(), cause.attempts), ("http-422: no such product", 3));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What went wrong last, with its causes.
    pub error: String,
    /// How many attempts there were.
    pub attempts: u32,
    /// When the first attempt failed, where that is known.
    pub first_failed_at: Option<Timestamp>,
    /// When the last attempt failed.
    pub failed_at: Timestamp,
}

impl Cause {
    /// One attempt, which failed at that moment.
    pub fn new(error: impl Into<String>, failed_at: Timestamp) -> Self {
        Self { error: error.into(), attempts: 1, first_failed_at: Some(failed_at), failed_at }
    }

    /// How many attempts there were. If there was more than one, it is not known when the first one failed.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self.first_failed_at = self.first_failed_at.filter(|_| attempts <= 1);
        self
    }
}

/// Keeps events that were given up. A dead-letter directory is one; a closure is another:
///
/// ```
/// use backstop_core::{Clock, CloudEvent, Event, Failure, SystemClock, burial::{Bury, Cause, SharedBurial}};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let ledger = SharedBurial::new(|event: CloudEvent, cause: Cause| async move {
///     println!("{} is dead: {}", event.id(), cause.error);
///     Ok::<(), Failure>(())
/// });
///
/// let order = Event::of_json("OrderPlaced", "{}")?;
/// let cause = Cause::new("timeout: no answer", SystemClock.now());
/// ledger.bury(CloudEvent::of(&order, "/shop")?, cause).await.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub trait Bury: Send + Sync + 'static {
    /// Keeps one event. `Ok` means that it is safe there.
    fn bury(&self, event: CloudEvent, cause: Cause) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<F, Fut, E> Bury for F
where
    F: Fn(CloudEvent, Cause) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
{
    async fn bury(&self, event: CloudEvent, cause: Cause) -> Result<(), Failure> {
        self(event, cause).await.map_err(Into::into)
    }
}

/// Any burial behind one type, cheap to clone: what an outbox holds.
#[derive(Clone)]
pub struct SharedBurial(Arc<dyn Erased>);

impl SharedBurial {
    /// Shares a burial.
    pub fn new(burial: impl Bury) -> Self {
        Self(Arc::new(burial))
    }
}

impl Bury for SharedBurial {
    async fn bury(&self, event: CloudEvent, cause: Cause) -> Result<(), Failure> {
        self.0.bury_boxed(event, cause).await
    }
}

impl fmt::Debug for SharedBurial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedBurial")
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// `Bury` with its future boxed, because a trait that returns `impl Future` makes no trait objects.
trait Erased: Send + Sync {
    fn bury_boxed(&self, event: CloudEvent, cause: Cause) -> BoxFuture<'_, Result<(), Failure>>;
}

impl<B: Bury> Erased for B {
    fn bury_boxed(&self, event: CloudEvent, cause: Cause) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(self.bury(event, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    #[tokio::test]
    async fn a_closure_is_a_burial_and_its_error_becomes_a_failure() {
        let event = CloudEvent::of(&Event::of_json("E", "{}").unwrap(), "/test").unwrap();
        let full = SharedBurial::new(|_, _| async { Err(std::io::Error::other("no room")) });
        let refused = full.bury(event, Cause::new("timeout", Timestamp::UNIX_EPOCH)).await;
        assert_eq!(refused.unwrap_err().to_string(), "error: no room");
    }

    #[test]
    fn only_of_a_single_try_is_it_known_when_the_first_one_failed() {
        let cause = Cause::new("timeout", Timestamp::UNIX_EPOCH);
        assert_eq!(cause.clone().attempts(1).first_failed_at, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(cause.attempts(2).first_failed_at, None);
    }
}
