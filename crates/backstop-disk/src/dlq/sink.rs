//! The wrapper: a sink that keeps the events that its inner sink could not take.

use backstop_core::burial::Cause;
use backstop_core::redact::redacted;
use backstop_core::{CloudEvent, Failure, SharedSink, Sink, telemetry};
use tracing::warn;

use super::activation;
use super::config::Setup;
use super::dead_letters::DeadLetters;
use crate::Error;

/// A sink around another. An event that the inner sink does not take is written to a directory, and counts as
/// taken once it is safe there. Cheap to clone.
///
/// If it cannot be written either, the caller gets the inner sink's own failure, so that nothing is lost silently:
/// after `emit` an event is with the inner sink, in a complete file, or still with its caller.
///
/// ```
/// use backstop_core::{CloudEvent, Event, Failure, SharedSink, Sink};
/// use backstop_disk::dlq::{DlqSink, Setup};
///
/// # let place = backstop_testkit::servers::directory();
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let closed = SharedSink::new(|_: CloudEvent| async { Err::<(), _>(Failure::transient("http-503", "closed")) });
/// let sink = DlqSink::open(closed, Setup::at(place.path()))?;
///
/// let order = Event::of("OrderPlaced").id("42").json(&["tea"])?;
/// sink.emit(CloudEvent::of(&order, "/shop")?).await.unwrap();
///
/// let file = std::fs::read_dir(place.path())?.next().unwrap()?;
/// assert!(file.file_name().to_str().unwrap().ends_with("-42.jsonl"));
/// assert!(std::fs::read_to_string(file.path())?.ends_with(",\"error\":\"http-503: closed\"}\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct DlqSink {
    inner: SharedSink,
    letters: DeadLetters,
}

impl DlqSink {
    /// Wraps a sink, with a directory that must be usable: otherwise the error says what is wrong with it.
    pub fn open(inner: SharedSink, setup: impl Into<Setup>) -> Result<Self, Error> {
        Ok(Self { inner, letters: DeadLetters::open(setup)? })
    }

    /// Wraps a sink if the environment names a directory, in `BACKSTOP_DLQ_DIR` or else in `CELLOS_DLQ_DIR`.
    ///
    /// Without either this returns the sink itself. It does the same if the directory does not exist or cannot be
    /// written to, but with a warning in the log: the directory is neither created nor replaced by another.
    ///
    /// ```
    /// use backstop_core::{CloudEvent, Failure, SharedSink};
    /// use backstop_disk::dlq::DlqSink;
    ///
    /// let sink = SharedSink::new(|_: CloudEvent| async { Ok::<(), Failure>(()) });
    /// let safe = DlqSink::from_env(sink.clone());
    /// # if std::env::var_os("BACKSTOP_DLQ_DIR").is_none() && std::env::var_os("CELLOS_DLQ_DIR").is_none() {
    /// assert!(safe.is(&sink)); // neither variable is set here
    /// # }
    /// ```
    pub fn from_env(inner: SharedSink) -> SharedSink {
        activation::activate(inner, |name| std::env::var_os(name))
    }

    /// What is counted.
    pub fn metrics(&self) -> &telemetry::Dlq {
        self.letters.metrics()
    }
}

impl Sink for DlqSink {
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        match self.inner.emit(event.clone()).await {
            Ok(()) => Ok(()),
            Err(failure) => self.keep(&event, failure).await,
        }
    }
}

impl DlqSink {
    async fn keep(&self, event: &CloudEvent, failure: Failure) -> Result<(), Failure> {
        let cause = Cause::new(failure.to_string(), self.letters.settings().clock.now());
        let stored = self.letters.store(event, &cause).await;
        let error = redacted(&cause.error);
        match stored {
            Ok(()) => {
                warn!(
                    event_id = event.id(),
                    error = &*error,
                    "an event failed and is in the dead-letter directory"
                );
                Ok(())
            }
            Err(stored) => {
                warn!(
                    event_id = event.id(),
                    error = &*error,
                    dlq_error = %stored,
                    "an event failed and could not be stored; its sender gets the error"
                );
                Err(failure)
            }
        }
    }
}
