//! Redriving: sending again what failed, and removing it once it has arrived.

use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::{Clock, Sink, SystemClock};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tracing::info;

use super::directory::Directory;
use super::entry::{Entry, Found, Place};
use super::filter::Filter;
use super::letters::Letters;
use super::marks::Marks;
use super::name;
use super::pages::Pages;
use crate::Error;

/// After how many deliveries the directory is made to remember them. A crash sends at most this many again.
const BATCH: usize = 64;

/// Sends entries to a sink, the oldest first. An entry is removed only after the sink has said that it has it;
/// one that fails stays where it is.
///
/// What was sent is remembered on the disk, every 64 events and at the end: a file by being gone, a line of a
/// file with many events by a mark. So a redrive that crashed is simply started again. It sends what was there
/// when it began: what fails anew meanwhile is left for the next one.
///
/// ```
/// use backstop_core::{CloudEvent, Failure};
/// use backstop_disk::dlq::{Directory, Filter};
///
/// # let place = backstop_testkit::servers::directory();
/// # std::fs::write(place.file("1767225600000-7.jsonl"),
/// #     r#"{"event":{"id":"7","source":"/shop","type":"OrderPlaced"},"error":"timeout"}"#).unwrap();
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let warehouse = |_: CloudEvent| async { Ok::<(), Failure>(()) };
/// let directory = Directory::open(place.path())?;
///
/// let would = directory.redrive(Filter::all()).dry_run(true).to(warehouse).await?;
/// assert_eq!((would.matched, would.delivered), (1, 0));
///
/// let timeouts = Filter::all().error_contains("timeout");
/// let done = directory.redrive(timeouts).per_second(100).to(warehouse).await?;
/// assert_eq!((done.delivered, done.failed), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "nothing is sent until `to` is called"]
pub struct Redrive {
    directory: Directory,
    filter: Filter,
    dry_run: bool,
    per_second: Option<NonZeroU32>,
    limit: Option<u64>,
    after: Option<String>,
    on_progress: Box<dyn FnMut(&Progress) + Send>,
}

/// How far a redrive is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Entries that matched.
    pub matched: u64,
    /// Those that the sink has taken.
    pub delivered: u64,
    /// Those that it did not take; they stay.
    pub failed: u64,
    /// Those that were delivered and could not be removed: they will be sent again.
    pub not_removed: u64,
    /// Files or lines that are damaged; they stay.
    pub damaged: u64,
    /// Files that are being written to, or sent by somebody else.
    pub busy: u64,
    /// The last entry that was looked at.
    pub last: Option<Place>,
    /// What the sink said last when it did not take one.
    pub last_failure: Option<String>,
}

impl Redrive {
    pub(super) fn new(directory: Directory, filter: Filter) -> Self {
        Self {
            directory,
            filter,
            dry_run: false,
            per_second: None,
            limit: None,
            after: None,
            on_progress: Box::new(|_| {}),
        }
    }

    /// Counts and sends nothing. Defaults to false.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sends at most this many in a second. Defaults to no limit; so does 0.
    pub fn per_second(mut self, events: u32) -> Self {
        self.per_second = NonZeroU32::new(events);
        self
    }

    /// Stops after this many. Defaults to all.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = Some(events);
        self
    }

    /// Begins behind a place, as [`Progress::last`] of an earlier one told. Defaults to the beginning.
    pub fn after(mut self, place: &Place) -> Self {
        self.after = Some(place.file().to_owned());
        self
    }

    /// Tells how far it is, after each entry.
    pub fn on_progress(mut self, tell: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.on_progress = Box::new(tell);
        self
    }

    /// Sends. Dropping the future ends it after the entry that is being sent.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and if the sink panics.
    pub async fn to(self, sink: impl Sink) -> Result<Progress, Error> {
        let dropped = Arc::new(AtomicBool::new(false));
        let _guard = SetOnDrop(Arc::clone(&dropped));
        let runtime = Handle::current();
        let send = move |entry: &Entry| {
            runtime.block_on(sink.emit(entry.event.clone())).map_err(|it| it.to_string())
        };
        let run =
            spawn_blocking(move || Run { redrive: self, dropped, progress: Progress::default() }.run(send));
        match run.await {
            Ok(done) => done,
            Err(stopped) => match stopped.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::WriterEnded),
            },
        }
    }
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive")
            .field("directory", &self.directory)
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A redrive under way, on a thread that may block.
struct Run {
    redrive: Redrive,
    dropped: Arc<AtomicBool>,
    progress: Progress,
}

/// What became of a file's entries.
#[derive(Default)]
struct Outcome {
    /// Lines that were sent and are not marked yet.
    sent: Vec<u64>,
    any_sent: bool,
    any_left: bool,
    any_marked: bool,
}

impl Run {
    fn run(mut self, mut send: impl FnMut(&Entry) -> Result<(), String>) -> Result<Progress, Error> {
        let directory = self.redrive.directory.clone();
        let unreadable = |source| directory.unreadable(source);
        let names = Pages::new(&directory).after(self.redrive.after.take()).so_far().map_err(unreadable)?;
        let begun = SystemClock.ticks();
        let mut unsynced = 0;
        for name in names {
            let name = name.map_err(unreadable)?;
            if self.is_over() {
                break;
            }
            if self.redrive.filter.may_be_in(&name) && self.redrive_file(&name, begun, &mut send) {
                unsynced += 1;
            }
            if unsynced >= BATCH {
                self.sync();
                unsynced = 0;
            }
        }
        if unsynced > 0 {
            self.sync();
        }
        self.audit();
        Ok(self.progress)
    }

