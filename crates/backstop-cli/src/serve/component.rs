//! What the daemon runs, whatever it is: the list of components, and what each step asks of them.

use std::pin::Pin;
use std::sync::Arc;

use backstop_core::inspect::Inspect;

use super::{letters, outboxes, queues};
use crate::config::{Sections, Settings};
use crate::handlers::Shared;

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A part of the daemon that the settings file names: made, shown, started and ended.
pub(super) trait Component: Send {
    /// Where it stands in the settings.
    fn path(&self) -> &str;

    /// What the dashboard shows of it, from before it is started.
    fn shown(&self) -> Vec<Arc<dyn Inspect>>;

    /// Its line when all have started; none for a component that only serves others.
    fn greeting(&self) -> Option<String> {
        None
    }

    /// Begins to work. There is nothing to do for what is ready once it is made.
    fn start(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Shows operators what its start waits for.
    fn waits_for(&self, _why: &str) {}

    /// Ends in order, also if it was never started.
    fn close(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Makes them all, in the order in which they are shown and started. Nothing is delivered yet.
pub(super) fn make(settings: Settings, sections: &Sections) -> anyhow::Result<Vec<Box<dyn Component>>> {
    // First the components that others need.
    let letters = letters::open(settings.dlq, sections)?;
    let mut components: Vec<Box<dyn Component>> = Vec::new();
    let shared = Shared::default();
    for outbox in outboxes::make(settings.outbox, &letters, &shared)? {
        components.push(Box::new(outbox));
    }
    for queue in queues::make(settings.queue, &letters, &shared)? {
        components.push(Box::new(queue));
    }
    for directory in letters.into_values() {
        components.push(Box::new(directory));
    }
    Ok(components)
}
