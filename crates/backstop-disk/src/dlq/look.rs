//! What the dashboard shows of the directory: how many letters are in it, and the oldest of them.
//!
//! A disk may hang, and a directory may hold millions of files: one thread looks at a time, counts up to a cap, and
//! its result is used for a while.

use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read};
use std::thread;
use std::time::Duration;

use backstop_core::event::GLOBAL;
use backstop_core::inspect::{Count, Flow, Health, Place, Report, Troubled};
use backstop_core::look::{FRESH, STALE, Shared, good_for};
use backstop_core::{Clock, CloudEvent, SystemClock, Timestamp};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

use super::config::Setup;
use super::dead_letters::DeadLetters;
use super::{directory, name, record};

/// Counting stops here: beyond it "10,000+" says enough.
const COUNT_CAP: usize = 10_000;

/// This many of the oldest are shown, if they are not longer than [`SHOWN_BYTES`].
const SHOWN: usize = 10;
const SHOWN_BYTES: u64 = 256 * 1024;

/// How long a look is waited for. A disk that takes longer hangs, as far as an operator is concerned.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks at the directory for everybody who asks.
#[derive(Debug, Default)]
pub(super) struct Looking {
    last: Shared<Look>,
    /// The look that is under way, also when nobody waits for it any more.
    running: Mutex<Option<oneshot::Receiver<(Look, Duration)>>>,
}

/// What was found.
#[derive(Debug, Clone)]
struct Look {
    health: Health,
    files: Option<Count>,
    oldest: Vec<Troubled>,
}

impl Looking {
    pub(super) async fn report(&self, letters: &DeadLetters) -> Report {
        let Look { health, files, oldest } = self.look(letters.settings()).await;
        let health = match (health, letters.trouble()) {
            (Health::Up, Some(why)) => Health::Degraded(format!("the last event was not stored: {why}")),
            (health, _) => health,
        };
        Report {
            places: files.map(|count| stored(letters.settings(), count)).into_iter().collect(),
            flows: flows(letters),
            troubled: oldest,
            ..Report::of("dead letters", letters.settings().shown_name(), health)
        }
    }

    async fn look(&self, settings: &Setup) -> Look {
        let Ok(look) = self.last.ask(self.wait_for_one(settings)).await;
        look
    }

    /// Waits for the look under way, or begins one. That it found nothing out is an answer too.
    async fn wait_for_one(&self, settings: &Setup) -> Result<(Look, Duration), Infallible> {
        let mut running = self.running.lock().await;
        let answer = timeout(PATIENCE, running.get_or_insert_with(|| begin(settings.clone()))).await;
        if answer.is_ok() {
            *running = None;
        }
        Ok(match answer {
            Ok(Ok((look, took))) => (look, good_for(took)),
            Ok(Err(_)) => (Look::down("it could not be looked into"), STALE),
            // The thread goes on, and the next caller gets its result.
            Err(_) => (Look::down("its disk does not answer"), FRESH),
        })
    }
}

/// Begins a look on a thread that nobody waits for when the process ends.
fn begin(settings: Setup) -> oneshot::Receiver<(Look, Duration)> {
    let (sender, receiver) = oneshot::channel();
    // Without a thread the sender is dropped, which says that nobody looks.
    let _ = thread::Builder::new().name("backstop-dlq-look".to_owned()).spawn(move || {
        let began = SystemClock.ticks();
        let look = Look::at(&settings);
        let _ = sender.send((look, SystemClock.ticks().since(began)));
    });
    receiver
}

impl Look {
    fn at(settings: &Setup) -> Self {
        let (count, oldest) = match names(settings) {
            Ok(found) => found,
            Err(error) => return Self::down(&format!("it cannot be read: {error}")),
        };
        let health = match directory::probe(settings) {
            Ok(()) => Health::Up,
            Err(error) => Health::Down(format!("it cannot be written to: {error}")),
        };
        let oldest = oldest.iter().filter_map(|name| shown(settings, name).ok().flatten()).collect();
        Self { health, files: Some(count), oldest }
    }

    fn down(why: &str) -> Self {
        Self { health: Health::Down(why.to_owned()), files: None, oldest: Vec::new() }
    }
}

/// How many files there are, up to the cap, and the oldest of those, the oldest first.
fn names(settings: &Setup) -> io::Result<(Count, Vec<String>)> {
    let mut count = 0;
    let mut oldest = BinaryHeap::with_capacity(SHOWN + 1);
    for name in settings.filesystem.names(settings.path())? {
        match name?.into_string() {
            Ok(name) if name::is_letter(&name) => oldest.push(name),
            Err(name) if name::of_letter_that_is_no_text(&name).is_some() => {}
            _ => continue,
        }
        count += 1;
        if oldest.len() > SHOWN {
            oldest.pop();
        }
        if count == COUNT_CAP {
            break;
        }
    }
    Ok((Count::up_to(COUNT_CAP as u64, count as u64), oldest.into_sorted_vec()))
}

/// The first event of a file; nothing if it is damaged, or too long for a page.
fn shown(settings: &Setup, name: &str) -> io::Result<Option<Troubled>> {
    let file = settings.filesystem.open(&settings.path().join(name))?;
    let mut line = Vec::new();
    BufReader::new(file.take(SHOWN_BYTES)).read_until(b'\n', &mut line)?;
    let Ok(record) = record::read(&line) else { return Ok(None) };
    let failed_at = record.details.as_ref().map(|details| details.last_failed_at).or(name::failed_at(name));
    let attempts = record.details.map_or(0, |details| details.attempts);
    Ok(Some(troubled(&record.event, record.error, attempts, failed_at)))
}

fn troubled(event: &CloudEvent, error: String, attempts: u32, failed_at: Option<Timestamp>) -> Troubled {
    // An event that others have written may break our rules; it still has its id and type.
    let ours = event.to_event().ok();
    let failed_at = failed_at.unwrap_or(Timestamp::UNIX_EPOCH);
    Troubled {
        id: event.id().to_owned(),
        event_type: event.event_type().to_owned(),
        aggregate_type: ours.as_ref().map_or(GLOBAL, |event| event.aggregate_type()).to_owned(),
        aggregate_id: ours.as_ref().and_then(|event| event.aggregate_id()).map(str::to_owned),
        place: STORED,
        attempts,
        error: Some(error),
        occurred_at: ours.map_or(failed_at, |event| event.occurred_at()),
        next_attempt_at: None,
    }
}

const STORED: &str = "stored";

fn stored(settings: &Setup, count: Count) -> Place {
    let meaning = if settings.config.rolling.enabled {
        "Files with failed events. Nothing happens until somebody sends them again or purges them."
    } else {
        "Failed events, a file each. Nothing happens until somebody sends them again or purges them."
    };
    Place { name: STORED, meaning, count }
}

fn flows(letters: &DeadLetters) -> Vec<Flow> {
    let metrics = letters.metrics();
    let flow = |name, meaning, total| Flow { name, meaning, total };
    vec![
        flow("stored", "Put into the directory, safe from a crash.", metrics.stored.total()),
        flow("refused", "Could not be stored; their senders still have them.", metrics.refused.total()),
    ]
}
