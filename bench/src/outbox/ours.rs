//! Backstop draining the same backlog with a handler that does nothing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use backstop_sql::store::Done;
use backstop_sql::{Outbox, Supported};
use sqlx::Pool;

use crate::contender::Drained;
use crate::counter::Counter;

/// With the default batch size where none is given.
pub(super) async fn single_node<DB: Supported>(
    pool: Pool<DB>,
    events: u32,
    batch: Option<u32>,
    done: Done,
) -> Result<Drained> {
    let counter = Counter::new(events);
    let start = Instant::now();
    let mut builder = Outbox::single_node(pool).done(done).on("Order", "OrderPlaced", counter.handler());
    if let Some(batch) = batch {
        builder = builder.batch_size(batch);
    }
    finish(builder.start().await?, counter, start, events).await
}

pub(super) async fn multi_node<DB: Supported>(pool: Pool<DB>, events: u32, batch: u32) -> Result<Drained> {
    let counter = Counter::new(events);
    let start = Instant::now();
    let outbox = Outbox::multi_node(pool)
        .claim_locking(Duration::from_secs(300))
        .batch_size(batch)
        .on("Order", "OrderPlaced", counter.handler())
        .start()
        .await?;
    finish(outbox, counter, start, events).await
}

/// Waits until every event was handled and written down.
async fn finish<DB: Supported>(
    outbox: Outbox<DB>,
    counter: Counter,
    start: Instant,
    events: u32,
) -> Result<Drained> {
    counter.all().await;
    closed(outbox, start, events).await
}

/// Waits until every event of a relay was delivered and written down.
pub(super) async fn relayed<DB: Supported>(
    outbox: Outbox<DB>,
    start: Instant,
    events: u32,
) -> Result<Drained> {
    let metrics = outbox.metrics();
    while metrics.dispatch_success.total() < u64::from(events) {
        let dead = metrics.dispatch_dead.total();
        ensure!(dead == 0, "{dead} of {events} died on the way; the target refuses them");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    closed(outbox, start, events).await
}

pub(super) async fn closed<DB: Supported>(
    outbox: Outbox<DB>,
    start: Instant,
    events: u32,
) -> Result<Drained> {
    outbox.close().await?;
    let took = start.elapsed();
    let census = outbox.store().census(u32::MAX).await?;
    let pending = census.waiting.events + census.retrying.events + census.dead.events;
    ensure!(pending == 0, "{pending} of {events} are not done");
    Ok(Drained { events, took })
}
