//! What an operator sees of an outbox.

use std::sync::Arc;

use backstop_core::inspect::{Flow, Health, Place, Report, Troubled};
use backstop_core::telemetry;

use crate::Error;
use crate::store::{Census, Store};

/// Counting stops here: beyond it "100,000+" says enough, and a scan of millions would cost too much.
const COUNT_CAP: u32 = 100_000;
const TROUBLED: u32 = 50;

pub(super) struct Reporter {
    name: String,
    store: Arc<dyn Store>,
    metrics: Arc<telemetry::Outbox>,
}

impl Reporter {
    pub(super) fn new(name: String, store: Arc<dyn Store>, metrics: Arc<telemetry::Outbox>) -> Self {
        Self { name, store, metrics }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn report(&self) -> Report {
        let (health, places, troubled) = match self.look().await {
            Ok((census, troubled)) => (Health::Up, places(census), troubled),
            Err(error) => {
                (Health::Down(format!("the table cannot be read: {error}")), Vec::new(), Vec::new())
            }
        };
        Report { kind: "outbox", name: self.name.clone(), health, places, flows: self.flows(), troubled }
    }

    async fn look(&self) -> Result<(Census, Vec<Troubled>), Error> {
        Ok((self.store.census(COUNT_CAP).await?, self.store.troubled(TROUBLED).await?))
    }

    fn flows(&self) -> Vec<Flow> {
        let metrics = &self.metrics;
        let flow = |name, meaning, total| Flow { name, meaning, total };
        vec![
            flow("delivered", "Handled, and so recorded.", metrics.dispatch_success.total()),
            flow("failed", "Failed, and will be tried again.", metrics.dispatch_failure.total()),
            flow("deferred", "Put off by the handler.", metrics.dispatch_deferred.total()),
            flow("buried", "Given up: no further try.", metrics.dispatch_dead.total()),
            flow("hot", "Queued right after the commit.", metrics.enqueue_hot.total()),
            flow("polled", "Queued by the poller.", metrics.enqueue_cold.total()),
        ]
    }
}

fn places(census: Census) -> Vec<Place> {
    let place = |name, meaning, count| Place { name, meaning, count };
    vec![
        place("waiting", "Committed, and waiting for delivery or for its time.", census.waiting),
        place("retrying", "Failed at least once; another try follows.", census.retrying),
        place("dead", "Given up. Nothing happens until somebody replays it.", census.dead),
        place("done", "Delivered; kept until it is purged.", census.done),
    ]
}
