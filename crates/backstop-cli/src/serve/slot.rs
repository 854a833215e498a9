//! The place of a component on the dashboard, from before it is started.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use backstop_core::inspect::{Health, Inspect, Report};

/// Shows a component as down until it is started, and then the component itself.
pub(super) struct Slot {
    kind: &'static str,
    name: String,
    inspect: OnceLock<Arc<dyn Inspect>>,
}

impl Slot {
    pub(super) fn new(kind: &'static str, name: &str) -> Self {
        Self { kind, name: name.to_owned(), inspect: OnceLock::new() }
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
                Report {
                    kind: self.kind,
                    name: self.name.clone(),
                    health: Health::Down("it is starting".to_owned()),
                    places: vec![],
                    flows: vec![],
                    troubled: vec![],
                }
            }),
        }
    }
}
