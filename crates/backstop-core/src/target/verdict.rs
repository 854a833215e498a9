//! What a try says about an event and its target, and what follows for the event.

use std::time::Duration;

use crate::failure::Kind;
use crate::{Failure, Outcome};

/// What a try says about the event and about the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The target took the event.
    Done,
    /// The target is away or asks for patience; the event is as good as before.
    Unavailable {
        /// For how long the target asked to be left alone, if it did.
        wait: Option<Duration>,
        /// Why it counts as away, for the operator.
        why: String,
    },
    /// The target is gone for good; the text says what it answered.
    Gone(String),
    /// The target refused the event, or failed on it.
    Failed(Refusal),
    /// The request was not made: its address is forbidden.
    Blocked(Refusal),
}

/// A failure that can be told to every event of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it means for the event.
    pub kind: Kind,
    /// The failure's class.
    pub class: String,
    /// What happened, for the operator.
    pub message: String,
}

impl Refusal {
    /// One that may not come again.
    pub fn transient(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: Kind::Transient, class: class.into(), message: message.into() }
    }

    /// One that the same event will meet each time.
    pub fn permanent(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: Kind::Permanent, class: class.into(), message: message.into() }
    }

    /// One of an event that cannot be said in the format that the target reads.
    ///
    /// ```
    /// use backstop_core::failure::Kind;
    /// use backstop_core::target::Refusal;
    ///
    /// let refusal = Refusal::unwritable(&std::fmt::Error);
    /// assert_eq!((refusal.kind, refusal.class.as_str()), (Kind::Permanent, "payload"));
    /// ```
    pub fn unwritable(error: &dyn std::error::Error) -> Self {
        Self::permanent("payload", format!("the event cannot be written as a CloudEvent: {error}"))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, class, message } = refusal;
        match kind {
            Kind::Permanent => Failure::permanent(class, message),
            Kind::RetryAfter(delay) => Failure::retry_after(delay).class_is(class).message_is(message),
            _ => Failure::transient(class, message),
        }
    }
}

/// What is told to the outbox about one event: as its handler would say it, and so that a whole batch can be told the same.
pub type Ruling = Result<Outcome, Refusal>;
