//! A handler that fails on purpose.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use backstop_core::handler::SharedHandler;
use backstop_core::{Event, Failure, Handler, Outcome};

use crate::lock;

/// Fails a number of times for each event, then succeeds.
///
/// ```
/// use backstop_core::{Event, Failure, Handler, Outcome};
/// use backstop_testkit::handlers::Failing;
///
/// # backstop_testkit::suite::block_on(async {
/// let handler = Failing::times(2).with(|| Failure::transient("timeout", "no answer within 5 s"));
/// let event = Event::of_json("OrderPlaced", "{}").unwrap();
///
/// assert_eq!(handler.handle(event.clone()).await.unwrap_err().class(), "timeout");
/// assert!(handler.handle(event.clone()).await.is_err());
/// assert_eq!(handler.handle(event.clone()).await.unwrap(), Outcome::Done);
/// assert_eq!(handler.tries_of(event.id()), 3);
/// # });
/// ```
#[derive(Clone)]
pub struct Failing {
    /// `None` fails for ever.
    times: Option<u32>,
    failure: Arc<dyn Fn() -> Failure + Send + Sync>,
    then: Option<SharedHandler>,
    tries: Arc<Mutex<HashMap<String, u32>>>,
}

impl Failing {
    /// Fails this many times for each event id, then succeeds.
    pub fn times(times: u32) -> Self {
        Self::new(Some(times))
    }

    /// Never succeeds.
    pub fn always() -> Self {
        Self::new(None)
    }

    fn new(times: Option<u32>) -> Self {
        Self {
            times,
            failure: Arc::new(|| Failure::transient("test", "failed on purpose")),
            then: None,
            tries: Arc::default(),
        }
    }

    /// How it fails. Defaults to a transient failure of class `test`.
    pub fn with(mut self, failure: impl Fn() -> Failure + Send + Sync + 'static) -> Self {
        self.failure = Arc::new(failure);
        self
    }

    /// The handler that answers once the failures are over. Defaults to [`Outcome::Done`].
    pub fn then(mut self, handler: impl Handler) -> Self {
        self.then = Some(SharedHandler::new(handler));
        self
    }

    /// How often it was given the event of that id.
    pub fn tries_of(&self, event_id: &str) -> u32 {
        lock(&self.tries).get(event_id).copied().unwrap_or_default()
    }

    fn count(&self, event: &Event) -> u32 {
        let mut tries = lock(&self.tries);
        let count = tries.entry(event.id().to_owned()).or_default();
        *count += 1;
        *count
    }
}

impl Handler for Failing {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        let tries = self.count(&event);
        if self.times.is_none_or(|times| tries <= times) {
            return Err((self.failure)());
        }
        match &self.then {
            Some(handler) => handler.handle(event).await,
            None => Ok(Outcome::Done),
        }
    }
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failing")
            .field("times", &self.times)
            .field("tries", &lock(&self.tries))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::of_json("E", "{}").unwrap()
    }

    #[tokio::test]
    async fn each_event_fails_as_often_as_the_others() {
        let handler = Failing::times(1);
        let (first, second) = (event(), event());
        assert!(handler.handle(first.clone()).await.is_err());
        assert!(handler.handle(second.clone()).await.is_err());
        assert_eq!(handler.handle(first.clone()).await.unwrap(), Outcome::Done);
        assert_eq!((handler.tries_of(first.id()), handler.tries_of(second.id())), (2, 1));
        assert_eq!(handler.tries_of("never seen"), 0);
    }

    #[tokio::test]
    async fn a_clone_counts_with_the_original() {
        let kept = Failing::times(1);
        let given = SharedHandler::new(kept.clone());
        let event = event();
        assert!(given.handle(event.clone()).await.is_err());
        assert!(kept.handle(event).await.is_ok());
    }

    #[tokio::test]
    async fn always_means_always_and_with_the_failure_asked_for() {
        let handler = Failing::always().with(|| Failure::permanent("schema", "no total"));
        let event = event();
        for _ in 0..100 {
            let failure = handler.handle(event.clone()).await.unwrap_err();
            assert_eq!((failure.class(), failure.is_recoverable()), ("schema", false));
        }
    }

    #[tokio::test]
    async fn another_handler_answers_once_the_failures_are_over() {
        let handler = Failing::times(0).then(|_: Event| async { Outcome::dead() });
        assert_eq!(handler.handle(event()).await.unwrap(), Outcome::dead());
    }
}
