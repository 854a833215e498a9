//! Events on Kafka: a relay that is a [`Handler`](backstop_core::Handler), so an outbox can be pointed at a topic.
//!
//! ```no_run
//! use std::time::Duration;
//! use backstop_kafka::Publisher;
//!
//! # fn main() -> Result<(), backstop_kafka::Error> {
//! let orders = Publisher::to("kafka-1:9092,kafka-2:9092", "orders")
//!     .source("/shop/orders")
//!     .timeout(Duration::from_secs(10))
//!     .build()?;
//! // Outbox::multi_node(pool).worker_count(256).on("Order", "OrderPlaced", orders).start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each event is one record in a mode of the CloudEvents binding for Kafka. Its key is the aggregate id, so the
//! events of an aggregate share a partition, and it counts as delivered when all replicas in sync have
//! confirmed it (`acks=all`, idempotent). The brokers' answer decides what happens to the event:
//!
//! | answer | what happens to the event |
//! |---|---|
//! | confirmed | done |
//! | none in time, no connection, no leader, too few replicas, no such topic, no permission | its route is held; no attempt is counted unless others succeed, so an outage buries nothing |
//! | an unexpected error at the broker | tried again by the outbox's retry; the attempt is counted |
//! | the record is too large, or refused as invalid, even when it is sent alone | dead |
//!
//! A broker that is unavailable is not called for a while, by a [breaker](backstop_core::breaker).

mod builder;
mod config;
mod connection;
mod connections;
mod error;
mod publisher;
mod record;
mod verdict;

pub use backstop_core::setting::SettingFault;
pub use backstop_core::target::{Status, Target};
pub use builder::PublisherBuilder;
pub use config::{Compression, Config, Format};
pub use connections::Connections;
pub use error::Error;
pub use publisher::Publisher;
