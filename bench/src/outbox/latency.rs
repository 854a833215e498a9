//! From a commit to its handler, at a steady rate of commits.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use backstop_core::Event;
use backstop_sql::Outbox;
use backstop_sql::outbox::{Hook, HookError};
use sqlx::Postgres;

use crate::postgres::Fresh;
use crate::report::{Report, Unit};
use crate::steady::{Figures, Stamps, event, number};

const COMMITS_PER_SECOND: u32 = 1_000;

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
        let stamps = Stamps::new(COMMITS_PER_SECOND, seconds);
        let pool = backstop_sql::postgres::open(&database.url).await?;
        let figures = match names {
            HERE => single_node(pool, &stamps).await?,
            HERE_MULTI => multi_node(pool, &stamps).await?,
            _ => another_node(pool, &database.url, &stamps).await?,
        };
        database.drop().await?;
        let Figures { p50, p99, most, rate } = figures;
        eprintln!("round {round}: {}: {p50:.3} ms, p99 {p99:.3} ms, most {most:.3} ms", names[0]);
        let units = [Unit::Milliseconds, Unit::Milliseconds, Unit::Milliseconds, Unit::CommitsPerSecond];
        for ((name, unit), value) in names.iter().zip(units).zip([p50, p99, most, rate]) {
            report.add("from commit to handler, 1,000 commits/s, 4 workers", name, unit, None, value);
        }
    }
    Ok(())
}

async fn single_node(pool: sqlx::PgPool, stamps: &Arc<Stamps>) -> Result<Figures> {
    let outbox = Outbox::single_node(pool)
        .hook(Stamping(stamps.clone()))
        .on("Order", "OrderPlaced", stamps.handler())
        .start()
        .await?;
    let figures = commit_all(&outbox, stamps).await;
    outbox.close().await?;
    figures
}

async fn multi_node(pool: sqlx::PgPool, stamps: &Arc<Stamps>) -> Result<Figures> {
    let outbox = Outbox::multi_node(pool)
        .claim_locking(Duration::from_secs(300))
        .hook(Stamping(stamps.clone()))
        .on("Order", "OrderPlaced", stamps.handler())
        .start()
        .await?;
    let figures = commit_all(&outbox, stamps).await;
    outbox.close().await?;
    figures
}

/// One outbox only writes, another delivers. They share nothing but the database; that they are in one process
/// lets one clock measure both.
async fn another_node(pool: sqlx::PgPool, url: &str, stamps: &Arc<Stamps>) -> Result<Figures> {
    let reader = Outbox::multi_node(backstop_sql::postgres::open(url).await?)
        .claim_locking(Duration::from_secs(300))
        .on("Order", "OrderPlaced", stamps.handler())
        .start()
        .await?;
    let writer = Outbox::writer_only(pool).hook(Stamping(stamps.clone())).start().await?;
    let figures = commit_all(&writer, stamps).await;
    writer.close().await?;
    reader.close().await?;
    figures
}

async fn commit_all(outbox: &Outbox<Postgres>, stamps: &Arc<Stamps>) -> Result<Figures> {
    let outbox = outbox.clone();
    let commit = move |number| {
        let outbox = outbox.clone();
        async move {
            let mut tx = outbox.begin().await?;
            tx.append(event(number)?).await?;
            Ok(tx.commit().await?)
        }
    };
    stamps.write_all(commit).await
}

/// Takes the time when the database has answered the commit, before the hot path hears of it.
struct Stamping(Arc<Stamps>);

impl Hook for Stamping {
    fn after_commit(&self, events: &[Event]) -> Result<(), HookError> {
        events.iter().for_each(|event| self.0.written(number(event)));
        Ok(())
    }
}
