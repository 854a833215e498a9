//! Backstop draining the same backlog with a handler that does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use backstop_core::Event;
use backstop_sql::Outbox;
use backstop_sql::store::Done;
use sqlx::{PgPool, Postgres};
use tokio::sync::Notify;

pub(crate) async fn single_node(pool: PgPool, events: u32, batch: u32, done: Done) -> Result<Duration> {
    let counter = Counter::new(events);
    let start = Instant::now();
    let outbox = Outbox::single_node(pool)
        .batch_size(batch)
        .done(done)
        .on("Order", "OrderPlaced", counter.handler())
        .start()
        .await?;
    finish(outbox, counter, start, events).await
}

pub(crate) async fn multi_node(pool: PgPool, events: u32, batch: u32) -> Result<Duration> {
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

/// Waits until every event was handled and written as DONE.
async fn finish(outbox: Outbox<Postgres>, counter: Counter, start: Instant, events: u32) -> Result<Duration> {
    counter.all.notified().await;
    outbox.close().await?;
    let took = start.elapsed();
    let census = outbox.store().census(u32::MAX).await?;
    let pending = census.waiting.events + census.retrying.events + census.dead.events;
    ensure!(pending == 0, "{pending} of {events} are not done");
    Ok(took)
}

#[derive(Clone)]
struct Counter {
    left: Arc<AtomicU32>,
    all: Arc<Notify>,
}

impl Counter {
    fn new(events: u32) -> Self {
        Self { left: Arc::new(AtomicU32::new(events)), all: Arc::new(Notify::new()) }
    }

    fn handler(&self) -> impl Fn(Event) -> std::future::Ready<()> + Send + Sync + 'static {
        let this = self.clone();
        move |_| {
            if this.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                this.all.notify_one();
            }
            std::future::ready(())
        }
    }
}
