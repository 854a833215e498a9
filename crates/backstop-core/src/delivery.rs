//! From a handler's answer to what is written down: the answers, the settlements, and the one place that decides.

use std::sync::Arc;
use std::time::Duration;

use crate::redact::redacted;
use crate::retry::{Decision, Jitter, Retry};
use crate::{Event, Failure, Timestamp};

/// An event on its way to a handler: which attempt it is, where it comes from and where it goes.
///
/// ```
/// use backstop_core::Delivery;
///
/// async fn ship(delivery: Delivery) -> Result<(), backstop_core::Failure> {
///     let order: Vec<String> = delivery.event.payload()?;
///     if delivery.attempt > 1 {
///         println!("attempt {} for {order:?}, which waits since {}", delivery.attempt, delivery.since);
///     }
///     Ok(())
/// }
/// # let _ = ship;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The event.
    pub event: Event,
    /// Which call of its handler this is, from 1 on. Calls that deferred the event are not counted.
    pub attempt: u32,
    /// The name of the outbox, queue or binding that it comes from.
    pub component: Arc<str>,
    /// The handler that it goes to, by what it is registered for: `Order/OrderPlaced`.
    pub route: Arc<str>,
    /// When the event was appended, and since when it has waited.
    pub since: Timestamp,
}

impl Delivery {
    /// The first delivery of an event without a component or a route, for tests.
    pub fn first(event: Event) -> Self {
        let (since, route) = (event.occurred_at(), event.event_type().into());
        Self { event, attempt: 1, component: "".into(), route, since }
    }

    /// The same at another attempt.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The first delivery of an event that comes from a component and goes to a route.
    pub fn on_its_way(event: Event, component: &Arc<str>, route: &Arc<str>) -> Self {
        let since = event.occurred_at();
        Self { event, attempt: 1, component: component.clone(), route: route.clone(), since }
    }
}

/// The answer of a handler that returned normally. Errors are a [`Failure`].
///
/// ```
/// use std::time::Duration;
/// use backstop_core::Outcome;
///
/// assert_eq!(Outcome::from(()), Outcome::done());
/// assert_eq!(Outcome::retry_after(Duration::from_secs(5)), Outcome::RetryAfter(Duration::from_secs(5)));
/// assert_eq!(Outcome::dead_because("the order was cancelled").reason(), Some("the order was cancelled"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The event was handled.
    Done,
    /// Not yet: come back after this time. No attempt is counted, so an event may be deferred any number of times
    /// without dying.
    RetryAfter(Duration),
    /// Never: bury the event at once, with the reason if there is one.
    Dead(Option<String>),
}

impl Outcome {
    /// The event was handled.
    pub fn done() -> Self {
        Self::Done
    }

    /// Defer the event without counting an attempt.
    pub fn retry_after(delay: Duration) -> Self {
        Self::RetryAfter(delay)
    }

    /// Bury the event without a reason.
    pub fn dead() -> Self {
        Self::Dead(None)
    }

    /// Bury the event; an operator will read the reason.
    pub fn dead_because(reason: impl Into<String>) -> Self {
        Self::Dead(Some(reason.into()))
    }

    /// The reason given with [`Outcome::Dead`].
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Dead(reason) => reason.as_deref(),
            Self::Done | Self::RetryAfter(_) => None,
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// What is written about an event after it was handed to its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Handled.
    Done,
    /// Deferred by the handler; no attempt is counted.
    Deferred {
        /// How long, from now on.
        after: Duration,
    },
    /// Failed; another attempt follows, and this one is counted.
    Retry {
        /// How long to wait, from now on.
        after: Duration,
        /// Why, for the operator.
        error: String,
    },
    /// Buried: given up, visibly.
    Dead {
        /// Why, for the operator.
        error: String,
    },
}

impl Settlement {
    /// How long the event waits, if it does.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::Deferred { after } | Self::Retry { after, .. } => Some(*after),
            Self::Done | Self::Dead { .. } => None,
        }
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Retry { error, .. } | Self::Dead { error } => Some(error),
            Self::Done | Self::Deferred { .. } => None,
        }
    }
}

