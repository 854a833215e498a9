//! Relays: handlers that send events on, to a URL or to a Kafka topic.
//!
//! A relay has a [`Target`], which says whether it may be called now. While the target is unavailable its routes are
//! held, with no attempt counted, so an outage of an hour costs nothing.

pub use backstop_core::breaker;
pub use backstop_core::target::{Status, Target};
#[cfg(feature = "http")]
pub use backstop_http as http;
#[cfg(feature = "http")]
pub use backstop_http::{Webhook, WebhookBuilder};
#[cfg(feature = "kafka")]
pub use backstop_kafka as kafka;
#[cfg(feature = "kafka")]
pub use backstop_kafka::{Publisher, PublisherBuilder};
