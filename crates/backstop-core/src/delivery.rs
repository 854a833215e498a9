//! From a handler's answer to what is written down: the one place that decides what becomes of an event.

use std::sync::Arc;
use std::time::Duration;

use crate::redact::redacted;
use crate::retry::{Decision, Jitter, Retry};
use crate::{Event, Failure, Outcome, Timestamp};

/// An event on its way to a handler, and what is known about that way.
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
    /// When the event was appended: so long has it waited.
    pub since: Timestamp,
}

impl Delivery {
    /// The first delivery of an event that comes from nowhere in particular, as tests make it.
    pub fn first(event: Event) -> Self {
        let (since, route) = (event.occurred_at(), event.event_type().into());
        Self { event, attempt: 1, component: "".into(), route, since }
    }

    /// The same at another attempt.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same on its way from a component to a handler.
    pub fn on_its_way(mut self, component: &Arc<str>, route: &Arc<str>) -> Self {
        (self.component, self.route) = (component.clone(), route.clone());
        self
    }
}

/// What is written about an event after it was handed to its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Handled.
    Done,
    /// Put off by the handler; no attempt is counted.
    Deferred {
        /// How long, from now on.
        after: Duration,
    },
    /// Failed; another try follows, and this one is counted.
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
    /// How long the event waits, where it does.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::Deferred { after } | Self::Retry { after, .. } => Some(*after),
            Self::Done | Self::Dead { .. } => None,
        }
    }

    /// Why it failed, where it did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Retry { error, .. } | Self::Dead { error } => Some(error),
            Self::Done | Self::Deferred { .. } => None,
        }
    }
}

/// Decides about an event whose handler has answered, where `attempts` tries had failed before this one.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::{Failure, Outcome, delivery::{Settlement, decide}, retry::{Jitter, Retry}};
///
/// let retry = Retry::default(); // ten tries
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
            // A fixed text, because nothing would wipe the error of an earlier try.
            let error = reason.map(|reason| redacted(&reason).into_owned());
            Settlement::Dead { error: error.unwrap_or_else(|| "the handler gave the event up".to_owned()) }
        }
        Err(failure) => {
            let error = failure.to_string();
            match retry.decide(attempts.saturating_add(1), &failure, jitter) {
                Decision::Retry { after } => Settlement::Retry { after, error },
                Decision::Bury => Settlement::Dead { error },
            }
        }
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
}
