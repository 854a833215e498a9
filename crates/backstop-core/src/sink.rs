//! Sinks: where events are sent. A plain async closure is one.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::{CloudEvent, Event, Failure, Handler, Outcome};

/// Takes a CloudEvent, and answers when it has taken responsibility for it, or why it has not.
///
/// A function or closure from [`CloudEvent`] to a future is a sink if the future gives a `Result` of `()`
/// with any error that becomes a [`Failure`]:
///
/// ```
/// use backstop_core::{CloudEvent, Event, Failure, sink::{SharedSink, Sink}};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sink = SharedSink::new(|event: CloudEvent| async move {
///     match event.event_type() {
///         "OrderPlaced" => Ok(()),
///         _ => Err(Failure::permanent("unknown-type", "only orders are taken")),
///     }
/// });
///
/// let order = Event::of_json("OrderPlaced", "{}")?;
/// sink.emit(CloudEvent::of(&order, "/shop")?).await.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub trait Sink: Send + Sync + 'static {
    /// Sends one event. `Ok` means that the sink has assumed responsibility for it.
    fn emit(&self, event: CloudEvent) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<F, Fut, E> Sink for F
where
    F: Fn(CloudEvent) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
{
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        self(event).await.map_err(Into::into)
    }
}

/// Any sink behind one type, cheap to clone: what wrappers hold and give back.
#[derive(Clone)]
pub struct SharedSink(Arc<dyn Erased>);

impl SharedSink {
    /// Shares a sink.
    pub fn new(sink: impl Sink) -> Self {
        Self(Arc::new(sink))
    }

    /// Whether both are the same sink, not merely alike.
    ///
    /// ```
    /// use backstop_core::{CloudEvent, Failure, sink::SharedSink};
    ///
    /// let sink = SharedSink::new(|_: CloudEvent| async { Ok::<(), Failure>(()) });
    /// assert!(sink.is(&sink.clone()));
    /// assert!(!sink.is(&SharedSink::new(sink.clone())));
    /// ```
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A handler that sends its events to this sink, so that an outbox can feed it.
    ///
    /// ```
    /// use backstop_core::{CloudEvent, Event, Failure, Handler, Outcome, sink::SharedSink};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sink = SharedSink::new(|event: CloudEvent| async move {
    ///     assert_eq!(event.source(), "/outbox/orders");
    ///     Ok::<(), Failure>(())
    /// });
    /// let handler = sink.into_handler("/outbox/orders");
    /// let order = Event::of_json("OrderPlaced", "{}").unwrap();
    /// assert_eq!(handler.handle(order).await.unwrap(), Outcome::Done);
    /// # });
    /// ```
    pub fn into_handler(self, source: impl Into<String>) -> impl Handler {
        Relay { sink: self, source: source.into() }
    }
}

impl Sink for SharedSink {
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        self.0.emit_boxed(event).await
    }
}

impl fmt::Debug for SharedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSink")
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// `Sink` with its future boxed, because a trait that returns `impl Future` makes no trait objects.
trait Erased: Send + Sync {
    fn emit_boxed(&self, event: CloudEvent) -> BoxFuture<'_, Result<(), Failure>>;
}

impl<S: Sink> Erased for S {
    fn emit_boxed(&self, event: CloudEvent) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(self.emit(event))
    }
}

struct Relay {
    sink: SharedSink,
    source: String,
}

impl Handler for Relay {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        // The same event gives the same fault next time.
        let event = CloudEvent::of(&event, &self.source)
            .map_err(|fault| Failure::permanent("cloudevent", fault.to_string()))?;
        self.sink.emit(event).await?;
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    fn event() -> CloudEvent {
        CloudEvent::of(&Event::of_json("E", "{}").unwrap(), "/test").unwrap()
    }

    #[tokio::test]
    async fn closures_are_sinks_and_their_errors_become_failures() {
        let fine = SharedSink::new(|_: CloudEvent| async { Ok::<_, Failure>(()) });
        assert!(fine.emit(event()).await.is_ok());
        let broken = SharedSink::new(|_: CloudEvent| async { Err(std::io::Error::other("gone")) });
        assert_eq!(broken.emit(event()).await.unwrap_err().to_string(), "error: gone");
    }

    #[tokio::test]
    async fn a_handler_over_a_sink_passes_the_failure_on() {
        let busy =
            SharedSink::new(|_: CloudEvent| async { Err::<(), _>(Failure::permanent("schema", "no")) });
        let failure = busy.clone().into_handler("/t").handle(Event::of_json("E", "{}").unwrap()).await;
        assert_eq!(failure.unwrap_err().to_string(), "schema: no");

        let nowhere = busy.into_handler("").handle(Event::of_json("E", "{}").unwrap()).await.unwrap_err();
        assert_eq!((nowhere.class(), nowhere.kind()), ("cloudevent", Kind::Permanent));
    }
}
