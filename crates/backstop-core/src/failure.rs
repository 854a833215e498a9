//! Failures with a class that operators and settings can name, and a kind that decides what happens next.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::PayloadError;
use crate::redact::redacted;

/// What a failure means for the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// May succeed next time: retried by the policy, counted as an attempt.
    Transient,
    /// Will never succeed: the event is buried at once.
    Permanent,
    /// May succeed after this time: retried then, counted as an attempt.
    RetryAfter(Duration),
    /// Says nothing about the event: what its handler needs is unavailable. The route is held, with no attempt counted,
    /// until a probe succeeds; the time says when to probe, if the handler knows.
    Unavailable(Option<Duration>),
}

/// An error of a handler, with a *class* (a stable name such as `timeout`, `http-503`, `schema`) and a [`Kind`].
///
/// Any error converts into a transient failure, so `?` works in a handler. The one exception is a
/// [`PayloadError`], also when another error wraps it: reading the same bytes again gives the same
/// error, so it is permanent.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::{Failure, failure::Kind};
///
/// let failure: Failure = std::io::Error::other("connection reset").into();
/// assert_eq!((failure.class(), failure.kind()), ("error", Kind::Transient));
///
/// let busy = Failure::retry_after(Duration::from_secs(30)).class_is("http-429").message_is("slow down");
/// assert_eq!(busy.to_string(), "http-429: slow down");
/// ```
///
/// A clone shares the cause, so that one failure can be told to every event of a batch.
#[derive(Clone)]
pub struct Failure {
    class: Cow<'static, str>,
    kind: Kind,
    message: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that may pass.
    pub fn transient(class: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Kind::Transient, class).message_is(message)
    }

    /// A failure that will not pass, however often it is tried.
    pub fn permanent(class: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Kind::Permanent, class).message_is(message)
    }

    /// A failure that says when to try again. It counts as an attempt, unlike
    /// [`Outcome::RetryAfter`](crate::Outcome::RetryAfter).
    pub fn retry_after(delay: Duration) -> Self {
        Self::new(Kind::RetryAfter(delay), "retry-after")
    }

    /// A failure that says nothing about the event: what the handler needs, such as the target of a relay, is unavailable. No
    /// attempt is counted and nothing is written; the handler's route is held, and probed with single events until one
    /// succeeds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use backstop_core::{Failure, failure::Kind};
    ///
    /// let closed = Failure::unavailable("the warehouse is closed").probe_after(Duration::from_secs(60));
    /// assert_eq!(closed.kind(), Kind::Unavailable(Some(Duration::from_secs(60))));
    /// assert_eq!(closed.to_string(), "unavailable: the warehouse is closed");
    /// ```
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable(None), "unavailable").message_is(why)
    }

    /// Says when an [unavailable](Self::unavailable) route is to be probed. Without it probes come soon at first, then every
    /// 5 s.
    pub fn probe_after(mut self, wait: Duration) -> Self {
        self.kind = Kind::Unavailable(Some(wait));
        self
    }

    /// Any error as a failure: a failure stays what it is, also in a box, and anything else is transient, unless it says
    /// that the payload cannot be read.
    pub fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        let error = match error.downcast::<Boxed>() {
            Ok(boxed) => return boxed.0,
            Err(error) => error,
        };
        let unreadable = causes(Some(&*error)).any(<dyn Error>::is::<PayloadError>);
        let failure = if unreadable {
            Self::new(Kind::Permanent, "payload")
        } else {
            Self::new(Kind::Transient, "error")
        };
        failure.caused_by(error)
    }

    fn new(kind: Kind, class: impl Into<Cow<'static, str>>) -> Self {
        Self { class: class.into(), kind, message: None, source: None }
    }

    /// Knows when to come back, and counts as an attempt.
    pub fn retried_after(mut self, delay: Duration) -> Self {
        self.kind = Kind::RetryAfter(delay);
        self
    }

    /// Names the class.
    pub fn class_is(mut self, class: impl Into<Cow<'static, str>>) -> Self {
        self.class = class.into();
        self
    }

    /// Says what happened, in words for an operator.
    pub fn message_is(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Keeps the error that caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The class, a stable name.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// What the failure means for the event.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether trying again can help.
    pub fn is_recoverable(&self) -> bool {
        self.kind != Kind::Permanent
    }

    /// Whether it says nothing about the event, because what the handler needs is unavailable.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable(_))
    }

    /// The delay that a [`Kind::RetryAfter`] failure carries.
    pub fn delay(&self) -> Option<Duration> {
        match self.kind {
            Kind::RetryAfter(delay) => Some(delay),
            Kind::Transient | Kind::Permanent | Kind::Unavailable(_) => None,
        }
    }

    /// The message, if one was given.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The error that caused it, if one was kept.
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Writes class, message and the chain of causes on one line, without saying anything twice and without
/// [secrets](crate::redact): HTTP clients like to quote the URL, and this text goes into tables, files and logs.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.class.to_string();
        let mut last = Cow::Borrowed(self.message().unwrap_or_default());
        if !last.is_empty() {
            told.extend([": ", &last]);
        }
        for cause in causes(self.source()) {
            let text = cause.to_string();
            if !last.contains(&text) {
                told.extend([": ", &text]);
                last = Cow::Owned(text);
            }
        }
        f.write_str(&redacted(&told))
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({:?}, {self})", self.kind)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::of(error.into())
    }
}

