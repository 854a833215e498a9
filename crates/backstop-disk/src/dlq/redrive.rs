//! Redriving: sending failed events again, and removing them once they have arrived.

use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::operate::AUDIT;
use backstop_core::{Clock, Failure, Sink, SystemClock, failure};
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

/// After how many deliveries they are recorded in the directory. A crash sends at most this many again.
const BATCH: usize = 64;

/// The longest single wait for a sink that is unavailable, so that progress is reported and a sink that is back early
/// is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// And the shortest.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Sends entries to a sink, the oldest first. An entry is removed only after the sink has said that it has it;
/// one that fails stays where it is.
///
/// What was sent is remembered on the disk, every 64 events and at the end: a file by being gone, a line of a
/// file with many events by a mark. So a redrive that crashed is simply started again. It sends the entries that were
/// there when it began; events that fail meanwhile are left for the next redrive.
///
/// A failure that says when to try again ([`Failure::retry_after`]) is about the sink and not about the event: a
/// [target](backstop_core::target) is unavailable, for example. Then the redrive waits and sends the same entry
/// again. When its [patience](Self::patience) is over it stops, and leaves that entry and all after it as they are.
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
    after: Option<Place>,
    patience: Duration,
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
    /// The last entry that was dealt with.
    pub last: Option<Place>,
    /// What the sink said last when it did not take one.
    pub last_failure: Option<String>,
    /// Set while it waits for a sink that is unavailable.
    pub waiting: Option<Unavailable>,
    /// Set if it stopped, because the sink was unavailable for longer than its patience.
    pub stopped: Option<Unavailable>,
}

/// A sink that is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unavailable {
    /// The entry that waits for it. It was not taken, and no entry after it was sent.
    pub at: Place,
    /// How long the sink asked us to wait.
    pub wait: Duration,
    /// What the sink said.
    pub why: String,
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
            patience: Duration::from_secs(600),
            on_progress: Box::new(|_| {}),
        }
    }

    /// Counts and sends nothing. Defaults to false.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sends at most this many in a second. Defaults to no limit, which 0 means too.
    pub fn per_second(mut self, events: u32) -> Self {
        self.per_second = NonZeroU32::new(events);
        self
    }

    /// Stops after this many. Defaults to all.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = Some(events);
        self
    }

    /// Begins after a place, such as [`Progress::last`] of an earlier redrive. Defaults to the beginning.
    pub fn after(mut self, place: &Place) -> Self {
        self.after = Some(place.clone());
        self
    }

    /// How long it waits in all for a sink that is unavailable; the time starts again with each event that the sink
    /// takes. If the sink asks for more time than is left, the redrive stops at once. Defaults to 10 minutes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use backstop_core::{CloudEvent, Failure};
    /// use backstop_disk::dlq::{Directory, Filter};
    ///
    /// # let place = backstop_testkit::servers::directory();
    /// # std::fs::write(place.file("1767225600000-7.jsonl"),
    /// #     r#"{"event":{"id":"7","source":"/shop","type":"OrderPlaced"},"error":"timeout"}"#).unwrap();
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let closed = |_: CloudEvent| async { Err::<(), _>(Failure::retry_after(Duration::from_secs(3600))) };
    /// let redrive = Directory::open(place.path())?.redrive(Filter::all()).patience(Duration::from_secs(60));
    /// let done = redrive.to(closed).await?;
    /// assert_eq!(done.stopped.unwrap().at, "1767225600000-7.jsonl".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Reports how far it is: after each entry, and before each wait.
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
        let (_dropped_with_the_future, dropped) = channel();
        let runtime = Handle::current();
        let send = move |entry: &Entry| runtime.block_on(sink.emit(entry.event.clone()));
        let run = spawn_blocking(move || Run::new(self, dropped).run(send));
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

/// A redrive under way, on a thread that may block.
struct Run {
    redrive: Redrive,
    /// Nothing is ever sent through it: its other end is dropped when the caller goes away.
    dropped: Receiver<()>,
    progress: Progress,
    /// How long it has waited since the sink last took an event.
    waited: Duration,
}

/// How sending an entry ended.
enum Fate {
    Sent,
    Left,
    /// Nothing: the sink is unavailable, or the caller is gone.
    Untried,
}

/// How sending a file's entries ended.
#[derive(Default)]
struct Outcome {
    /// Lines that were sent and are not marked yet.
    sent: Vec<u64>,
    any_sent: bool,
    any_left: bool,
    any_marked: bool,
}

impl Run {
    fn new(redrive: Redrive, dropped: Receiver<()>) -> Self {
        Self { redrive, dropped, progress: Progress::default(), waited: Duration::ZERO }
    }

    fn run(mut self, mut send: impl FnMut(&Entry) -> Result<(), Failure>) -> Result<Progress, Error> {
        let directory = self.redrive.directory.clone();
        let unreadable = |source| directory.unreadable(source);
        let first = self.redrive.after.as_ref().map(|place| place.file().to_owned());
        let names = Pages::new(&directory).from(first).so_far().map_err(unreadable)?;
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
        let nameless = directory.letters_without_text().map_err(unreadable)?.filter_map(Result::ok);
        let filter = &self.redrive.filter;
        self.progress.damaged += nameless.filter(|it| filter.may_be_in(it.place.file())).count() as u64;
        self.audit();
        Ok(self.progress)
    }

