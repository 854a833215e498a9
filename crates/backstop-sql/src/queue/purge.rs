//! Deleting old events from the log.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::telemetry;

use super::config::Config;
use super::table::Tables;
use crate::connection::Connection;
use crate::database::At;
use crate::purge::{Purge, Purger, Settings};
use crate::{BoxFuture, Error};

/// The purge of a queue, if it is switched on. It is not running yet.
pub(super) fn build(
    config: &Config,
    tables: &Tables,
    metrics: &Arc<telemetry::Queue>,
) -> Result<Option<Purge>, Error> {
    if !config.purge.enabled {
        return Ok(None);
    }
    let (counted, purger) = (metrics.clone(), LogPurger(tables.clone()));
    let settings = Settings { config: config.purge.clone() };
    let connections = Arc::new(tables.database().clone());
    settings.build_counting(connections, purger, move |rows| counted.purge.add(rows)).map(Some)
}

/// Deletes from the log.
pub(super) struct LogPurger(pub(super) Tables);

impl Purger for LogPurger {
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.0.purge(connection, at, age, limit))
    }
}
