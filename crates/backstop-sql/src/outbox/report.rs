//! What an operator sees of an outbox.

use std::sync::Arc;

use super::feed::Feed;
use super::gate::Trouble;
use super::sampling::Sampling;
use crate::Error;
use crate::store::{Census, Store};
use backstop_core::inspect::{Flow, Health, Place, Report, Route, Times, Troubled};
use backstop_core::{look, telemetry};

/// Counting stops here: beyond it "100,000+" says enough, and a scan of millions would cost too much.
const COUNT_CAP: u32 = 100_000;
const TROUBLED: u32 = 50;

const STOOD_DOWN: &str = "another node delivers from this table, and this one delivers nothing until that one stops; \
                          stop one of the two, or run both in mode multi-node";

pub(super) struct Reporter {
    name: String,
    store: Arc<dyn Store>,
    /// What is in this node's hands, where it delivers.
    feed: Option<Feed>,
    metrics: Arc<telemetry::Outbox>,
    /// What waits on which route, where it delivers.
    sampling: Option<Arc<Sampling>>,
    last: look::Shared<Look>,
}

/// What a look at the table found.
#[derive(Clone)]
struct Look {
    census: Census,
    troubled: Vec<Troubled>,
}

impl Reporter {
    pub(super) fn new(
        name: String,
        store: Arc<dyn Store>,
        feed: Option<Feed>,
        metrics: Arc<telemetry::Outbox>,
        sampling: Option<Arc<Sampling>>,
    ) -> Self {
        Self { name, store, feed, metrics, sampling, last: look::Shared::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn report(&self) -> Report {
        let (health, places, troubled, routes) = match self.looked().await {
            Ok((look, routes)) => (self.health(), places(look.census), look.troubled, routes),
            Err(error) => {
                let health = Health::Down(format!("the table cannot be read: {error}"));
                (health, Vec::new(), Vec::new(), Vec::new())
            }
        };
        let (flows, times) = (self.flows(), self.times());
        Report { places, flows, troubled, routes, times, ..Report::of("outbox", &self.name, health) }
    }

    async fn looked(&self) -> Result<(Look, Vec<Route>), Error> {
        let look = self.last.ask(look::timed(self.look())).await?;
        let routes = match &self.sampling {
            Some(sampling) => sampling.routes().await?,
            None => Vec::new(),
        };
        Ok((look, routes))
    }

    fn health(&self) -> Health {
        let Some(feed) = &self.feed else { return Health::Up };
        if feed.leases().ledger().is_down() {
            return Health::Down(STOOD_DOWN.to_owned());
        }
        let trouble = feed.gate().trouble();
        match trouble {
            None => feed.held().told().map_or(Health::Up, Health::Degraded),
            Some(Trouble { events, error, shut: true }) => Health::Down(format!(
                "deliveries are stopped: {events} handled events cannot be recorded as handled, and would be \
                 delivered again: {error}"
            )),
            Some(Trouble { events, error, shut: false }) => Health::Degraded(format!(
                "{events} handled events cannot be recorded as handled; trying again: {error}"
            )),
        }
    }

    async fn look(&self) -> Result<Look, Error> {
        let census = self.store.census(COUNT_CAP).await?;
        let troubled = self.store.troubled(TROUBLED).await?;
        Ok(Look { census, troubled })
    }

    fn times(&self) -> Vec<Times> {
        if self.feed.is_none() {
            return Vec::new();
        }
        let telemetry::Outbox { dispatch_wait, dispatch_duration, delivery_latency, .. } = &*self.metrics;
        vec![
            Times::of("waiting", "From when an event is due until its handler is called.", dispatch_wait),
            Times::of("handling", "Each call of a handler.", dispatch_duration),
            Times::of(
                "delivery",
                "From an event's creation until it is recorded as handled.",
                delivery_latency,
            ),
        ]
    }

    fn flows(&self) -> Vec<Flow> {
        let metrics = &self.metrics;
        let flow = |name, meaning, total| Flow { name, meaning, total };
        vec![
            flow("delivered", "Handled, and recorded as done.", metrics.dispatch_success.total()),
            flow("failed", "Failed, and will be tried again.", metrics.dispatch_failure.total()),
            flow("deferred", "Deferred by the handler.", metrics.dispatch_deferred.total()),
            flow("buried", "Given up: no further attempt.", metrics.dispatch_dead.total()),
            flow("replayed", "Dead, and set back to be delivered again.", metrics.replay.total()),
            flow("redriven", "Dead, and done since its letter has arrived.", metrics.redrive.total()),
            flow("discarded", "Dead, and deleted by an operator.", metrics.discard.total()),
            flow("purged", "Deleted, older than the retention.", metrics.purge.total()),
            flow("hot", "Queued right after the commit.", metrics.enqueue_hot.total()),
            flow("polled", "Queued by the poller.", metrics.enqueue_cold.total()),
        ]
    }
}

fn places(census: Census) -> Vec<Place> {
    let place = |name, meaning, count| Place { name, meaning, count };
    vec![
        place("waiting", "Committed, and waiting for delivery or for its time.", census.waiting),
        place("retrying", "Failed at least once; another attempt follows.", census.retrying),
        place("dead", "Given up. Nothing happens until somebody replays it.", census.dead),
        place("done", "Delivered; kept until it is purged.", census.done),
    ]
}
