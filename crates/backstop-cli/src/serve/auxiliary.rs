//! What stands beside outboxes and queues on the dashboard: targets of relays and dead-letter directories.

use std::pin::Pin;
use std::sync::Arc;

use backstop_core::inspect::{Health, Inspect, Report};
use backstop_core::operate::Operate;

/// A part that the daemon can work without: when it is down, the daemon is degraded. A daemon must not be restarted
/// by its `/health` because a receiver of events is unavailable.
pub(super) struct Auxiliary {
    inspect: Arc<dyn Inspect>,
    name: Option<String>,
}

impl Auxiliary {
    pub(super) fn new(inspect: Arc<dyn Inspect>) -> Self {
        Self { inspect, name: None }
    }

    /// Under another name than its own.
    pub(super) fn named(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }
}

impl Inspect for Auxiliary {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async {
            let mut report = self.inspect.report().await;
            if let Some(name) = &self.name {
                report.name.clone_from(name);
            }
            if let Health::Down(why) = report.health {
                report.health = Health::Degraded(why);
            }
            report
        })
    }

    fn operable(&self) -> Option<&dyn Operate> {
        self.inspect.operable()
    }
}
