//! The directory as its writers see it.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::burial::{Bury, Cause};
use backstop_core::clock::Tick;
use backstop_core::inspect::{Inspect, Report};
use backstop_core::redact::redacted;
use backstop_core::{CloudEvent, Failure, telemetry};

use super::config::Setup;
use super::directory;
use super::look::Looking;
use super::record::{self, Details};
use super::writer::{self, Letter};
use crate::Error;
use crate::group_commit::GroupCommit;

/// A dead-letter directory that takes events. Behind an outbox it keeps a copy of each event that the outbox gives
/// up; a [`DlqSink`](super::DlqSink) puts it behind a sink. Cheap to clone: clones share one writer.
///
/// It is also a component for the dashboard, which shows how many letters are in it, and the oldest of them.
///
/// ```
/// use backstop_core::{Clock, CloudEvent, Event, SystemClock, burial::{Bury, Cause}};
/// use backstop_disk::dlq::{DeadLetters, Directory, Filter, Setup};
///
/// # let place = backstop_testkit::servers::directory();
/// # let path = place.path();
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let letters = DeadLetters::open(Setup::at(path).details(true))?;
/// // Outbox::single_node(pool).dead_letters(letters.clone()) …
///
/// let order = Event::of("OrderPlaced").id("42").json(&["tea"])?;
/// let cause = Cause::new("http-422: no tea", SystemClock.now()).attempts(3);
/// letters.towards("warehouse").bury(CloudEvent::of(&order, "/shop")?, cause).await.unwrap();
///
/// let found = Directory::open(path)?.entries(Filter::all()).next().unwrap()?.entry().unwrap();
/// let details = found.details.unwrap();
/// assert_eq!((found.error.as_str(), details.attempts), ("http-422: no tea", 3));
/// assert_eq!(details.target.as_deref(), Some("warehouse"));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct DeadLetters {
    shared: Arc<Shared>,
    target: Option<Arc<str>>,
}

/// So long after an event could not be stored, a directory that can be written to is well again.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Shared {
    settings: Setup,
    writer: GroupCommit<Letter>,
    metrics: Arc<telemetry::Dlq>,
    /// Why the last event could not be stored, and when that was; none after one that was stored.
    trouble: Mutex<Option<(String, Tick)>>,
    looking: Looking,
}

impl DeadLetters {
    /// Opens a directory, which must be usable: otherwise the error says what is wrong with it.
    pub fn open(setup: impl Into<Setup>) -> Result<Self, Error> {
        let settings = setup.into();
        settings.check()?;
        directory::prepare(&settings)?;
        let metrics = Arc::new(settings.metrics());
        let writer = writer::start(&settings, Arc::clone(&metrics))
            .map_err(|source| Error::Write { doing: "start the writer", source })?;
        let target = settings.target.as_deref().map(Arc::from);
        let (trouble, looking) = (Mutex::default(), Looking::default());
        Ok(Self { shared: Arc::new(Shared { settings, writer, metrics, trouble, looking }), target })
    }

    /// The same directory for events that were to go to `target`, which is recorded if [`Setup::details`] are
    /// written.
    pub fn towards(&self, target: impl Into<Arc<str>>) -> Self {
        Self { shared: Arc::clone(&self.shared), target: Some(target.into()) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.shared.settings.path()
    }

    /// What is counted.
    pub fn metrics(&self) -> &telemetry::Dlq {
        &self.shared.metrics
    }

    pub(super) fn settings(&self) -> &Setup {
        &self.shared.settings
    }

    /// Why the last event could not be stored, if it could not. After a while without another this is no longer told: the
    /// next event may be days away, and the directory is looked at meanwhile.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let (why, since) = trouble.as_ref()?;
        (self.settings().clock.ticks().since(*since) < FORGOTTEN).then(|| why.clone())
    }

    /// Stores an event. Passwords in URLs of the error are not written down.
    pub(super) async fn store(&self, event: &CloudEvent, cause: &Cause) -> Result<(), Error> {
        let stored = self.write(event, cause).await;
        let trouble = stored.as_ref().err().map(|error| (error.to_string(), self.settings().clock.ticks()));
        match trouble {
            None => self.metrics().stored.increment(),
            Some(_) => self.metrics().refused.increment(),
        }
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        stored
    }

    async fn write(&self, event: &CloudEvent, cause: &Cause) -> Result<(), Error> {
        let details = self.settings().config.details.then(|| Details::of(cause, self.target.as_deref()));
        let line = record::line(event, &redacted(&cause.error), details.as_ref())?;
        self.shared.writer.store(Letter { event: event.clone(), failed_at: cause.failed_at, line }).await
    }
}

impl Bury for DeadLetters {
    async fn bury(&self, event: CloudEvent, cause: Cause) -> Result<(), Failure> {
        self.store(&event, &cause)
            .await
            .map_err(|error| Failure::transient("dead-letters", error.to_string()))
    }
}

impl Inspect for DeadLetters {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(self.shared.looking.report(self))
    }
}
