//! Benchmarks: Backstop against raw loops and peers, interleaved in one run, told as ratios.

mod database;
mod ours;
mod raw;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use backstop_sql::store::Done;
use clap::{Parser, Subcommand};

use report::Table;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Draining a backlog of the outbox on PostgreSQL.
    Outbox {
        /// How many events the backlog has.
        #[arg(long, default_value_t = 200_000)]
        events: u32,
        /// How often each contender runs; the median counts.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Only contenders whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Where the figures are written as JSON.
        #[arg(long)]
        json: Option<std::path::PathBuf>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Outbox { events, rounds, only, json } => {
            let table = outbox(events, rounds, &only).await?;
            println!("{table}");
            if let Some(path) = json {
                std::fs::write(path, serde_json::to_string_pretty(&table)?)?;
            }
        }
    }
    Ok(())
}

/// One way to drain the backlog.
type Contender = (&'static str, fn(sqlx::PgPool, u32) -> Measured);
type Measured = std::pin::Pin<Box<dyn Future<Output = Result<Duration>> + Send>>;

const CONTENDERS: [Contender; 7] = [
    ("raw select + done", |pool, events| Box::pin(raw::select_and_done(pool, events))),
    ("single_node, batch 500", |pool, events| Box::pin(ours::single_node(pool, events, 500, Done::Keep))),
    ("single_node, defaults", |pool, events| Box::pin(ours::single_node(pool, events, 50, Done::Keep))),
    ("raw claim + done", |pool, events| Box::pin(raw::claim_and_done(pool, events))),
    ("multi_node, batch 500", |pool, events| Box::pin(ours::multi_node(pool, events, 500))),
    ("raw select + delete", |pool, events| Box::pin(raw::select_and_delete(pool, events))),
    ("single_node, Done::Delete", |pool, events| {
        Box::pin(ours::single_node(pool, events, 500, Done::Delete))
    }),
];

async fn outbox(events: u32, rounds: usize, only: &str) -> Result<Table> {
    let mut table = Table::new(events);
    for round in 1..=rounds {
        for (name, run) in CONTENDERS.iter().filter(|(name, _)| name.contains(only)) {
            let database = database::fresh().await?;
            database::fill(&database.pool, events).await?;
            let took = run(database.pool.clone(), events).await?;
            eprintln!("round {round}: {name}: {:.0} events/s", f64::from(events) / took.as_secs_f64());
            table.add(name, took);
            database.drop().await?;
        }
    }
    Ok(table)
}
