//! The webhook as a sink: CloudEvents that come from elsewhere, such as a dead-letter directory.

use backstop_core::event::cloudevents;
use backstop_core::target::unwritable;
use backstop_core::{CloudEvent, Failure, Sink};

use super::{Mode, Relay, Webhook};
use crate::encoding::{self, Message};

/// Sends each event with its own source, so that a receiver knows one that it has seen before by its `webhook-id`.
/// The text is passed on as it is; only in the binary format it must keep the rules of
/// [`Event`](backstop_core::Event). While the target is unavailable, events fail: whoever calls a sink keeps what it does not
/// take.
///
/// ```no_run
/// use backstop_core::{CloudEvent, Event, Sink};
/// use backstop_http::Webhook;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let webhook = Webhook::to("https://example.com/hooks").build()?;
/// let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
/// webhook.emit(CloudEvent::of(&order, "/shop")?).await.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
impl Sink for Webhook {
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        let relay = &self.0;
        let message = message_of(relay, &event).and_then(|message| relay.fitting(message))?;
        relay.send(message, [event.id()]).await.map(drop)
    }
}

fn message_of(relay: &Relay, event: &CloudEvent) -> Result<Message, Failure> {
    let (id, source, json) = (event.id(), event.source(), event.as_json());
    match relay.mode {
        Mode::Structured => Ok(encoding::carried(event)),
        Mode::Batched { .. } => Ok(encoding::batched([(id, json)].into_iter(), source)),
        Mode::Binary => {
            let received = cloudevents::from_json(json).map_err(|error| unwritable(&error))?;
            encoding::binary(&received.event, source)
        }
    }
}
