//! The webhook: a handler that sends each event to one URL.

mod sink;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::target::Target;
use backstop_core::{Clock, Event, Failure, Handler, Outcome};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use tokio::sync::oneshot;

use crate::batch::{Gathering, Item, Joined};
use crate::builder::WebhookBuilder;
use crate::client::Client;
use crate::config::Config;
use crate::encoding::{self, Message};
use crate::signature::{Secret, sign};
use crate::verdict::judge;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Sends events to a URL. It is a [`Handler`], so an outbox delivers to it as to any other. It is a cheap handle:
/// clones share connections, breaker and [`Target`], and one may be registered for many events.
///
/// ```no_run
/// use backstop_core::{Event, Handler, Outcome};
/// use backstop_http::Webhook;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let webhook = Webhook::to("https://example.com/hooks").binary().build()?;
/// let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
/// assert_eq!(webhook.handle(order).await.unwrap(), Outcome::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Webhook(Arc<Relay>);

/// What the clones of a webhook share.
pub(crate) struct Relay {
    pub(crate) client: Client,
    pub(crate) target: Target,
    pub(crate) mode: Mode,
    pub(crate) source: String,
    pub(crate) secrets: Vec<Secret>,
    /// What goes with every request.
    pub(crate) headers: HeaderMap,
    pub(crate) request_limit_bytes: usize,
    pub(crate) retry_after_limit: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// How events become messages.
pub(crate) enum Mode {
    Structured,
    Binary,
    Batched { gathering: Mutex<Gathering>, linger: Duration },
}

impl Webhook {
    /// Begins a webhook to a URL. Nothing is checked until [`build`](WebhookBuilder::build).
    pub fn to(url: impl Into<String>) -> WebhookBuilder {
        Config::to(url.into()).into()
    }

    /// Begins a webhook with these settings.
    pub fn of(config: Config) -> WebhookBuilder {
        config.into()
    }

    /// Where its events go: whether the target is called now, and the switch to disable and enable it.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    pub(crate) fn new(relay: Relay) -> Self {
        Self(Arc::new(relay))
    }
}

impl Handler for Webhook {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        let relay = &self.0;
        let message = match &relay.mode {
            Mode::Structured => encoding::structured(&event, &relay.source),
            Mode::Binary => encoding::binary(&event, &relay.source),
            Mode::Batched { gathering, linger } => return gather(relay, gathering, *linger, &event).await,
        };
        let message = relay.fitting(message?)?;
        relay.send(message, [event.id()]).await
    }

    fn target(&self) -> Option<&Target> {
        Some(&self.0.target)
    }
}

impl Relay {
    /// The whole of a delivery: ask for leave, sign, send, judge, answer. The message is handed to the client before anything
    /// is waited for, because a future has room for all that it was given, and is allocated and copied for each event.
    fn send<'a>(
        &self,
        mut message: Message,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        let sending = self.target.admit(ids).map(|permit| {
            self.sign(&mut message);
            (permit, self.client.post(message.headers, message.body))
        });
        async move {
            let (permit, posted) = sending?;
            let exchange = self.client.answer(posted).await;
            permit.answer(judge(exchange, self.clock.now(), self.retry_after_limit))
        }
    }

    fn fitting(&self, message: Message) -> Result<Message, Failure> {
        let (bytes, limit) = (message.body.len(), self.request_limit_bytes);
        if bytes <= limit {
            return Ok(message);
        }
        let what = format!("the message has {bytes} bytes, and `request-limit` allows {limit}");
        Err(Failure::permanent("too-large", what))
    }

    /// Signed when it is sent, because receivers refuse old signatures.
    fn sign(&self, message: &mut Message) {
        let timestamp = self.clock.now().timestamp();
        let headers = &mut message.headers;
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        headers.insert(TIMESTAMP, HeaderValue::from(timestamp));
        if let Ok(id) = HeaderValue::try_from(&message.id) {
            headers.insert(ID, id);
        }
        if self.secrets.is_empty() {
            return;
        }
        if let Ok(signature) =
            HeaderValue::try_from(sign(&self.secrets, &message.id, timestamp, &message.body))
        {
            headers.insert(SIGNATURE, signature);
        }
    }

    /// Sends a batch and answers for each of its events.
    async fn send_batch(&self, mut items: Vec<Item>) {
        // A caller that gave up waiting will bring the event again.
        items.retain(|item| !item.answer.is_closed());
        if items.is_empty() {
            return;
        }
        let ids: Vec<_> = items.iter().map(|item| item.event_id.as_str()).collect();
        let answer = self.send(self.message_of(&items), ids).await;
        let together = items.len() == 1 || answer.as_ref().err().is_none_or(Failure::is_unavailable);
        for item in items {
            // One bad event must not take the others with it: a batch that failed is sent again in pieces.
            let own = if together {
                answer.clone()
            } else {
                self.send(self.message_of([&item]), [item.event_id.as_str()]).await
            };
            let _ = item.answer.send(own);
        }
    }

    fn message_of<'a>(&self, items: impl IntoIterator<Item = &'a Item>) -> Message {
        let events = items.into_iter().map(|item| (item.event_id.as_str(), item.text.as_str()));
        encoding::batched(events, &self.source)
    }
}

/// Puts an event into the batch that is being gathered and waits for the answer.
async fn gather(
    relay: &Arc<Relay>,
    gathering: &Mutex<Gathering>,
    linger: Duration,
    event: &Event,
) -> Result<Outcome, Failure> {
    let text = encoding::json(event, &relay.source)?;
    let alone = encoding::batched([(event.id(), text.as_str())].into_iter(), &relay.source);
    relay.fitting(alone)?;
    let (answer, answered) = oneshot::channel();
    let item = Item { event_id: event.id().to_owned(), text, answer };
    let Joined { ready, begun } = lock(gathering).join(item);
    // Tasks of their own: the caller that began a batch may stop waiting, and the others must still be answered.
    for batch in ready {
        let relay = Arc::clone(relay);
        tokio::spawn(async move { relay.send_batch(batch).await });
    }
    if let Some(number) = begun {
        let relay = Arc::clone(relay);
        tokio::spawn(async move {
            tokio::time::sleep(linger).await;
            let Mode::Batched { gathering, .. } = &relay.mode else { return };
            let batch = lock(gathering).due(number);
            if let Some(batch) = batch {
                relay.send_batch(batch).await;
            }
        });
    }
    // The runtime is ending where nobody answers; the event comes again.
    answered.await.unwrap_or_else(|_| Err(Failure::unavailable("the process is ending")))
}

fn lock(gathering: &Mutex<Gathering>) -> std::sync::MutexGuard<'_, Gathering> {
    gathering.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the target, and hides secrets and headers.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Relay { target, source, secrets, .. } = &*self.0;
        f.debug_struct("Webhook")
            .field("target", target)
            .field("source", source)
            .field("secrets", &secrets.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above a kilobyte the system's allocator leaves its fast path, once for each event.
    #[test]
    fn what_a_delivery_keeps_while_it_waits_is_less_than_a_kilobyte() {
        let webhook = Webhook::to("https://example.com/hooks").build().unwrap();
        let event = Event::of_json("OrderPlaced", "{}").unwrap();
        let bytes = size_of_val(&webhook.handle(event));
        assert!(bytes < 1_024, "{bytes}");
    }
}
