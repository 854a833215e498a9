//! Connections that publishers with equal settings share.

use std::fmt;
use std::sync::Arc;

use backstop_core::shared::Shared;
use rdkafka::error::KafkaResult;

use crate::config::Config;
use crate::connection::Connection;

/// Connections to be shared: publishers that are given the same handle, and differ only in topic, format and
/// patience, use one producer. A cheap handle.
///
/// ```
/// use backstop_kafka::{Connections, Publisher};
///
/// let shared = Connections::default();
/// let orders = Publisher::to("localhost:9092", "orders").connections(&shared).build()?;
/// let refunds = Publisher::to("localhost:9092", "refunds").connections(&shared).build()?;
/// assert_eq!(shared.count(), 1);
/// # drop((orders, refunds));
/// # Ok::<(), backstop_kafka::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Connections(Arc<Shared<Config, Connection>>);

impl Connections {
    /// How many are in use.
    pub fn count(&self) -> usize {
        self.0.count()
    }

    pub(crate) fn of(&self, config: &Config) -> KafkaResult<Arc<Connection>> {
        self.0.of(config.of_connection(), || Connection::open(config.client(), config.timeout))
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("count", &self.count()).finish()
    }
}
