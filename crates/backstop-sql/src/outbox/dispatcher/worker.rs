//! A worker: runs the handler of one event at a time and passes on what became of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::calling::{call, panicked};
use backstop_core::delivery::{Settlement, decide};
use backstop_core::interceptor::Interceptors;
use backstop_core::retry::{Exponential, Jitter, Policy, Retry};
use backstop_core::{Delivery, Event, Failure, Outcome, telemetry};

use super::Queued;
use crate::outbox::burials::Burials;
use crate::outbox::claims::Renewer;
use crate::outbox::feed::{Feed, Waiting};
use crate::outbox::lease::Lease;
use crate::outbox::registry::Registry;
use crate::outbox::settler::{self, Settled};

/// One worker: an event at a time, from the queue to its settlement.
pub(super) async fn work(feed: Feed, delivering: Arc<Delivering>, settled: settler::Sender) {
    while let Some(Waiting { queued, lease }) = feed.next().await {
        if !delivering.may_begin(&queued, &lease).await {
            lease.abandon();
            continue;
        }
        let answer = delivering.deliver(&queued).await;
        let settlement = delivering.decide(&queued, answer);
        delivering.bury_if_dead(&queued, &lease, &settlement).await;
        settled.send(Settled::new(queued, settlement, lease)).await;
    }
}

/// What workers share: whom an event goes to, what runs around it, and when a failed one is tried again.
pub(super) struct Delivering {
    pub(super) component: Arc<str>,
    pub(super) registry: Registry,
    pub(super) retry: Retry,
    pub(super) interceptors: Interceptors,
    pub(super) burials: Arc<Burials>,
    pub(super) renewer: Option<Arc<Renewer>>,
    pub(super) metrics: Arc<telemetry::Outbox>,
}

impl Delivering {
    /// Whether an event is still this node's, and will be while it is handled: another node may have had the table since it
    /// was taken, or have the event by now, and only one would be allowed to settle it.
    async fn may_begin(&self, queued: &Queued, lease: &Lease) -> bool {
        if !lease.is_ours() {
            return false;
        }
        let lasts = match &self.renewer {
            Some(renewer) => renewer.ensure(lease).await,
            None => true,
        };
        if !lasts {
            tracing::warn!(
                event_id = queued.event.id(),
                "the claim of an event ran out while it waited, or cannot be renewed; it is left to whoever claims it"
            );
        }
        lasts
    }

    async fn deliver(&self, queued: &Queued) -> Result<Outcome, Failure> {
        let event = &queued.event;
        let (entered, ready) = self.interceptors.before(event);
        let answer = match ready {
            Ok(()) => self.route_and_call(queued).await,
            Err(failure) => Err(failure),
        };
        self.interceptors.after(entered, event, answer.as_ref().err());
        answer
    }

    fn decide(&self, queued: &Queued, answer: Result<Outcome, Failure>) -> Settlement {
        decide(&self.retry, queued.attempts, answer, Jitter::random())
    }

    /// Before the row says DEAD: a crash in between writes another letter, and never none. Where the event is another
    /// node's by now, that one delivers it.
    async fn bury_if_dead(&self, queued: &Queued, lease: &Lease, settlement: &Settlement) {
        if let Settlement::Dead { error } = settlement
            && lease.stands()
            && !lease.has_run_out()
        {
            let attempts = queued.attempts.saturating_add(1);
            self.burials.bury(&queued.event, attempts, error, &self.metrics).await;
        }
    }

    async fn route_and_call(&self, queued: &Queued) -> Result<Outcome, Failure> {
        let event = &queued.event;
        let Some(route) = self.registry.route(event.aggregate_type(), event.event_type()) else {
            return Err(unroutable(event));
        };
        let delivery = Delivery::first(event.clone()).attempt(queued.attempts.saturating_add(1));
        call(&route.handler, delivery.on_its_way(&self.component, &route.name)).await
    }
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
