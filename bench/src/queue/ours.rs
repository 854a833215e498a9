//! Backstop's worker on the same backlog, with a handler that does nothing.

use std::time::Instant;

use anyhow::{Result, ensure};
use backstop_sql::queue::Worker;
use backstop_sql::{Queue, Supported};
use sqlx::Pool;

use crate::contender::Drained;
use crate::counter::Counter;

/// With default settings, from the start of the worker until it is closed and all is written down.
pub(super) async fn worker<DB: Supported>(pool: Pool<DB>, events: u32) -> Result<Drained> {
    let counter = Counter::new(events);
    let start = Instant::now();
    let worker = Worker::new().on("OrderPlaced", counter.handler());
    let queue = Queue::new(pool).worker(worker).start().await?;
    counter.all().await;
    queue.close().await?;
    let took = start.elapsed();
    let counts = queue.operations().counts().await?;
    let (pending, processing, failed) =
        (counts.pending.events, counts.processing.events, counts.failed.events);
    ensure!(
        pending + processing + failed == 0,
        "{pending} pending, {processing} processing, {failed} failed"
    );
    Ok(Drained { events, took })
}