/// Decides about an event whose handler has answered, where `attempts` had failed before this one.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::{Failure, Outcome, delivery::{Settlement, decide}, retry::{Jitter, Retry}};
///
/// let retry = Retry::default(); // ten attempts
/// assert_eq!(decide(&retry, 0, Ok(Outcome::Done), Jitter::NONE), Settlement::Done);
///
/// let failed = || Err(Failure::transient("timeout", "no answer"));
/// assert!(matches!(decide(&retry, 8, failed(), Jitter::NONE), Settlement::Retry { .. }));
/// assert!(matches!(decide(&retry, 9, failed(), Jitter::NONE), Settlement::Dead { .. }));
/// ```
pub fn decide(retry: &Retry, attempts: u32, answer: Result<Outcome, Failure>, jitter: Jitter) -> Settlement {
    match answer {
        Ok(Outcome::Done) => Settlement::Done,
        Ok(Outcome::RetryAfter(after)) => Settlement::Deferred { after },
        Ok(Outcome::Dead(reason)) => {
            // A fixed text, because nothing would wipe the error of an earlier attempt.
            let error = reason.map(|reason| redacted(&reason).into_owned());
            Settlement::Dead { error: error.unwrap_or_else(|| "the handler gave the event up".to_owned()) }
        }
        Err(failure) => match retry.decide(attempts.saturating_add(1), &failure, jitter) {
            // Who can hold a route does so, and does not ask here.
            Decision::Defer { after } => Settlement::Deferred { after },
            Decision::Retry { after } => Settlement::Retry { after, error: failure.to_string() },
            Decision::Bury => Settlement::Dead { error: failure.to_string() },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_settlement() {
        let retry = Retry { max_attempts: 3, ..Retry::default() };
        let settled = |attempts, answer| decide(&retry, attempts, answer, Jitter::NONE);
        let minute = Duration::from_secs(60);

        assert_eq!(settled(0, Ok(Outcome::Done)), Settlement::Done);
        assert_eq!(settled(99, Ok(Outcome::RetryAfter(minute))), Settlement::Deferred { after: minute });
        assert_eq!(
            settled(0, Ok(Outcome::dead_because("refused"))),
            Settlement::Dead { error: "refused".into() }
        );
        assert_eq!(
            settled(0, Ok(Outcome::dead_because("https://joe:s3cret@h/ is closed"))),
            Settlement::Dead { error: "https://***@h/ is closed".into() }
        );
        assert_eq!(
            settled(0, Ok(Outcome::dead())),
            Settlement::Dead { error: "the handler gave the event up".into() }
        );
        assert_eq!(
            settled(1, Err(Failure::transient("timeout", "slow"))),
            Settlement::Retry { after: Duration::from_millis(400), error: "timeout: slow".into() }
        );
        assert_eq!(
            settled(1, Err(Failure::retry_after(minute))),
            Settlement::Retry { after: minute, error: "retry-after".into() }
        );
        assert_eq!(
            settled(2, Err(Failure::retry_after(minute))),
            Settlement::Dead { error: "retry-after".into() }
        );
        assert_eq!(
            settled(0, Err(Failure::permanent("schema", "no total"))),
            Settlement::Dead { error: "schema: no total".into() }
        );
    }

    /// Rules: O-393.
    #[test]
    fn outcomes_are_made_by_name_and_dead_may_carry_a_reason() {
        let second = Duration::from_secs(1);
        assert_eq!(Outcome::done(), Outcome::Done);
        assert_eq!(Outcome::retry_after(second), Outcome::RetryAfter(second));
        assert_eq!(Outcome::dead(), Outcome::Dead(None));
        assert_eq!(Outcome::dead_because("no"), Outcome::Dead(Some("no".into())));
        assert_eq!(Outcome::dead().reason(), None);
    }
}
