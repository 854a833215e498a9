//! A node of the queue's fault tests: one process with a worker, which handles events and writes down which.
//!
//! It says `ready` on its standard output, closes the queue at the line `close`, and ends with its standard input, so that no
//! test leaves one behind.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use backstop_core::{Delivery, Outcome};
use backstop_sql::queue::Worker;
use backstop_sql::store::DatabaseKind;
use backstop_sql::{Queue, Supported};
use clap::Parser;
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[derive(Debug, Clone, Parser)]
struct Args {
    /// The database.
    #[arg(long)]
    url: String,
    /// Where it writes down what it handles: a line with the event's payload and the attempt for each.
    #[arg(long)]
    record: PathBuf,
    #[arg(long, default_value_t = 2_000)]
    timeout_ms: u64,
    #[arg(long, default_value_t = 8)]
    concurrency: usize,
    /// How long a handler takes.
    #[arg(long, default_value_t = 0)]
    handler_us: u64,
    #[arg(long)]
    max_attempts: Option<u32>,
    /// The event with this payload ends the process.
    #[arg(long)]
    crash_on: Option<u32>,
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let args = Args::parse();
    match DatabaseKind::of(&args.url)? {
        DatabaseKind::Postgres => run(backstop_sql::postgres::open_sized(&args.url, 4).await?, args).await,
        DatabaseKind::Mysql => run(backstop_sql::mysql::open_sized(&args.url, 4).await?, args).await,
        DatabaseKind::Sqlite => {
            let path = args.url.trim_start_matches("sqlite://");
            let path = path.split('?').next().unwrap_or(path).to_owned();
            run(backstop_sql::sqlite::open(path).await?, args).await
        }
    }
}

async fn run<DB: Supported>(pool: sqlx::Pool<DB>, args: Args) -> Result<()> {
    let record = OpenOptions::new().create(true).append(true).open(&args.record).context("the record")?;
    let (record, given) = (Arc::new(record), args.clone());
    let worker = Worker::new()
        .concurrency(args.concurrency)
        .idle_wait(Duration::from_secs(1))
        .on("Numbered", move |delivery: Delivery| handle(record.clone(), given.clone(), delivery));
    let mut builder =
        Queue::new(pool).abandoned_timeout(Duration::from_millis(args.timeout_ms)).worker(worker);
    if let Some(attempts) = args.max_attempts {
        builder = builder.max_attempts(attempts);
    }
    let queue = builder.start().await?;
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "close" {
            queue.close().await?;
            println!("closed");
            break;
        }
    }
    Ok(())
}

async fn handle(record: Arc<File>, args: Args, delivery: Delivery) -> Result<Outcome, anyhow::Error> {
    let number: u32 = delivery.event.payload()?;
    if args.crash_on == Some(number) {
        std::process::abort();
    }
    if args.handler_us > 0 {
        tokio::time::sleep(Duration::from_micros(args.handler_us)).await;
    }
    // One write for a line, so that lines of many handlers do not mix.
    (&*record).write_all(format!("{number} {}\n", delivery.attempt).as_bytes())?;
    Ok(Outcome::Done)
}
