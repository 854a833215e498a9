//! What tests of outages share: an outbox that would bury soon, and a breaker that asks again soon.

use std::time::Duration;

use backstop::outbox::{Builder, SingleNode};
use backstop::relay::breaker::Config;
use backstop::retry::Exponential;
use backstop::{Handler, Outbox};
use sqlx::{Sqlite, SqlitePool};

/// Open after three failures, for a moment, until one probe succeeds.
pub(crate) fn breaker() -> Config {
    Config {
        consecutive_failures: Some(3),
        wait_in_open: Duration::from_millis(30),
        half_open_calls: 1,
        ..Config::default()
    }
}

/// Two attempts, a millisecond apart: whatever counts as one would soon be dead.
pub(crate) fn impatient(pool: SqlitePool, handler: impl Handler) -> Builder<Sqlite, SingleNode> {
    Outbox::single_node(pool)
        .on("Order", "OrderPlaced", handler)
        .max_attempts(2)
        .retry_policy(Exponential { base: Duration::from_millis(1), max: Duration::from_millis(1) })
        .interval(Duration::from_millis(10))
}
