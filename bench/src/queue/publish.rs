//! What publishing costs on PostgreSQL, against inserts of the same columns by hand.

use std::time::Instant;

use anyhow::Result;
use backstop_core::event::cloudevents;
use backstop_sql::Queue;
use sqlx::{PgPool, Postgres};

use crate::postgres::Fresh;
use crate::report::{Report, Unit, median};
use crate::steady::event;

/// Calls of one kind in a row; then it is the next one's turn.
const BLOCK: usize = 200;

/// How often each has its turn in a round.
const TURNS: usize = 15;

/// How many events are published together.
const TOGETHER: u32 = 500;

/// How often that is done in a round.
const BATCHES: usize = 100;

const ONE: &str = "publishing one event, one connection";
const MANY: &str = "publishing 500 events together, one connection";
pub(super) const OURS: &str = "publish";
pub(super) const PLAIN: &str = "plain insert";
pub(super) const OURS_TOGETHER: &str = "publish_all, 500 together";
pub(super) const PLAIN_TOGETHER: &str = "plain insert from arrays, 500 together";

const INSERT: &str = "insert into events (event, event_type, status, attempts, created_at, updated_at)
     values ($1::json, $2, 'PENDING', 0, statement_timestamp(), statement_timestamp()) returning id";

const INSERT_TOGETHER: &str =
    "insert into events (event, event_type, status, attempts, created_at, updated_at)
     select event::json, $2, 'PENDING', 0, statement_timestamp(), statement_timestamp()
     from unnest($1::text[]) as event returning id";

pub(super) async fn measure(round: usize, report: &mut Report) -> Result<()> {
    let database = Fresh::create().await?;
    let queue = Queue::new(database.pool.clone()).start().await?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    // The first turn opens connections and prepares statements; it does not count.
    for turn in 0..=TURNS {
        for _ in 0..BLOCK {
            let start = Instant::now();
            insert(&database.pool).await?;
            plain.extend((turn > 0).then_some(start.elapsed().as_secs_f64() * 1e3));
        }
        for _ in 0..BLOCK {
            let start = Instant::now();
            queue.publish(event(1_000_000)?).await?;
            ours.extend((turn > 0).then_some(start.elapsed().as_secs_f64() * 1e3));
        }
    }
    for (name, against, took) in [(PLAIN, None, &plain), (OURS, Some(PLAIN), &ours)] {
        let took = median(took);
        eprintln!("round {round}: {name}: {took:.3} ms");
        report.add(ONE, name, Unit::Milliseconds, against, took);
    }
    measure_together(&queue, &database.pool, round, report).await?;
    queue.close().await?;
    database.drop().await
}

async fn measure_together(
    queue: &Queue<Postgres>,
    pool: &PgPool,
    round: usize,
    report: &mut Report,
) -> Result<()> {
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for batch in 0..=BATCHES {
        let start = Instant::now();
        insert_together(pool).await?;
        plain.extend((batch > 0).then_some(start.elapsed().as_secs_f64()));
        let start = Instant::now();
        let events: Result<Vec<_>> = (0..TOGETHER).map(event).collect();
        queue.publish_all(events?).await?;
        ours.extend((batch > 0).then_some(start.elapsed().as_secs_f64()));
    }
    for (name, against, took) in
        [(PLAIN_TOGETHER, None, &plain), (OURS_TOGETHER, Some(PLAIN_TOGETHER), &ours)]
    {
        let rate = f64::from(TOGETHER) / median(took);
        eprintln!("round {round}: {name}: {rate:.0} events/s");
        report.add(MANY, name, Unit::EventsPerSecond, against, rate);
    }
    Ok(())
}

async fn insert(pool: &PgPool) -> Result<i64> {
    let json = cloudevents::to_json(&event(1_000_000)?, "/queue/queue")?;
    Ok(sqlx::query_scalar(INSERT).bind(json).bind("OrderPlaced").fetch_one(pool).await?)
}

async fn insert_together(pool: &PgPool) -> Result<Vec<i64>> {
    let json = |number| anyhow::Ok(cloudevents::to_json(&event(number)?, "/queue/queue")?);
    let events: Result<Vec<String>> = (0..TOGETHER).map(json).collect();
    Ok(sqlx::query_scalar(INSERT_TOGETHER).bind(events?).bind("OrderPlaced").fetch_all(pool).await?)
}
