//! The log of one test, caught as lines. Works on a current-thread runtime, where all tasks share the thread.

use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// While there is only one subscriber, tracing lets the thread that comes to a line first say whether the line
/// matters to anybody, and that may be another test's. With a second one it asks them all.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Catches what is logged on this thread until it is dropped.
pub(crate) struct Logs {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Logs {
    pub(crate) fn catch() -> Self {
        LazyLock::force(&ANOTHER);
        let lines = Lines::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
        Self { lines, _guard: guard }
    }

    /// The lines of a level that contain a text.
    pub(crate) fn having(&self, level: Level, text: &str) -> Vec<String> {
        let lines = self.lines.0.lock().unwrap();
        lines
            .iter()
            .filter(|(of, line)| *of == level && line.contains(text))
            .map(|(_, line)| line.clone())
            .collect()
    }

    /// Every line, for messages.
    pub(crate) fn all(&self) -> String {
        let lines = self.lines.0.lock().unwrap();
        lines.iter().map(|(level, line)| format!("{level} {line}")).collect::<Vec<_>>().join("\n")
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("backstop") {
            return;
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