impl From<Failure> for Box<dyn Error + Send + Sync> {
    fn from(failure: Failure) -> Self {
        Box::new(Boxed(failure))
    }
}

/// A failure as an error. `Failure` itself is not an error, so that any error can become one.
#[derive(Debug)]
struct Boxed(Failure);

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Boxed {}

fn causes<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |error: &&'a (dyn Error + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    /// Rules: O-395, O-396, O-397.
    #[test]
    fn a_retry_after_failure_carries_its_delay_and_optionally_a_message_and_a_cause() {
        let delay = Duration::from_secs(9);
        let bare = Failure::retry_after(delay);
        assert_eq!(bare.delay(), Some(delay));
        assert!(bare.is_recoverable());
        assert!(bare.message().is_none() && bare.source().is_none());

        let told = Failure::retry_after(delay).message_is("busy");
        assert_eq!((told.message(), told.source().is_some()), (Some("busy"), false));

        let caused = Failure::retry_after(delay).caused_by("reset by peer");
        assert_eq!(
            (caused.message(), caused.source().unwrap().to_string().as_str()),
            (None, "reset by peer")
        );

        let both = Failure::retry_after(delay).message_is("busy").caused_by("reset by peer");
        assert_eq!(both.delay(), Some(delay));
        assert_eq!(both.to_string(), "retry-after: busy: reset by peer");
    }

    #[test]
    fn no_failure_tells_a_password_that_stands_in_a_url() {
        let refused =
            std::io::Error::other("error sending request for url (https://joe:s3cret@h/?token=t0p)");
        let failure = Failure::from(refused).message_is("GET //joe:s3cret@h failed");
        assert_eq!(
            failure.to_string(),
            "error: GET //***@h failed: error sending request for url (https://***@h/?token=***"
        );
        assert!(!format!("{failure:?}").contains("s3cret"));
    }

    #[test]
    fn any_error_is_a_transient_failure_but_an_unreadable_payload_is_permanent() {
        #[derive(Debug, thiserror::Error)]
        #[error("shipping failed")]
        struct Shipping(#[source] PayloadError);

        assert_eq!(Failure::from(std::io::Error::other("x")).kind(), Kind::Transient);

        let event = Event::of_json("OrderPlaced", "{}").unwrap();
        let unreadable = event.payload::<Vec<u8>>().unwrap_err();
        let failure = Failure::from(Shipping(unreadable));
        assert_eq!((failure.kind(), failure.class()), (Kind::Permanent, "payload"));
        assert!(failure.to_string().starts_with("payload: shipping failed: "), "{failure}");
    }
}
