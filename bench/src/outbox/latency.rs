//! From a commit to its handler, while commits come in at a steady rate whatever becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use backstop_core::Event;
use backstop_sql::Outbox;
use backstop_sql::outbox::{Hook, HookError};
use sqlx::Postgres;
use tokio::sync::Notify;

use super::postgres::Fresh;
use crate::report::{Report, Unit};

const COMMITS_PER_SECOND: u32 = 1_000;

/// Tasks that commit side by side, so that one slow commit does not hold the others up.
const WRITERS: u32 = 8;

/// How long the last events may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const HERE_P50: &str = "commit → handler in process, p50";
pub(super) const HERE_P99: &str = "commit → handler in process, p99";
pub(super) const THERE_P50: &str = "commit → handler on another node, p50";
pub(super) const THERE_P99: &str = "commit → handler on another node, p99";

const HERE: [&str; 4] =
    [HERE_P50, HERE_P99, "commit → handler in process, most", "commits/s, handler in process"];
const HERE_MULTI: [&str; 4] = [
    "commit → handler in process, multi_node, p50",
    "commit → handler in process, multi_node, p99",
    "commit → handler in process, multi_node, most",
    "commits/s, handler in process, multi_node",
];
const THERE: [&str; 4] =
    [THERE_P50, THERE_P99, "commit → handler on another node, most", "commits/s, handler on another node"];

pub(super) async fn measure(seconds: u32, only: &str, round: usize, report: &mut Report) -> Result<()> {
    for names in [HERE, HERE_MULTI, THERE] {
        if !names.iter().any(|name| name.contains(only)) {
            continue;
        }
        let database = Fresh::create().await?;
        let stamps = Arc::new(Stamps::new(seconds * COMMITS_PER_SECOND));
        let pool = backstop_sql::postgres::open(&database.url).await?;
        let figures = match names {
            HERE => single_node(pool, &stamps).await?,
            HERE_MULTI => multi_node(pool, &stamps).await?,
            _ => another_node(pool, &database.url, &stamps).await?,
        };
        database.drop().await?;
        let [p50, p99, most, _] = figures;
        eprintln!("round {round}: {}: {p50:.3} ms, p99 {p99:.3} ms, most {most:.3} ms", names[0]);
        let units = [Unit::Milliseconds, Unit::Milliseconds, Unit::Milliseconds, Unit::CommitsPerSecond];
        for ((name, unit), value) in names.iter().zip(units).zip(figures) {
            report.add("from commit to handler, 1,000 commits/s, 4 workers", name, unit, None, value);
        }
    }
    Ok(())
}

async fn single_node(pool: sqlx::PgPool, stamps: &Arc<Stamps>) -> Result<[f64; 4]> {
    let outbox = Outbox::single_node(pool)
        .hook(Stamping(stamps.clone()))
        .on("Order", "OrderPlaced", handler(stamps))
        .start()
        .await?;
    let figures = commit_all(&outbox, stamps).await;
    outbox.close().await?;
    figures
}

async fn multi_node(pool: sqlx::PgPool, stamps: &Arc<Stamps>) -> Result<[f64; 4]> {
    let outbox = Outbox::multi_node(pool)
        .claim_locking(Duration::from_secs(300))
        .hook(Stamping(stamps.clone()))
        .on("Order", "OrderPlaced", handler(stamps))
        .start()
        .await?;
    let figures = commit_all(&outbox, stamps).await;
    outbox.close().await?;
    figures
}

/// One outbox only writes, another delivers. They share nothing but the database; that they are in one process
/// lets one clock measure both.
async fn another_node(pool: sqlx::PgPool, url: &str, stamps: &Arc<Stamps>) -> Result<[f64; 4]> {
    let reader = Outbox::multi_node(backstop_sql::postgres::open(url).await?)
        .claim_locking(Duration::from_secs(300))
        .on("Order", "OrderPlaced", handler(stamps))
        .start()
        .await?;
    let writer = Outbox::writer_only(pool).hook(Stamping(stamps.clone())).start().await?;
    let figures = commit_all(&writer, stamps).await;
    writer.close().await?;
    reader.close().await?;
    figures
}

