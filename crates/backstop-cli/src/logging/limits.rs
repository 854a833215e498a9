//! A flood of one failure is one line, and then how many more there were: a log that cannot be read helps nobody, and a full
//! disk does harm.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use backstop_core::operate::AUDIT;
use backstop_core::repeats::Repeats;
use backstop_core::{Clock, SystemClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// How often the lines of one cause are told.
const INTERVAL: Duration = Duration::from_secs(10);

/// So many causes are told apart. Beyond that, lines that come from one place in the code are one cause.
const MOST_CAUSES: usize = 1_000;

/// What an event is called is no cause, nor are other moments and lists.
const NO_CAUSE: [&str; 6] = ["event_id", "aggregate_id", "after", "events", "took", "peer"];

/// Writes a line for each event, because somebody asked for it.
const ASKED_FOR: &str = "backstop::handlers::log";

/// Where what was left out is told.
const TOLD: &str = "backstop::log";

/// Lets the first line of a cause through, and then one in each interval. A cheap handle: clones share what they know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits(Arc<Mutex<HashMap<u64, Cause>>>);

#[derive(Debug)]
struct Cause {
    repeats: Repeats,
    /// The line that was let through, for those that were not.
    line: String,
}

impl Limits {
    /// Tells at the interval what was left out, for as long as the process lives.
    pub(crate) fn start(&self) {
        let limits = self.clone();
        // Without the thread lines are left out all the same, and it is told at the end how many.
        let _ = thread::Builder::new().name("log-limits".to_owned()).spawn(move || {
            loop {
                thread::sleep(INTERVAL);
                limits.tell();
            }
        });
    }

    /// Tells what was left out since it was last told.
    pub(crate) fn tell(&self) {
        let untold: Vec<_> = {
            let mut causes = self.lock();
            let now = SystemClock.ticks();
            let untold = causes.values_mut().map(|cause| (cause.repeats.take_untold(), cause.line.clone()));
            let untold = untold.filter(|(count, _)| *count > 0).collect();
            // Those that ended long ago are forgotten; the others are let through again one by one.
            causes.retain(|_, cause| !cause.repeats.is_over(now, INTERVAL));
            untold
        };
        for (count, line) in untold {
            tracing::warn!(target: TOLD, count, line, "more lines like this one were left out");
        }
    }

    fn admits(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || [ASKED_FOR, TOLD, AUDIT].contains(&metadata.target()) {
            return true;
        }
        // Read before the lock: how a value is written is its own affair.
        let mut read = Read::new(metadata);
        event.record(&mut read);
        let (mut causes, cause) = (self.lock(), read.hasher.finish());
        let cause =
            if causes.contains_key(&cause) || causes.len() < MOST_CAUSES { cause } else { place(metadata) };
        let cause =
            causes.entry(cause).or_insert_with(|| Cause { repeats: Repeats::default(), line: read.line });
        // What was left out meanwhile is told by the thread.
        cause.repeats.admits(SystemClock.ticks(), INTERVAL)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Cause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Filter<S> for Limits {
    fn enabled(&self, _metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        self.admits(event)
    }
}

fn place(metadata: &Metadata<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.callsite().hash(&mut hasher);
    hasher.finish()
}

/// Reads what makes a cause: where the line comes from and its texts, without numbers and ids.
struct Read {
    hasher: DefaultHasher,
    line: String,
}

impl Read {
    fn new(metadata: &Metadata<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        metadata.callsite().hash(&mut hasher);
        Self { hasher, line: String::new() }
    }

    fn add(&mut self, field: &Field, text: &str) {
        if NO_CAUSE.contains(&field.name()) {
            return;
        }
        (field.name(), text).hash(&mut self.hasher);
        let _ = match field.name() {
            "message" => write!(self.line, "{text}"),
            name => write!(self.line, " {name}={text}"),
        };
    }
}

impl Visit for Read {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_u64(&mut self, _field: &Field, _value: u64) {}
    fn record_i64(&mut self, _field: &Field, _value: i64) {}
    fn record_f64(&mut self, _field: &Field, _value: f64) {}
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn lines(&self) -> Vec<String> {
            let bytes = std::mem::take(&mut *self.0.lock().unwrap());
            String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
        }
    }

    /// What is written while `work` logs through limits.
    fn logged(limits: &Limits, work: impl FnOnce()) -> Vec<String> {
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(limits.clone()));
        tracing::subscriber::with_default(subscriber, work);
        written.lines()
    }

    fn fails(event_id: &str, attempt: u32, error: &str) {
        tracing::warn!(event_id, attempt, error, "an event failed");
    }

    #[test]
    fn a_flood_of_one_failure_is_one_line_and_how_many_more_there_were() {
        let limits = Limits::default();
        let lines = logged(&limits, || {
            for number in 0..1_000 {
                fails(&format!("e-{number}"), number, "timeout");
                fails(&format!("e-{number}"), number, "schema");
            }
        });
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].contains("e-0") && lines[0].contains("timeout") && lines[1].contains("schema"));

        let told = logged(&limits, || limits.tell());
        assert_eq!(told.len(), 2, "{told:#?}");
        let timeout = told.iter().find(|line| line.contains("timeout")).unwrap();
        assert!(
            timeout.contains("count=999") && timeout.contains("an event failed error=timeout"),
            "{timeout}"
        );
        assert!(!timeout.contains("e-"), "it stands for many: {timeout}");
        assert_eq!(logged(&limits, || limits.tell()), [""; 0], "told once");
    }

    #[test]
    fn what_somebody_asked_for_and_what_is_for_debugging_is_not_limited() {
        let lines = logged(&Limits::default(), || {
            for _ in 0..20 {
                tracing::info!(target: ASKED_FOR, "event");
                tracing::debug!("details");
            }
        });
        assert_eq!(lines.len(), 40);
    }

    #[test]
    fn causes_beyond_those_that_are_told_apart_are_one() {
        let limits = Limits::default();
        let lines = logged(&limits, || {
            for number in 0..MOST_CAUSES * 3 {
                fails("e", 1, &format!("cannot read id-{number}"));
            }
        });
        assert_eq!(lines.len(), MOST_CAUSES + 1);
        assert_eq!(limits.lock().len(), MOST_CAUSES + 1);
    }
}
