//! The purge of an outbox: which rows it deletes, and where it counts them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::telemetry;

use crate::connection::{Connection, Connections};
use crate::store::{At, Purgeable, Store};
use crate::{BoxFuture, Error};

pub use crate::purge::{Config, Purge, Purger, Settings};

impl Settings {
    /// Checks the settings and makes a purge that is not running yet. It cannot be made without connections
    /// and a purger.
    pub fn build(
        self,
        connections: Arc<dyn Connections>,
        purger: impl Purger,
        metrics: Arc<telemetry::Outbox>,
    ) -> Result<Purge, Error> {
        self.build_counting(connections, purger, move |deleted| metrics.purge.add(deleted))
    }
}

/// Deletes rows of a store.
pub struct StorePurger {
    store: Arc<dyn Store>,
    what: Purgeable,
}

impl StorePurger {
    /// Deletes DONE and DEAD rows by when they ended; others stay, however old.
    pub fn of_ended(store: Arc<dyn Store>) -> Self {
        Self { store, what: Purgeable::Ended }
    }

    /// Deletes rows of any status by when they were created: only for a table that somebody else reads, as
    /// with change-data capture.
    pub fn by_age(store: Arc<dyn Store>) -> Self {
        Self { store, what: Purgeable::Any }
    }
}

impl Purger for StorePurger {
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.store.purge(connection, self.what, at, age, limit)
    }
}

impl fmt::Debug for StorePurger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePurger").field("what", &self.what).finish_non_exhaustive()
    }
}
