//! A backlog of published events.

use anyhow::Result;
use backstop_sql::{Queue, Supported};
use sqlx::Pool;

use crate::steady::event;

/// How many events are published together.
const TOGETHER: u32 = 5_000;

/// Creates the tables and publishes so many events of about 200 bytes of payload.
pub(super) async fn publish<DB: Supported>(pool: &Pool<DB>, events: u32) -> Result<()> {
    let queue = Queue::new(pool.clone()).wake_ups(false).start().await?;
    for first in (0..events).step_by(TOGETHER as usize) {
        let some: Result<Vec<_>> = (first..events.min(first + TOGETHER)).map(event).collect();
        queue.publish_all(some?).await?;
    }
    Ok(queue.close().await?)
}