    fn is_over(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
            || self.redrive.limit.is_some_and(|limit| self.progress.matched >= limit)
    }

    /// Sends what matches in a file; true if the file was removed.
    fn redrive_file(
        &mut self,
        name: &str,
        begun: Tick,
        send: &mut impl FnMut(&Entry) -> Result<(), String>,
    ) -> bool {
        let Some(mut letters) = self.hold(name) else { return false };
        let mut outcome = Outcome::default();
        for found in letters.by_ref() {
            if self.is_over() {
                outcome.any_left = true;
                break;
            }
            self.progress.last = Some(found.place().clone());
            let line = found.place().line();
            if self.redrive_one(found, begun, send) {
                outcome.any_sent = true;
                outcome.sent.push(line);
            } else {
                outcome.any_left = true;
            }
            if outcome.sent.len() >= BATCH && self.mark(name, &outcome.sent) {
                outcome.sent.clear();
                outcome.any_marked = true;
            }
            (self.redrive.on_progress)(&self.progress);
        }
        match outcome {
            Outcome { any_sent: false, .. } => false,
            Outcome { any_left: true, sent, .. } => {
                if !sent.is_empty() && !self.mark(name, &sent) {
                    self.progress.not_removed += sent.len() as u64;
                }
                false
            }
            Outcome { any_marked, .. } => self.remove(name, any_marked || letters.was_sent_in_part()),
        }
    }

    /// Opens a file and keeps others away from it.
    fn hold(&mut self, name: &str) -> Option<Letters> {
        let directory = &self.redrive.directory;
        let held = if self.redrive.dry_run {
            Letters::open(directory, name).map(Some)
        } else {
            Letters::hold(directory, name)
        };
        match held {
            Ok(Some(letters)) => return Some(letters),
            Ok(None) => self.progress.busy += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => self.progress.damaged += 1,
        }
        None
    }

    /// True if the sink has it.
    fn redrive_one(
        &mut self,
        found: Found,
        begun: Tick,
        send: &mut impl FnMut(&Entry) -> Result<(), String>,
    ) -> bool {
        let Some(entry) = found.entry() else {
            self.progress.damaged += 1;
            return false;
        };
        if !self.redrive.filter.matches(&entry) {
            return false;
        }
        let before = self.progress.matched;
        self.progress.matched += 1;
        if self.redrive.dry_run {
            return false;
        }
        std::thread::sleep(too_early(self.redrive.per_second, before, SystemClock.ticks().since(begun)));
        match send(&entry) {
            Ok(()) => {
                self.progress.delivered += 1;
                true
            }
            Err(failure) => {
                self.progress.failed += 1;
                self.progress.last_failure = Some(failure);
                false
            }
        }
    }

    /// Marks that are lost mean that events are sent again, and nothing worse.
    fn mark(&self, name: &str, sent: &[u64]) -> bool {
        Marks::add(&self.redrive.directory, name, sent).is_ok()
    }

    fn remove(&mut self, name: &str, has_marks: bool) -> bool {
        let Directory { path, filesystem } = &self.redrive.directory;
        if filesystem.remove(&path.join(name)).is_err() {
            self.progress.not_removed += 1;
            return false;
        }
        // After its file: the other way round a crash in between would send everything again.
        if has_marks {
            let _ = filesystem.remove(&path.join(name::marks(name)));
        }
        true
    }

    /// Whoever asks later where an event went finds it in the log.
    fn audit(&self) {
        let Progress { matched, delivered, failed, not_removed, damaged, .. } = self.progress;
        let (directory, dry_run) = (self.redrive.directory.path.display(), self.redrive.dry_run);
        info!(%directory, dry_run, matched, delivered, failed, not_removed, damaged, "a redrive has ended");
    }

    /// A removal that a crash undoes means that an event is sent again, so a failure here is no reason to stop.
    fn sync(&self) {
        let Directory { path, filesystem } = &self.redrive.directory;
        let _ = filesystem.sync_directory(path);
    }
}

/// How long to wait before the next event, so that they do not exceed their rate.
fn too_early(per_second: Option<NonZeroU32>, sent: u64, elapsed: Duration) -> Duration {
    let Some(per_second) = per_second else { return Duration::ZERO };
    let due = Duration::from_nanos(sent.saturating_mul(1_000_000_000 / u64::from(per_second.get())));
    due.saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_spread_over_the_second() {
        let ten = NonZeroU32::new(10);
        let millis = Duration::from_millis;
        assert_eq!(too_early(None, 5, Duration::ZERO), Duration::ZERO);
        assert_eq!(too_early(ten, 0, Duration::ZERO), Duration::ZERO);
        assert_eq!(too_early(ten, 1, Duration::ZERO), millis(100));
        assert_eq!(too_early(ten, 30, millis(2_950)), millis(50));
        assert_eq!(too_early(ten, 30, millis(3_500)), Duration::ZERO);
    }
}
