//! The dispatcher: workers that draw events, run their handlers and pass on what became of them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::{Settlement, decide};
use backstop_core::retry::{Jitter, Retry};
use backstop_core::{Event, Failure, Handler, Outcome, telemetry};
use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::in_flight::{Hold, InFlight};
use super::queues::{Queues, Source};
use super::registry::Registry;
use super::settler::{Settled, Settler};
use crate::Error;
use crate::store::{Claim, Settle, Store};

#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) workers: usize,
    pub(super) hot_capacity: usize,
    pub(super) cold_capacity: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { workers: 4, hot_capacity: 1_000, cold_capacity: 1_000 }
    }
}

/// An event in the hands of this process.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) event: Event,
    pub(super) attempts: u32,
    pub(super) claim: Option<Claim>,
    hold: Hold,
}

/// Owns the workers and the settler.
pub(super) struct Dispatcher {
    feed: Feed,
    running: Mutex<Option<Running>>,
}

struct Running {
    workers: JoinSet<()>,
    settler: Settler,
}

/// Where the hot path and the poller put events.
#[derive(Clone)]
pub(super) struct Feed {
    queues: Arc<Queues<Queued>>,
    in_flight: Arc<InFlight>,
    metrics: Arc<telemetry::Outbox>,
}

/// What became of an offered event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// It is queued.
    Taken,
    /// This process holds it already.
    Duplicate,
    /// The queue is full or closed; the event stays in the table.
    Refused,
}

impl Dispatcher {
    pub(super) fn start(
        store: Arc<dyn Store>,
        registry: Registry,
        retry: Retry,
        config: Config,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        let feed = Feed {
            queues: Arc::new(Queues::new(config.hot_capacity, config.cold_capacity)),
            in_flight: Arc::default(),
            metrics: metrics.clone(),
        };
        let settler = Settler::start(store, feed.in_flight.clone(), metrics);
        let delivery = Arc::new(Delivery { registry, retry });
        let mut workers = JoinSet::new();
        for _ in 0..config.workers {
            workers.spawn(work(feed.clone(), delivery.clone(), settler.sender()));
        }
        Self { feed, running: Mutex::new(Some(Running { workers, settler })) }
    }

    pub(super) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Stops taking events, lets the workers drain the queues for so long, then writes what is settled.
    pub(super) async fn close(&self, drain_timeout: Duration) -> Result<(), Error> {
        self.feed.queues.close();
        let Some(Running { mut workers, settler }) = self.running.lock().await.take() else { return Ok(()) };
        let drained = timeout(drain_timeout, async { while workers.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            let (hot, cold) = self.feed.queues.depths();
            tracing::warn!(
                running = workers.len(),
                hot,
                cold,
                "handlers did not finish in time; their events stay in the table"
            );
            workers.shutdown().await;
        }
        settler.close().await;
        drained.map_err(|_| Error::Drain(drain_timeout))
    }
}

impl Feed {
    /// Offers an event that has just been committed.
    pub(super) fn offer_hot(&self, event: &Event) -> Offer {
        if event.is_delayed() {
            self.metrics.enqueue_hot_skipped_delayed.increment();
            return Offer::Refused;
        }
        let offer = self.offer(Source::Hot, event.clone(), 0, None);
        match offer {
            Offer::Taken => self.metrics.enqueue_hot.increment(),
            Offer::Refused => {
                self.metrics.enqueue_hot_dropped.increment();
                tracing::warn!(
                    event_id = event.id(),
                    event_type = event.event_type(),
                    "the hot queue is full: the poller delivers this event"
                );
            }
            Offer::Duplicate => {}
        }
        offer
    }

    /// Offers an event that the poller read.
    pub(super) fn offer_cold(&self, event: Event, attempts: u32, claim: Option<Claim>) -> Offer {
        let offer = self.offer(Source::Cold, event, attempts, claim);
        if offer == Offer::Taken {
            self.metrics.enqueue_cold.increment();
        }
        offer
    }

    fn offer(&self, source: Source, event: Event, attempts: u32, claim: Option<Claim>) -> Offer {
        let Some(hold) = self.in_flight.try_acquire(event.id()) else { return Offer::Duplicate };
        let offer = match self.queues.push(source, Queued { event, attempts, claim, hold }) {
            Ok(()) => Offer::Taken,
            Err(refused) => {
                self.in_flight.release(&refused.hold);
                Offer::Refused
            }
        };
        self.show_depths();
        offer
    }

    /// How many more events the poller may offer.
    pub(super) fn room(&self) -> usize {
        self.queues.cold_room()
    }

    /// How many events this process holds.
    pub(super) fn held(&self) -> usize {
        self.in_flight.len()
    }

    fn show_depths(&self) {
        let (hot, cold) = self.queues.depths();
        self.metrics.queue_hot_depth.set(hot as u64);
        self.metrics.queue_cold_depth.set(cold as u64);
    }
}

/// One worker: an event at a time, from the queue to its settlement.
async fn work(feed: Feed, delivery: Arc<Delivery>, settled: super::settler::Sender) {
    while let Some((_, queued)) = feed.queues.pop().await {
        feed.show_depths();
        let settlement = delivery.deliver(&queued).await;
        let Queued { event, attempts, claim, hold } = queued;
        let settle = Settle { id: event.id().to_owned(), claim, settlement };
        settled.send(Settled { settle, event, attempts, hold }).await;
    }
}

/// What workers share: whom an event goes to, and when a failed one is tried again.
struct Delivery {
    registry: Registry,
    retry: Retry,
}

impl Delivery {
    async fn deliver(&self, queued: &Queued) -> Settlement {
        let answer = match self.registry.handler_for(&queued.event) {
            Some(handler) => call(handler, queued.event.clone()).await,
            None => Err(unroutable(&queued.event)),
        };
        decide(&self.retry, queued.attempts, answer, Jitter::random())
    }
}

/// Calls a handler; one that panics has failed like any other.
async fn call(handler: &impl Handler, event: Event) -> Result<Outcome, Failure> {
    match AssertUnwindSafe(handler.handle(event)).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Failure::transient("panic", format!("the handler panicked: {said}")))
        }
    }
}

fn unroutable(event: &Event) -> Failure {
    let (aggregate, kind) = (event.aggregate_type(), event.event_type());
    Failure::permanent(
        "unroutable",
        format!("no handler is registered for aggregate type {aggregate}, event type {kind}"),
    )
}
