//! What Backstop logs during one test, caught as lines.

use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::lock;

/// While there is only one subscriber, tracing lets the thread that comes to a line first say whether the line
/// matters to anybody, and that may be another test's. With a second one it asks them all.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Catches what Backstop logs on this thread until it is dropped. On a current-thread runtime, as `#[tokio::test]` has
/// it, all tasks share the thread.
///
/// ```
/// use backstop_testkit::logs::Logs;
/// use tracing::Level;
///
/// let logs = Logs::catch();
/// tracing::warn!(target: "backstop_sql", event_id = "42", "an event is late");
/// assert_eq!(logs.having(Level::WARN, "late"), ["message=an event is late event_id=\"42\" "]);
/// assert!(logs.having(Level::ERROR, "").is_empty(), "{}", logs.all());
/// ```
#[derive(Debug)]
pub struct Logs {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Debug, Clone, Default)]
struct Lines {
    caught: Arc<Mutex<Vec<(Level, String)>>>,
    of_all: bool,
}

impl Logs {
    /// Begins to catch.
    pub fn catch() -> Self {
        Self::into_lines(Lines::default())
    }

    /// Begins to catch what others log too, such as drivers.
    ///
    /// ```
    /// use backstop_testkit::logs::Logs;
    ///
    /// let logs = Logs::catch_all();
    /// tracing::debug!(target: "sqlx", "connected");
    /// assert!(logs.all().contains("connected"));
    /// ```
    pub fn catch_all() -> Self {
        Self::into_lines(Lines { of_all: true, ..Lines::default() })
    }

    fn into_lines(lines: Lines) -> Self {
        LazyLock::force(&ANOTHER);
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
        Self { lines, _guard: guard }
    }

    /// The lines of a level that contain a text.
    pub fn having(&self, level: Level, text: &str) -> Vec<String> {
        let lines = lock(&self.lines.caught);
        lines
            .iter()
            .filter(|(of, line)| *of == level && line.contains(text))
            .map(|(_, line)| line.clone())
            .collect()
    }

    /// Every line, for messages.
    pub fn all(&self) -> String {
        let lines = lock(&self.lines.caught);
        lines.iter().map(|(level, line)| format!("{level} {line}")).collect::<Vec<_>>().join("\n")
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !self.of_all && !event.metadata().target().starts_with("backstop") {
            return;
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        lock(&self.caught).push((*event.metadata().level(), line.0));
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
