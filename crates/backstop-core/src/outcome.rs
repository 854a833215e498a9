//! What a handler says about an event it was given.

use std::time::Duration;

/// The answer of a handler that returned normally. Errors are a [`Failure`](crate::Failure).
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
    /// Not yet: come back after this time. The attempts stay as they are, so an event may be put off
    /// any number of times without dying.
    RetryAfter(Duration),
    /// Never: bury the event at once, with the reason if there is one.
    Dead(Option<String>),
}

impl Outcome {
    /// The event was handled.
    pub fn done() -> Self {
        Self::Done
    }

    /// Put the event off without counting an attempt.
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

#[cfg(test)]
mod tests {
    use super::*;

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
