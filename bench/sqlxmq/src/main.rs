//! sqlxmq draining jobs that do nothing: `backstop-bench-sqlxmq URL JOBS AT_ONCE` prints how many seconds that took.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgPoolOptions;
use sqlxmq::JobRunnerOptions;

/// As many jobs of the same payload, due for an hour, with a time-out that none of them reaches.
const FILL: &str = "select mq_insert(array_agg((
         uuid_generate_v4(), interval '-1 hour' + n * interval '1 microsecond', 5, interval '5 minutes',
         'orders', '', null, false, 'order_placed',
         json_build_object('order', n, 'text', repeat('x', 170))::text, null)::mq_new_t))
     from generate_series(1, $1) as n";

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().context("the first argument is the database")?;
    let jobs: i32 = arguments.next().context("the second argument is how many jobs")?.parse()?;
    let at_once: usize = arguments.next().context("the third argument is how many at once")?.parse()?;
    let pool = PgPoolOptions::new().max_connections(16).connect(&url).await?;
    Migrator::new(Path::new(env!("SQLXMQ_MIGRATIONS"))).await?.run(&pool).await?;
    fill(&pool, jobs).await?;

    let start = Instant::now();
    let mut runner = JobRunnerOptions::new(&pool, |mut job| {
        tokio::spawn(async move {
            if let Err(error) = job.complete().await {
                eprintln!("sqlxmq: {error}");
            }
        });
    });
    let mut running = runner.set_concurrency(at_once / 2, at_once).run().await?;
    while sqlx::query_scalar::<_, bool>("select exists (select from mq_payloads)").fetch_one(&pool).await? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("{}", start.elapsed().as_secs_f64());
    running.stop().await;
    Ok(())
}

async fn fill(pool: &PgPool, jobs: i32) -> Result<()> {
    sqlx::query(FILL).bind(jobs).execute(pool).await?;
    // Each by itself: neither runs inside a transaction.
    sqlx::query("vacuum analyze").execute(pool).await?;
    sqlx::query("checkpoint").execute(pool).await?;
    Ok(())
}
