//! The publisher as a sink: CloudEvents that come from elsewhere, such as a dead-letter directory.

use backstop_core::event::cloudevents::{self, Received};
use backstop_core::{CloudEvent, Failure, Sink};

use super::Publisher;

/// Writes each event with its own source. While the brokers are unavailable, events fail: whoever calls a sink keeps what it
/// does not take.
///
/// ```no_run
/// use backstop_core::{CloudEvent, Event, Sink};
/// use backstop_kafka::Publisher;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let orders = Publisher::to("localhost:9092", "orders").build()?;
/// let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
/// orders.emit(CloudEvent::of(&order, "/shop")?).await.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
impl Sink for Publisher {
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        let Received { event, source } = cloudevents::from_json(event.as_json()).map_err(|error| {
            Failure::permanent("payload", format!("the CloudEvent cannot be written as a record: {error}"))
        })?;
        self.0.publish(&event, &source).await.map(drop)
    }
}
