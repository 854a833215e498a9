//! A worker: runs the handler of one event at a time and passes on what became of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::{Settlement, decide};
use backstop_core::retry::{Exponential, Jitter, Policy, Retry};
use backstop_core::trace::TraceContext;
use backstop_core::{Event, Failure, Handler, Outcome, telemetry};
use futures_util::FutureExt;
use tracing::Instrument as _;

use super::Queued;
use crate::outbox::burials::Burials;
use crate::outbox::claims::Renewer;
use crate::outbox::feed::{Feed, Waiting};
use crate::outbox::interceptor::{Interceptors, panicked};
use crate::outbox::registry::Registry;
use crate::outbox::settler::{self, Settled};

/// One worker: an event at a time, from the queue to its settlement.
pub(super) async fn work(feed: Feed, delivery: Arc<Delivery>, settled: settler::Sender) {
    while let Some(Waiting { queued, hold, turn }) = feed.next().await {
        if !feed.standing().is_up_since(turn) {
            // Another node has had the table since, and may have delivered it.
            feed.leave(hold);
            continue;
        }
        if !delivery.keeps_claim(queued.event.id()).await {
            // Another node may be handling it by now, or before this one is done; only one would be allowed to settle it.
            tracing::warn!(
                event_id = queued.event.id(),
                "the claim of an event ran out while it waited, or cannot be renewed; it is left to whoever claims it"
            );
            feed.leave(hold);
            continue;
        }
        let settlement = delivery.deliver(&queued).await;
        if !feed.standing().is_up_since(turn) && settlement != Settlement::Done {
            // What another node makes of it counts.
            feed.leave(hold);
            continue;
        }
        // Where the claim ran out meanwhile, another node has the event, and may deliver it.
        if !feed.claims().has_run_out(queued.event.id()) {
            delivery.bury_if_dead(&queued, &settlement).await;
        }
        feed.claims().settling(queued.event.id());
        settled.send(Settled::new(queued, settlement, hold, turn)).await;
    }
}

/// What workers share: whom an event goes to, what runs around it, and when a failed one is tried again.
pub(super) struct Delivery {
    pub(super) registry: Registry,
    pub(super) retry: Retry,
    pub(super) interceptors: Interceptors,
    pub(super) burials: Arc<Burials>,
    pub(super) renewer: Option<Arc<Renewer>>,
    pub(super) metrics: Arc<telemetry::Outbox>,
}

impl Delivery {
    async fn deliver(&self, queued: &Queued) -> Settlement {
        let (entered, ready) = self.interceptors.before(&queued.event);
        let answer = match ready {
            Ok(()) => self.route_and_call(&queued.event).await,
            Err(failure) => Err(failure),
        };
        self.interceptors.after(entered, &queued.event, answer.as_ref().err());
        decide(&self.retry, queued.attempts, answer, Jitter::random())
    }

    /// Whether the claim of an event, where it has one, lasts while it is handled.
    async fn keeps_claim(&self, id: &str) -> bool {
        match &self.renewer {
            Some(renewer) => renewer.ensure(id).await,
            None => true,
        }
    }

    /// Before the row says DEAD: a crash in between writes another letter, and never none.
    async fn bury_if_dead(&self, queued: &Queued, settlement: &Settlement) {
        if let Settlement::Dead { error } = settlement {
            let attempts = queued.attempts.saturating_add(1);
            self.burials.bury(&queued.event, attempts, error, &self.metrics).await;
        }
    }

    async fn route_and_call(&self, event: &Event) -> Result<Outcome, Failure> {
        match self.registry.handler_for(event.aggregate_type(), event.event_type()) {
            Some(handler) => traced(event, call(&handler, event.clone())).await,
            None => Err(unroutable(event)),
        }
    }
}

/// Runs a handler within the trace that its event carries.
async fn traced<F: Future>(event: &Event, handling: F) -> F::Output {
    match TraceContext::of(event) {
        Some(trace) => {
            let span =
                tracing::debug_span!("deliver", event_id = event.id(), traceparent = trace.traceparent());
            trace.scope(handling.instrument(span)).await
        }
        None => handling.await,
    }
}

/// Calls a handler; one that panics has failed like any other.
async fn call(handler: &impl Handler, event: Event) -> Result<Outcome, Failure> {
    let answered = AssertUnwindSafe(async { handler.handle(event).await }).catch_unwind().await;
    answered.unwrap_or_else(|panic| Err(panicked("the handler", &*panic)))
}

fn unroutable(event: &Event) -> Failure {
    let (aggregate, kind) = (event.aggregate_type(), event.event_type());
    Failure::permanent(
        "unroutable",
        format!("no handler is registered for aggregate type {aggregate}, event type {kind}"),
    )
}

/// A user's policy: when it panics, the standard one answers, because its worker must go on.
pub(super) struct Unfailing<P>(pub(super) P);

impl<P: Policy> Policy for Unfailing<P> {
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.0.delay(attempt, jitter))).unwrap_or_else(|panic| {
            let failure = panicked("the retry policy", &*panic);
            tracing::error!(%failure, attempt, "a delay cannot be computed; the standard one is used");
            Exponential::default().delay(attempt, jitter)
        })
    }
}
