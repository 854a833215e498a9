//! Handlers: what a user writes. A plain async closure is one.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::{Event, Failure, Outcome};

/// Reacts to an event.
///
/// A function or closure from [`Event`] to a future is a handler if the future gives `()`, an
/// [`Outcome`], or a `Result` of either with any error that becomes a [`Failure`]:
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
pub trait Handler: Send + Sync + 'static {
    /// Handles one event. It may come again: delivery is at least once.
    fn handle(&self, event: Event) -> impl Future<Output = Result<Outcome, Failure>> + Send;
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

/// What an async closure may return to be a [`Handler`].
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

impl<T: Into<Outcome>, E: Into<Failure>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        self.map(Into::into).map_err(Into::into)
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
}

impl<H: Handler> Erased for H {
    fn handle_boxed(&self, event: Event) -> BoxFuture<'_, Result<Outcome, Failure>> {
        Box::pin(self.handle(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
