//! One event at a time, from memory to its result.

use std::sync::Arc;

use backstop_core::calling::call;
use backstop_core::delivery::{Settlement, decide};
use backstop_core::interceptor::Interceptors;
use backstop_core::retry::{Jitter, Retry};
use backstop_core::{Clock, Delivery, Event, Failure, Outcome, Shutdown, SystemClock, telemetry};
use tokio::sync::mpsc;

use super::Taken;
use super::buffer::Buffer;
use super::finalizer::{Outgoing, Told};
use super::in_hand::InHand;
use crate::burials::Burials;
use crate::queue::claim::Claim;
use crate::queue::table::{Ending, Finish, PutBack};
use crate::routes::held::{Asked, HeldRoutes};

/// What the handlers share.
pub(super) struct Handling {
    pub(super) component: Arc<str>,
    pub(super) held: HeldRoutes<i64>,
    pub(super) retry: Retry,
    /// How often an event is taken at most.
    pub(super) limit: Option<u32>,
    pub(super) interceptors: Interceptors,
    pub(super) burials: Burials,
    pub(super) in_hand: InHand,
    pub(super) metrics: Arc<telemetry::Queue>,
}

/// An event on its way to its handler.
struct OnItsWay<'a> {
    taken: &'a Taken,
    event: &'a Event,
}

impl Asked for OnItsWay<'_> {
    fn event(&self) -> &Event {
        self.event
    }

    fn is_probe(&self) -> bool {
        self.taken.is_probe
    }
}

/// An event that goes back as if it had not been taken.
pub(super) fn untouched(claim: Claim) -> Told {
    Told::PutBack(PutBack::untouched(claim))
}

impl Handling {
    /// Handles events until there are no more, or until it is cancelled.
    pub(super) async fn run(
        self: Arc<Self>,
        buffer: Arc<Buffer>,
        cancel: Shutdown,
        results: mpsc::Sender<Outgoing>,
    ) {
        while let Some(taken) = buffer.next().await {
            let claim = taken.claim;
            if !self.in_hand.is_ours(&claim) {
                self.metrics.claims_lost.increment();
                tracing::warn!(
                    id = claim.id,
                    "the claim of an event ran out while it waited; it is left to whoever takes it over"
                );
                self.in_hand.end(std::iter::once(claim));
                if let Ok(event) = &taken.event {
                    self.held.probe_lost(&OnItsWay { taken: &taken, event });
                }
                continue;
            }
            // A cancelled handler is no failure: its event goes back as if it had not been taken.
            let result = cancel.interrupts(self.handle(&taken)).await.unwrap_or_else(|| untouched(claim));
            buffer.was_handled();
            if results.send(Outgoing::of(result, taken.lane)).await.is_err() {
                return;
            }
        }
    }

    async fn handle(&self, taken: &Taken) -> Told {
        let claim = taken.claim;
        if let Some(limit) = self.limit
            && claim.attempt > limit
        {
            let error = format!("given up after {limit} attempts: no worker lived long enough to finish it");
            return self.give_up(taken, Ending::GivenUp, limit, error).await;
        }
        let event = match &taken.event {
            Ok(event) => event,
            Err(unreadable) => {
                tracing::error!(id = claim.id, unreadable, "an event cannot be read, and has failed");
                return self.give_up(taken, Ending::Failed, claim.attempt, unreadable.clone()).await;
            }
        };
        let Some(answer) = self.deliver_unless_held(taken, event).await else {
            self.metrics.held.increment();
            let event_type = (!taken.has_type).then(|| fitting(event.event_type()));
            return Told::PutBack(PutBack { event_type, ..PutBack::untouched(claim) });
        };
        match decide(&self.retry, claim.attempt.saturating_sub(1), answer, Jitter::random()) {
            Settlement::Done => Told::Finish(Finish { claim, ending: Ending::Completed, error: None }),
            Settlement::Deferred { after } => {
                Told::PutBack(PutBack { after: Some(after), ..PutBack::untouched(claim) })
            }
            Settlement::Retry { after, error } => {
                tracing::info!(
                    id = claim.id,
                    event_type = event.event_type(),
                    attempt = claim.attempt,
                    ?after,
                    error,
                    "an event failed and is tried again"
                );
                let (after, error) = (Some(after), Some(error));
                Told::PutBack(PutBack { after, error, counted: true, ..PutBack::untouched(claim) })
            }
            Settlement::Dead { error } => {
                tracing::error!(
                    id = claim.id,
                    event_type = event.event_type(),
                    attempt = claim.attempt,
                    error,
                    "an event has failed"
                );
                self.give_up(taken, Ending::Failed, claim.attempt, error).await
            }
        }
    }

    /// A copy goes to the dead letters before the log says FAILED: a crash in between writes another, and never none.
    async fn give_up(&self, taken: &Taken, ending: Ending, attempts: u32, error: String) -> Told {
        if let Ok(event) = &taken.event
            && self.in_hand.is_ours(&taken.claim)
        {
            self.burials.bury(event, attempts, &error, &self.metrics.letter_failed).await;
        }
        Told::Finish(Finish { claim: taken.claim, ending, error: Some(error) })
    }

    /// What the handler says of an event; none if its route is held, and the event goes back as if it had not been taken.
    async fn deliver_unless_held(&self, taken: &Taken, event: &Event) -> Option<Result<Outcome, Failure>> {
        if !taken.is_probe && self.held.keeps(event) {
            return None;
        }
        let answer = self.deliver(taken, event).await;
        let on_its_way = OnItsWay { taken, event };
        let Some(route) = self.held.registry().route(event.aggregate_type(), event.event_type()) else {
            self.held.probe_lost(&on_its_way);
            return Some(answer);
        };
        self.held.answered(&route, &on_its_way, answer)
    }

    async fn deliver(&self, taken: &Taken, event: &Event) -> Result<Outcome, Failure> {
        let (entered, ready) = self.interceptors.before(event);
        let answer = match ready {
            Ok(()) => self.route_and_call(taken, event).await,
            Err(failure) => Err(failure),
        };
        self.interceptors.after(entered, event, answer.as_ref().err());
        answer
    }

    async fn route_and_call(&self, taken: &Taken, event: &Event) -> Result<Outcome, Failure> {
        let Some(route) = self.held.registry().route(event.aggregate_type(), event.event_type()) else {
            return Err(unroutable(event));
        };
        let waited = (SystemClock.now() - taken.created_at).to_std().unwrap_or_default();
        self.metrics.waiting_time.record(waited);
        let mut delivery =
            Delivery::on_its_way(event.clone(), &self.component, &route.name).attempt(taken.claim.attempt);
        delivery.since = taken.created_at;
        let began = SystemClock.ticks();
        let answer = call(&route.handler, delivery).await;
        self.metrics.handling.record(SystemClock.ticks().since(began));
        route.answered(event.id(), &answer);
        answer
    }
}

/// A type as the column takes it. It serves to pass over rows, and the event keeps its own.
fn fitting(event_type: &str) -> String {
    const MOST_CHARS: usize = 128;
    event_type.chars().filter(|char| *char != '\0').take(MOST_CHARS).collect()
}

fn unroutable(event: &Event) -> Failure {
    let told = match event.event_type() {
        "" => "no handler is registered for events without a type".to_owned(),
        event_type => format!("no handler is registered for event type {event_type}"),
    };
    Failure::permanent("unroutable", told)
}
