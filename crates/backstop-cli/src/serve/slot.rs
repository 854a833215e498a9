//! The place of a component on the dashboard, from before it is started.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use backstop_core::inspect::{Health, Inspect, Report};
use backstop_core::operate::Operate;

/// Shows a component as down until it is started, and then the component itself.
pub(super) struct Slot {
    kind: &'static str,
    name: String,
    /// Why it is not started yet.
    why: Mutex<String>,
    inspect: OnceLock<Arc<dyn Inspect>>,
}

impl Slot {
    pub(super) fn new(kind: &'static str, name: &str) -> Self {
        let why = Mutex::new("it is being started".to_owned());
        Self { kind, name: name.to_owned(), why, inspect: OnceLock::new() }
    }

    /// Shows why it cannot be started yet.
    pub(super) fn wait_for(&self, why: &str) {
        let told = format!("it cannot be started yet: {why}");
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    pub(super) fn fill(&self, inspect: Arc<dyn Inspect>) {
        // Filled once: a second call has the same component.
        let _ = self.inspect.set(inspect);
    }
}

impl Inspect for Slot {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        match self.inspect.get() {
            Some(inspect) => inspect.report(),
            None => Box::pin(async {
                let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Report::of(self.kind, &self.name, Health::Down(why))
            }),
        }
    }

    fn operable(&self) -> Option<&dyn Operate> {
        self.inspect.get()?.operable()
    }
}
