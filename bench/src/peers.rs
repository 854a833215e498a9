//! Other libraries draining as many jobs of the same payload, with settings for speed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions, WorkerUtils,
};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use crate::contender::Drained;
use crate::counter::Counter;
use crate::postgres::Fresh;

/// How many jobs graphile_worker runs at once.
const GRAPHILE_CONCURRENCY: usize = 500;

/// How long graphile_worker gathers completions.
const GRAPHILE_COMPLETE_AFTER: Duration = Duration::from_millis(5);

/// The shortest pause between two fetches that riverqueue allows.
const RIVER_COOLDOWN: Duration = Duration::from_millis(1);

/// A job whose payload nobody looks at, as with our own handler.
#[derive(Debug, Clone, Serialize, Deserialize, JobArgs)]
#[river(kind = "order_placed")]
struct OrderPlaced {}

impl TaskHandler for OrderPlaced {
    const IDENTIFIER: &'static str = "order_placed";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(counter) = context.get_ext::<Counter>() {
            counter.count();
        }
        Ok::<(), String>(())
    }
}

/// With so many local queues that hold so many jobs each.
pub(crate) async fn graphile_worker(events: u32, queues: usize, jobs: usize) -> Result<Drained> {
    let database = Fresh::create().await?;
    WorkerUtils::new(database.pool.clone(), "graphile_worker").migrate().await?;
    fill_graphile(&database, events).await?;

    let counter = Counter::new(events);
    let start = Instant::now();
    let worker = WorkerOptions::default()
        .pg_pool(database.pool.clone())
        .concurrency(GRAPHILE_CONCURRENCY)
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(GRAPHILE_COMPLETE_AFTER)
        .local_queue(LocalQueueConfig::default().with_size(jobs).with_queue_count(queues))
        .add_extension(counter.clone())
        .define_job::<OrderPlaced>()
        .init()
        .await?;
    let worker = Arc::new(worker);
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    counter.all().await;
    until(&database.pool, "select not exists (select from graphile_worker._private_jobs)").await?;
    let took = start.elapsed();

    worker.request_shutdown();
    running.await??;
    database.drop().await?;
    Ok(Drained { events, took })
}

async fn fill_graphile(database: &Fresh, events: u32) -> Result<()> {
    sqlx::query(
        "select count(*) from graphile_worker.add_jobs((
             select array_agg((
                 'order_placed', json_build_object('order', n, 'text', repeat('x', 170)), null,
                 now() - interval '1 hour' + n * interval '1 microsecond', null, null, null, null
             )::graphile_worker.job_spec)
             from generate_series(1, $1) as n))",
    )
    .bind(i32::try_from(events)?)
    .execute(&database.pool)
    .await?;
    database.settle_down().await
}

/// With so many jobs at once, which is also how many it fetches: as many as it has room for.
pub(crate) async fn riverqueue(events: u32, max_workers: usize) -> Result<Drained> {
    let database = Fresh::create().await?;
    PostgresMigrator::new(database.pool.clone()).migrate_up().await?;
    fill_river(&database, events).await?;

    let counter = Counter::new(events);
    let mut workers = Workers::new();
    let count = counter.clone();
    workers.add_fn(move |_: WorkContext, _: Job<OrderPlaced>| {
        count.count();
        std::future::ready(Ok::<_, std::io::Error>(WorkOutcome::Complete))
    })?;
    let start = Instant::now();
    let client = Client::builder(database.pool.clone())
        .workers(workers)
        .fetch_cooldown(RIVER_COOLDOWN)
        .queue("default", QueueConfig::new(max_workers).with_fetch_poll_interval(Duration::from_millis(5)))
        .build()?;
    let mut running = client.start()?;
    counter.all().await;
    until(
        &database.pool,
        "select not exists (select from river_job where state in
             ('available', 'pending', 'retryable', 'running', 'scheduled'))",
    )
    .await?;
    let took = start.elapsed();

    running.stop().await?;
    database.drop().await?;
    Ok(Drained { events, took })
}

async fn fill_river(database: &Fresh, events: u32) -> Result<()> {
    sqlx::query(
        "insert into river_job (kind, args, max_attempts, scheduled_at, created_at)
         select 'order_placed', jsonb_build_object('order', n, 'text', repeat('x', 170)), 25,
                now() - interval '1 hour' + n * interval '1 microsecond',
                now() - interval '1 hour' + n * interval '1 microsecond'
         from generate_series(1, $1) as n",
    )
    .bind(i32::try_from(events)?)
    .execute(&database.pool)
    .await?;
    database.settle_down().await
}

/// Asks until the tables say that everything is complete: what was handled is not yet written down.
async fn until(pool: &PgPool, complete: &'static str) -> Result<()> {
    while !sqlx::query_scalar::<_, bool>(complete).fetch_one(pool).await? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
