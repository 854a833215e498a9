//! Handlers: what a user writes. A plain async closure is one.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::delivery::Delivery;
use crate::target::Target;
use crate::{Event, Failure, Outcome};

/// Reacts to an event.
///
/// A function or closure from [`Event`] to a future is a handler if the future gives `()`, an [`Outcome`], or a `Result` of
/// either. Any error will do, [`Failure`] or `anyhow::Error` alike; one that is not a `Failure` counts as transient:
///
/// ```
/// use backstop_core::{Event, Failure, Handler, Outcome, handler::SharedHandler};
///
/// async fn ship(order: serde_json::Value) -> Result<(), Failure> {
///     if order["total"] == 0 { Err(Failure::permanent("empty-order", "nothing to ship")) } else { Ok(()) }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let handler = SharedHandler::new(|event: Event| async move { ship(event.payload()?).await });
///
/// let order = Event::of_json("OrderPlaced", r#"{"total": 12}"#).unwrap();
/// assert_eq!(handler.handle(order).await.unwrap(), Outcome::Done);
/// # });
/// ```
///
/// Where a handler is registered, a closure may also take a [`Delivery`]; see [`IntoHandler`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "a handler is an async closure such as `|event: Event| async move {{ … }}`, whose future is `Send` and gives `()`, \
            an `Outcome`, or a `Result` of either with any error"
)]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event. It may come again: delivery is at least once.
    fn handle(&self, event: Event) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Handles one event, with more information about it. If this method is not written, the handler gets the event
    /// alone.
    fn deliver(&self, delivery: Delivery) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        self.handle(delivery.event)
    }

    /// Where it sends events to, if that is a target whose availability is known: operators see it with the handler's route.
    fn target(&self) -> Option<&Target> {
        None
    }
}

impl<F, Fut> Handler for F
where
    F: Fn(Event) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send,
{
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self(event).await.into_outcome()
    }
}

/// What can be registered as a handler: a [`Handler`], or an async closure that takes a [`Delivery`].
///
/// ```
/// use backstop_core::{Delivery, Event, Outcome};
/// use backstop_core::handler::{IntoHandler, SharedHandler};
///
/// fn register<By>(handler: impl IntoHandler<By>) -> SharedHandler {
///     handler.into_handler()
/// }
///
/// register(|event: Event| async move { println!("{}", event.id()) });
/// register(|delivery: Delivery| async move {
///     match delivery.attempt {
///         1..=3 => Ok(()),
///         late => Err(format!("attempt {late} of {}", delivery.event.id())), // any error will do
///     }
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "a handler is an async closure such as `|event: Event| async move {{ … }}` or `|delivery: Delivery| async move {{ … }}`, \
            whose future is `Send` and gives `()`, an `Outcome`, or a `Result` of either with any error"
)]
pub trait IntoHandler<By> {
    /// The handler.
    fn into_handler(self) -> SharedHandler;
}

/// A handler that is given the event alone.
#[derive(Debug)]
pub enum ByEvent {}

/// A handler that is given the delivery.
#[derive(Debug)]
pub enum ByDelivery {}

impl<H: Handler> IntoHandler<ByEvent> for H {
    fn into_handler(self) -> SharedHandler {
        SharedHandler::new(self)
    }
}

impl<F, Fut> IntoHandler<ByDelivery> for F
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send,
{
    fn into_handler(self) -> SharedHandler {
        SharedHandler::new(Told(self))
    }
}

/// A closure that takes a delivery.
struct Told<F>(F);

impl<F, Fut> Handler for Told<F>
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send,
{
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.deliver(Delivery::first(event)).await
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Outcome, Failure> {
        (self.0)(delivery).await.into_outcome()
    }
}

