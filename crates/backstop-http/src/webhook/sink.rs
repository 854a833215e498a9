//! The webhook as a sink: CloudEvents that come from elsewhere, as from a dead-letter directory.

use backstop_core::event::cloudevents;
use backstop_core::target::{Refusal, Ruling};
use backstop_core::{CloudEvent, Failure, Sink};

use super::{Mode, Relay, Webhook};
use crate::Status;
use crate::encoding::{self, Message};

/// Sends each event with its own source, so that a receiver knows one that it has seen before by its `webhook-id`.
/// The text is passed on as it is; only in the binary format it must keep the rules of
/// [`Event`](backstop_core::Event). An event that is put off, because the target is away, has failed: whoever calls a
/// sink keeps what it does not take.
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
        match relay.send_and_tell(message).await {
            (Ruling::Done, _) => Ok(()),
            (Ruling::Failed(refusal), _) => Err(refusal.into()),
            (Ruling::PutOff(wait), said) => {
                let why = said.unwrap_or_else(|| relay.standing());
                Err(Failure::retry_after(wait).class_is("unavailable").message_is(why))
            }
        }
    }
}

impl Relay {
    /// Why nothing was sent.
    fn standing(&self) -> String {
        match self.target.status() {
            Status::Unavailable(why) => format!("the target is left alone for a while: {why}"),
            Status::Disabled => "the target said that it is gone (410)".to_owned(),
            _ => "the target was left alone for a while".to_owned(),
        }
    }
}

fn message_of(relay: &Relay, event: &CloudEvent) -> Result<Message, Refusal> {
    let (id, source, json) = (event.id(), event.source(), event.as_json());
    match relay.mode {
        Mode::Structured => Ok(encoding::carried(event)),
        Mode::Batched { .. } => Ok(encoding::batched([(id, json)].into_iter(), source)),
        Mode::Binary => {
            let received = cloudevents::from_json(json).map_err(|error| Refusal::unwritable(&error))?;
            encoding::binary(&received.event, source)
        }
    }
}
