//! From publishing to the handler, at a steady rate.

use std::sync::Arc;

use anyhow::Result;
use backstop_sql::queue::Worker;
use backstop_sql::{Queue, Supported};
use sqlx::Pool;

use crate::report::{Report, Unit};
use crate::steady::{Figures, Stamps, event};
use crate::{mariadb, postgres, sqlite};

const PER_SECOND: u32 = 200;

const GROUP: &str = "from publishing to the handler, 200 a second";

pub(super) const HERE_P50: &str = "published → handler in process, p50";
pub(super) const THERE_P50: &str = "published → handler on another node, p50";

/// Where events are published and handled, and when the time begins.
const PLACES: [(&str, Place, Begin); 6] = [
    ("published → handler in process", Place::Postgres, Begin::Return),
    ("call of publish → handler in process", Place::Postgres, Begin::Call),
    ("published → handler on another node", Place::PostgresElsewhere, Begin::Return),
    ("call of publish → handler on another node", Place::PostgresElsewhere, Begin::Call),
    ("MariaDB: call of publish → handler in process", Place::Mariadb, Begin::Call),
    ("SQLite: call of publish → handler in process", Place::Sqlite, Begin::Call),
];

#[derive(Debug, Clone, Copy)]
enum Place {
    Postgres,
    PostgresElsewhere,
    Mariadb,
    Sqlite,
}

#[derive(Debug, Clone, Copy)]
enum Begin {
    /// When `publish` is called: its commit counts.
    Call,
    /// When `publish` returns.
    Return,
}

pub(super) async fn measure(seconds: u32, only: &str, round: usize, report: &mut Report) -> Result<()> {
    for (name, place, begin) in PLACES.into_iter().filter(|(name, ..)| name.contains(only)) {
        let stamps = Stamps::new(PER_SECOND, seconds);
        let Figures { p50, p99, most, .. } = at(place, begin, &stamps).await?;
        eprintln!("round {round}: {name}: p50 {p50:.3} ms, p99 {p99:.3} ms, most {most:.3} ms");
        for (which, value) in [("p50", p50), ("p99", p99), ("most", most)] {
            report.add(GROUP, &format!("{name}, {which}"), Unit::Milliseconds, None, value);
        }
    }
    Ok(())
}

async fn at(place: Place, begin: Begin, stamps: &Arc<Stamps>) -> Result<Figures> {
    match place {
        Place::Postgres | Place::PostgresElsewhere => {
            let database = postgres::Fresh::create().await?;
            let pool = backstop_sql::postgres::open(&database.url).await?;
            let figures = match place {
                Place::Postgres => in_process(pool, begin, stamps).await?,
                _ => {
                    let other = backstop_sql::postgres::open(&database.url).await?;
                    on_another_node(pool, other, begin, stamps).await?
                }
            };
            database.drop().await?;
            Ok(figures)
        }
        Place::Mariadb => {
            let database = mariadb::Fresh::create().await?;
            let figures = in_process(database.pool.clone(), begin, stamps).await?;
            database.drop().await?;
            Ok(figures)
        }
        Place::Sqlite => {
            let database = sqlite::Fresh::create().await?;
            let figures = in_process(database.pool.clone(), begin, stamps).await?;
            database.drop().await;
            Ok(figures)
        }
    }
}

async fn in_process<DB: Supported>(pool: Pool<DB>, begin: Begin, stamps: &Arc<Stamps>) -> Result<Figures> {
    let worker = Worker::new().on("OrderPlaced", stamps.handler());
    let queue = Queue::new(pool).worker(worker).start().await?;
    let figures = publish_all(&queue, begin, stamps).await?;
    queue.close().await?;
    Ok(figures)
}

/// One queue only publishes, another has the worker. They share nothing but the database; that they are in one process
/// lets one clock measure both.
async fn on_another_node<DB: Supported>(
    here: Pool<DB>,
    there: Pool<DB>,
    begin: Begin,
    stamps: &Arc<Stamps>,
) -> Result<Figures> {
    let worker = Worker::new().on("OrderPlaced", stamps.handler());
    let there = Queue::new(there).worker(worker).start().await?;
    let here = Queue::new(here).start().await?;
    let figures = publish_all(&here, begin, stamps).await?;
    here.close().await?;
    there.close().await?;
    Ok(figures)
}

async fn publish_all<DB: Supported>(
    queue: &Queue<DB>,
    begin: Begin,
    stamps: &Arc<Stamps>,
) -> Result<Figures> {
    let (queue, marks) = (queue.clone(), stamps.clone());
    let publish = move |number| {
        let (queue, marks) = (queue.clone(), marks.clone());
        async move {
            let event = event(number)?;
            if let Begin::Call = begin {
                marks.written(number as usize);
            }
            queue.publish(event).await?;
            if let Begin::Return = begin {
                marks.written(number as usize);
            }
            Ok(())
        }
    };
    stamps.write_all(publish).await
}
