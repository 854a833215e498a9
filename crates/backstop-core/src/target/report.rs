//! A target on the dashboard, and what an operator can do to it.

use std::pin::Pin;

use super::{Status, Target};
use crate::inspect::{Flow, Health, Inspect, Report, Times};
use crate::operate::{Changed, Operate, Operation, Refused};
use crate::telemetry::Counter;

impl Inspect for Target {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(std::future::ready(self.reported()))
    }

    fn operable(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

impl Operate for Target {
    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Pin<Box<dyn Future<Output = Result<Changed, Refused>> + Send + 'a>> {
        let answer = match operation {
            Operation::Enable if self.is_disabled() => {
                self.enable();
                Ok(Changed::new(1, "it is enabled; its events flow again within a second"))
            }
            Operation::Enable => Ok(Changed::new(0, "it was not disabled, and is as it was")),
            _ => Err(Refused::NotOffered),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Target {
    fn reported(&self) -> Report {
        let health = match self.status() {
            Status::Available => Health::Up,
            Status::Unavailable(why) => Health::Down(format!("its events wait: {why}")),
            Status::Disabled => Health::Down("disabled; its events wait until it is enabled".to_owned()),
        };
        let inner = &*self.0;
        let flow = |name, meaning, counter: &Counter| Flow { name, meaning, total: counter.total() };
        let metrics = &inner.metrics;
        let flows = vec![
            flow("delivered", "Events that the target confirmed.", &metrics.delivered),
            flow("held", "Events that waited for the target; no attempt is counted.", &metrics.held),
            flow("failed", "Events that the target refused or failed on.", &metrics.failed),
        ];
        let times =
            vec![Times::of("requests", "Each request, whatever came of it.", &metrics.request_duration)];
        Report { flows, times, ..Report::of(inner.kind, self.name(), health) }
    }
}