    fn is_over(&self) -> bool {
        self.dropped.try_recv() == Err(TryRecvError::Disconnected)
            || self.progress.stopped.is_some()
            || self.redrive.limit.is_some_and(|limit| self.progress.matched >= limit)
    }

    /// Sends what matches in a file; true if the file was removed.
    fn redrive_file(
        &mut self,
        name: &str,
        begun: Tick,
        send: &mut impl FnMut(&Entry) -> Result<(), Failure>,
    ) -> bool {
        let Some(mut letters) = self.hold(name) else { return false };
        let mut outcome = Outcome::default();
        for found in letters.by_ref() {
            if self.is_over() {
                outcome.any_left = true;
                break;
            }
            let place = found.place().clone();
            if self.redrive.after.as_ref().is_some_and(|after| place <= *after) {
                outcome.any_left = true;
                continue;
            }
            match self.redrive_one(found, begun, send) {
                Fate::Sent => {
                    outcome.any_sent = true;
                    outcome.sent.push(place.line());
                }
                Fate::Left => outcome.any_left = true,
                Fate::Untried => {
                    outcome.any_left = true;
                    break;
                }
            }
            self.progress.last = Some(place);
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
            Outcome { any_marked, sent, .. } => {
                let is_removed = self.remove(name, any_marked || letters.was_sent_in_part());
                if !is_removed {
                    self.progress.not_removed += sent.len() as u64;
                }
                is_removed
            }
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

    fn redrive_one(
        &mut self,
        found: Found,
        begun: Tick,
        send: &mut impl FnMut(&Entry) -> Result<(), Failure>,
    ) -> Fate {
        let Some(entry) = found.entry() else {
            self.progress.damaged += 1;
            return Fate::Left;
        };
        if !self.redrive.filter.matches(&entry) {
            return Fate::Left;
        }
        let before = self.progress.matched;
        self.progress.matched += 1;
        if self.redrive.dry_run {
            return Fate::Left;
        }
        if !self.sleep(too_early(self.redrive.per_second, before, SystemClock.ticks().since(begun))) {
            return Fate::Untried;
        }
        self.send(&entry, send)
    }

    /// Sends an entry until the sink has it, refuses it, or is unavailable for too long.
    fn send(&mut self, entry: &Entry, send: &mut impl FnMut(&Entry) -> Result<(), Failure>) -> Fate {
        loop {
            let Err(failure) = send(entry) else {
                self.progress.delivered += 1;
                self.waited = Duration::ZERO;
                return Fate::Sent;
            };
            let wait = match failure.kind() {
                failure::Kind::RetryAfter(wait) => Some(wait),
                failure::Kind::Unavailable(wait) => Some(wait.unwrap_or(SHORTEST_WAIT)),
                _ => None,
            };
            let Some(wait) = wait else {
                self.progress.failed += 1;
                self.progress.last_failure = Some(failure.to_string());
                return Fate::Left;
            };
            if !self.wait_for_sink(Unavailable { at: entry.place.clone(), wait, why: failure.to_string() }) {
                return Fate::Untried;
            }
        }
    }

    /// False if its patience is over, or if the caller went away meanwhile.
    fn wait_for_sink(&mut self, unavailable: Unavailable) -> bool {
        // A sink that asks for no time at all uses up patience too.
        let asked = unavailable.wait.max(SHORTEST_WAIT);
        if asked > self.redrive.patience.saturating_sub(self.waited) {
            self.progress.stopped = Some(unavailable);
            return false;
        }
        let wait = asked.min(LONGEST_WAIT);
        self.waited += wait;
        self.progress.waiting = Some(unavailable);
        (self.redrive.on_progress)(&self.progress);
        self.progress.waiting = None;
        self.sleep(wait)
    }

    /// False if the caller went away meanwhile.
    fn sleep(&self, time: Duration) -> bool {
        time.is_zero() || self.dropped.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }

    /// Marks that are lost mean that events are sent again, and nothing worse.
    fn mark(&self, name: &str, sent: &[u64]) -> bool {
        Marks::add(&self.redrive.directory, name, sent).is_ok()
    }

    fn remove(&self, name: &str, has_marks: bool) -> bool {
        let Directory { path, filesystem } = &self.redrive.directory;
        if filesystem.remove(&path.join(name)).is_err() {
            return false;
        }
        // After its file: the other way round a crash in between would send everything again.
        if has_marks {
            let _ = filesystem.remove(&path.join(name::marks(name)));
        }
        true
    }

    /// The log says later where an event went.
    fn audit(&self) {
        let Progress { matched, delivered, failed, not_removed, damaged, .. } = self.progress;
        let directory = self.redrive.directory.path.display();
        if !self.redrive.dry_run {
            info!(target: AUDIT, %directory, matched, delivered, failed, not_removed, damaged, "a redrive has ended");
        }
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
