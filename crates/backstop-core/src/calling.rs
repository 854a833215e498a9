//! Calling a handler: within the trace that its event carries, and so that a panic is a failure like any other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tracing::Instrument as _;

use crate::trace::TraceContext;
use crate::{Delivery, Failure, Handler, Outcome};

/// Calls a handler. One that panics has failed like any other.
///
/// ```
/// use backstop_core::{Delivery, Event, Outcome, calling};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let delivery = Delivery::first(Event::of("OrderPlaced").json(&())?);
/// let answer = calling::call(&|_: Event| async { panic!("no ink") as Outcome }, delivery).await;
/// assert_eq!(answer.unwrap_err().to_string(), "panic: the handler panicked: no ink");
/// # Ok::<(), backstop_core::InvalidEvent>(()) }).unwrap();
/// ```
pub async fn call(handler: &impl Handler, delivery: Delivery) -> Result<Outcome, Failure> {
    let event = &delivery.event;
    match TraceContext::of(event) {
        Some(trace) => {
            let span =
                tracing::debug_span!("deliver", event_id = event.id(), traceparent = trace.traceparent());
            trace.scope(caught(handler, delivery).instrument(span)).await
        }
        None => caught(handler, delivery).await,
    }
}

async fn caught(handler: &impl Handler, delivery: Delivery) -> Result<Outcome, Failure> {
    let mut handling = pin!(async { handler.deliver(delivery).await });
    std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked("the handler", &*panic))))
    })
    .await
}

/// A panic as a failure, with its message.
pub fn panicked(who: &str, panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::transient("panic", format!("{who} panicked: {}", said.unwrap_or("without a message")))
}
