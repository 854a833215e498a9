//! What one request says about an event and its target.

use std::time::Duration;

use crate::Failure;

/// What one request says about the event and about the target.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The target took the event.
    Done,
    /// The target is unavailable or asks us to wait. That says nothing about the event, unless others succeed meanwhile.
    Unavailable {
        /// The failure's class, for the case that others succeed: `http-503`, `timeout`.
        class: &'static str,
        /// How long the target asked us to wait, if it did.
        wait: Option<Duration>,
        /// Why it counts as unavailable, for the operator.
        why: String,
    },
    /// The target is gone for good; the text says what it answered.
    Gone(String),
    /// The target refused the event, or failed on it.
    Failed(Failure),
    /// The request was not made: its address is forbidden.
    Blocked(Failure),
}

/// The failure of an event that cannot be written in the format that its target reads.
///
/// ```
/// use backstop_core::failure::Kind;
///
/// let failure = backstop_core::target::unwritable(&std::fmt::Error);
/// assert_eq!((failure.kind(), failure.class()), (Kind::Permanent, "payload"));
/// ```
pub fn unwritable(error: &dyn std::error::Error) -> Failure {
    Failure::permanent("payload", format!("the event cannot be written as a CloudEvent: {error}"))
}
