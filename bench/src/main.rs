//! Benchmarks: Backstop against raw loops and peers, interleaved in one run, told as ratios.

mod contender;
mod counter;
mod dlq;
mod machine;
mod mariadb;
mod options;
mod outbox;
mod peers;
mod postgres;
mod processor;
mod queue;
mod report;
mod sqlite;
mod steady;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use options::Options;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The outbox: draining a backlog, latency, the cost of an append, memory.
    Outbox(Options<outbox::Part>),
    /// The queue: burning down a backlog, latency, publishing.
    Queue(Options<queue::Part>),
    /// The dead-letter directory, against one file and one sync at a time.
    Dlq {
        /// How often each contender runs; the median counts.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// A folder on the disk that is measured.
        #[arg(long)]
        place: std::path::PathBuf,
        /// Only the contenders whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Drains one database and prints the most memory that took; the part `memory` starts it.
    #[command(hide = true)]
    DrainAlone(outbox::memory::DrainAlone),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Outbox(options) => outbox::run(&options).await,
        Command::Queue(options) => queue::run(&options).await,
        Command::Dlq { rounds, place, only } => dlq::run(rounds, &place, &only).await,
        Command::DrainAlone(drain) => drain.run().await,
    }
}
