//! A target on the dashboard.

use std::pin::Pin;

use super::{Status, Target};
use crate::inspect::{Flow, Health, Inspect, Report, Times};
use crate::telemetry::Counter;

impl Inspect for Target {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(std::future::ready(self.reported()))
    }
}

impl Target {
    fn reported(&self) -> Report {
        let health = match self.status() {
            Status::Available => Health::Up,
            Status::Unavailable(why) => Health::Down(format!("its events wait: {why}")),
            Status::Disabled => {
                Health::Down("disabled; its events are deferred until it is enabled".to_owned())
            }
        };
        let inner = &*self.0;
        let flow = |name, meaning, counter: &Counter| Flow { name, meaning, total: counter.total() };
        let metrics = &inner.metrics;
        let flows = vec![
            flow("delivered", "Events that the target confirmed.", &metrics.delivered),
            flow("deferred", "Events deferred; no attempt is counted.", &metrics.deferred),
            flow("failed", "Events that the target refused or failed on.", &metrics.failed),
        ];
        let times =
            vec![Times::of("requests", "Each request, whatever came of it.", &metrics.request_duration)];
        Report { flows, times, ..Report::of(inner.kind, self.name(), health) }
    }
}