/// What an async closure may return to be a [`Handler`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    note = "it returns `()`, an `Outcome`, or a `Result` of either with any error: `Failure`, `anyhow::Error`, `Box<dyn Error + Send + \
            Sync>`, …"
)]
pub trait IntoOutcome {
    /// The answer as outcome or failure.
    fn into_outcome(self) -> Result<Outcome, Failure>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        Ok(Outcome::Done)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        Ok(self)
    }
}

impl<T: Into<Outcome>, E: Into<Box<dyn Error + Send + Sync>>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        self.map(Into::into).map_err(|error| Failure::of(error.into()))
    }
}

/// Any handler behind one type, cheap to clone: what registries hold.
#[derive(Clone)]
pub struct SharedHandler(Arc<dyn Erased>);

impl SharedHandler {
    /// Shares a handler.
    pub fn new(handler: impl Handler) -> Self {
        Self(Arc::new(handler))
    }
}

impl Handler for SharedHandler {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.0.handle_boxed(event).await
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Outcome, Failure> {
        self.0.deliver_boxed(delivery).await
    }

    fn target(&self) -> Option<&Target> {
        self.0.target_of()
    }
}

impl fmt::Debug for SharedHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedHandler")
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// `Handler` with its future boxed, because a trait that returns `impl Future` makes no trait objects.
trait Erased: Send + Sync {
    fn handle_boxed(&self, event: Event) -> BoxFuture<'_, Result<Outcome, Failure>>;
    fn deliver_boxed(&self, delivery: Delivery) -> BoxFuture<'_, Result<Outcome, Failure>>;
    fn target_of(&self) -> Option<&Target>;
}

impl<H: Handler> Erased for H {
    fn handle_boxed(&self, event: Event) -> BoxFuture<'_, Result<Outcome, Failure>> {
        Box::pin(self.handle(event))
    }

    fn deliver_boxed(&self, delivery: Delivery) -> BoxFuture<'_, Result<Outcome, Failure>> {
        Box::pin(self.deliver(delivery))
    }

    fn target_of(&self) -> Option<&Target> {
        self.target()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;

    #[tokio::test]
    async fn closures_may_return_nothing_an_outcome_or_a_result_of_either() {
        async fn asked(handler: impl Handler) -> Result<Outcome, Failure> {
            SharedHandler::new(handler).handle(Event::of_json("E", "{}").unwrap()).await
        }

        assert_eq!(asked(|_: Event| async {}).await.unwrap(), Outcome::Done);
        assert_eq!(asked(|_: Event| async { Outcome::dead() }).await.unwrap(), Outcome::Dead(None));
        let fine = asked(|_: Event| async { Ok::<_, Failure>(()) }).await;
        assert_eq!(fine.unwrap(), Outcome::Done);
        let broken = asked(|_: Event| async { Err::<Outcome, _>(std::io::Error::other("gone")) }).await;
        assert_eq!(broken.unwrap_err().to_string(), "error: gone");
    }

    #[test]
    fn any_error_is_a_transient_failure_and_a_failure_stays_what_it_is() {
        fn asked<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Failure {
            let answer: Result<(), E> = Err(error);
            answer.into_outcome().unwrap_err()
        }

        let text = asked("no ink");
        assert_eq!((text.kind(), text.to_string().as_str()), (failure::Kind::Transient, "error: no ink"));
        let boxed: Box<dyn Error + Send + Sync> = std::io::Error::other("gone").into();
        assert_eq!(asked(boxed).to_string(), "error: gone");
        let ours = asked(Failure::permanent("schema", "no total").caused_by("line 3"));
        assert_eq!((ours.kind(), ours.class()), (failure::Kind::Permanent, "schema"));
        assert_eq!(ours.to_string(), "schema: no total: line 3");
        let unreadable = Event::of_json("E", "{}").unwrap().payload::<Vec<u8>>().unwrap_err();
        assert_eq!(asked(unreadable).kind(), failure::Kind::Permanent);
    }

    #[tokio::test]
    async fn a_closure_may_take_the_delivery_and_a_handler_may_write_that_step() {
        let event = || Event::of_json("E", "{}").unwrap();
        let third = || Delivery { attempt: 3, ..Delivery::first(event()) };
        let told = |delivery: Delivery| async move { Outcome::dead_because(delivery.attempt.to_string()) };
        let told = told.into_handler();
        assert_eq!(told.deliver(third()).await.unwrap().reason(), Some("3"));
        assert_eq!(told.handle(event()).await.unwrap().reason(), Some("1"));
        let plain = (|_: Event| async {}).into_handler();
        assert_eq!(plain.deliver(third()).await.unwrap(), Outcome::Done);
    }
}