/// Commits one event after the other, each at its time, and waits until all were handled.
async fn commit_all(outbox: &Outbox<Postgres>, stamps: &Arc<Stamps>) -> Result<[f64; 4]> {
    let begin = tokio::time::Instant::now() + Duration::from_millis(100);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(outbox.clone(), stamps.clone(), begin, writer)))
        .collect();
    for writer in writers {
        writer.await??;
    }
    let took = begin.elapsed();
    let handled = tokio::time::timeout(PATIENCE, stamps.all.notified()).await;
    let left = stamps.left.load(Ordering::Relaxed);
    ensure!(handled.is_ok(), "{left} events were not handled within {PATIENCE:?}");
    let mut waited = stamps.waited();
    waited.sort_by(f64::total_cmp);
    let share = |share: f64| waited[((waited.len() - 1) as f64 * share).round() as usize];
    Ok([share(0.5), share(0.99), share(1.0), stamps.committed.len() as f64 / took.as_secs_f64()])
}

/// Every `WRITERS`-th event. Times are counted from the beginning, so that a late commit delays no other.
async fn write(
    outbox: Outbox<Postgres>,
    stamps: Arc<Stamps>,
    begin: tokio::time::Instant,
    writer: u32,
) -> Result<()> {
    let text = "x".repeat(170);
    for number in (writer..u32::try_from(stamps.committed.len())?).step_by(WRITERS as usize) {
        tokio::time::sleep_until(begin + Duration::from_secs(1) / COMMITS_PER_SECOND * number).await;
        let mut tx = outbox.begin().await?;
        let payload = serde_json::json!({ "order": number, "text": text });
        tx.append(Event::of("OrderPlaced").aggregate("Order", number.to_string()).json(&payload)?).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// When each event was committed and when its handler was called, in nanoseconds.
struct Stamps {
    begin: Instant,
    committed: Vec<AtomicU64>,
    handled: Vec<AtomicU64>,
    left: AtomicU32,
    all: Notify,
}

impl Stamps {
    fn new(events: u32) -> Self {
        let none = || (0..events).map(|_| AtomicU64::new(0)).collect();
        Self {
            begin: Instant::now(),
            committed: none(),
            handled: none(),
            left: AtomicU32::new(events),
            all: Notify::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Milliseconds, without those of the first second.
    fn waited(&self) -> Vec<f64> {
        let both = self.committed.iter().zip(&self.handled).skip(COMMITS_PER_SECOND as usize);
        // Another node may be told of a commit before the one that commits is.
        both.map(|(committed, handled)| {
            handled.load(Ordering::Relaxed).saturating_sub(committed.load(Ordering::Relaxed)) as f64 / 1e6
        })
        .collect()
    }
}

fn number(event: &Event) -> usize {
    event.aggregate_id().and_then(|id| id.parse().ok()).expect("the event's number is its aggregate")
}

/// Takes the time when the database has answered the commit, before the hot path hears of it.
struct Stamping(Arc<Stamps>);

impl Hook for Stamping {
    fn after_commit(&self, events: &[Event]) -> Result<(), HookError> {
        let now = self.0.now();
        events.iter().for_each(|event| self.0.committed[number(event)].store(now, Ordering::Relaxed));
        Ok(())
    }
}

fn handler(stamps: &Arc<Stamps>) -> impl Fn(Event) -> std::future::Ready<()> + Send + Sync + 'static {
    let stamps = stamps.clone();
    move |event| {
        let now = stamps.now();
        if stamps.handled[number(&event)].swap(now, Ordering::Relaxed) == 0
            && stamps.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            stamps.all.notify_one();
        }
        std::future::ready(())
    }
}
