//! The publisher: a handler that writes each event to one topic.

mod sink;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::target::{Target, Verdict};
use backstop_core::{Event, Failure, Handler, Outcome};

use crate::builder::PublisherBuilder;
use crate::config::{Config, Format};
use crate::connection::Connection;
use crate::record::Record;
use crate::verdict::judge;

/// Writes events to a topic. It is a [`Handler`], so an outbox delivers to it as to any other. It is a cheap handle:
/// clones share connection, breaker and [`Target`], and one may be registered for many events.
///
/// A record is confirmed in a few milliseconds, and several can be under way at once: as many as the outbox's
/// `worker_count`. A few hundred suit a relay.
///
/// ```no_run
/// use backstop_core::{Event, Handler, Outcome};
/// use backstop_kafka::Publisher;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let orders = Publisher::to("localhost:9092", "orders").build()?;
/// let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
/// assert_eq!(orders.handle(order).await.unwrap(), Outcome::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Publisher(Arc<Relay>);

/// What the clones of a publisher share.
pub(crate) struct Relay {
    pub(crate) connection: Arc<Connection>,
    pub(crate) target: Target,
    pub(crate) topic: String,
    pub(crate) format: Format,
    pub(crate) source: String,
    pub(crate) timeout: Duration,
}

impl Publisher {
    /// Begins a publisher to a topic of the cluster that these brokers (`host:port`, separated by commas) belong to.
    /// Nothing is checked until [`build`](PublisherBuilder::build).
    pub fn to(bootstrap_servers: impl Into<String>, topic: impl Into<String>) -> PublisherBuilder {
        Config::to(bootstrap_servers.into(), topic).into()
    }

    /// Begins a publisher with these settings.
    pub fn of(config: Config) -> PublisherBuilder {
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

impl Handler for Publisher {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.0.publish(&event, &self.0.source).await
    }

    fn target(&self) -> Option<&Target> {
        Some(&self.0.target)
    }
}

impl Relay {
    /// The whole of a delivery: ask for leave, send, judge, answer.
    async fn publish(&self, event: &Event, source: &str) -> Result<Outcome, Failure> {
        let record = Record::of(event, source, self.format)?;
        let mut permit = self.target.admit([event.id()])?;
        let publishing = self.connection.publish(&self.topic, &record);
        let verdict = match permit.watch(publishing, self.connection.lost()).await {
            Ok(()) => Verdict::Done,
            Err(unconfirmed) => judge(unconfirmed, &self.topic, self.timeout),
        };
        permit.answer(verdict)
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Relay { target, topic, source, .. } = &*self.0;
        f.debug_struct("Publisher")
            .field("target", target)
            .field("topic", topic)
            .field("source", source)
            .finish_non_exhaustive()
    }
}
