//! A node of the fault tests: one process with an outbox, which appends, delivers and writes down what it did.
//!
//! It is told what to do in lines on its standard input and answers in lines on its standard output; see
//! [`commands`]. It ends with its standard input, so that no test leaves one behind.

mod appending;
mod args;
mod commands;
mod handling;
mod recording;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use backstop_core::Event;
use backstop_sql::store::DatabaseKind;
use backstop_sql::{Outbox, Supported};
use clap::Parser as _;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;

use args::{Args, Mode};
use handling::Handling;

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let args = Args::parse();
    let patience = Duration::from_millis(args.acquire_timeout_ms);
    match DatabaseKind::of(&args.url)? {
        DatabaseKind::Postgres => {
            let pool = PgPoolOptions::new().max_connections(args.pool).acquire_timeout(patience);
            run(pool.connect(&args.url).await.context("connecting")?, args).await
        }
        DatabaseKind::Mysql => {
            let pool = MySqlPoolOptions::new().max_connections(args.pool).acquire_timeout(patience);
            run(pool.connect(&args.url).await.context("connecting")?, args).await
        }
        DatabaseKind::Sqlite => {
            let path = args.url.trim_start_matches("sqlite://");
            let path = path.split('?').next().unwrap_or(path).to_owned();
            run(backstop_sql::sqlite::open(path).await?, args).await
        }
    }
}

/// The settings that both modes share; their builders are different types.
macro_rules! tuned {
    ($builder:expr, $args:expr, $handling:expr) => {{
        let handling = $handling.clone();
        $builder
            .on(appending::AGGREGATE_TYPE, appending::EVENT_TYPE, move |event: Event| {
                let handling = handling.clone();
                async move { handling.handle(&event).await }
            })
            .worker_count($args.workers)
            .hot_queue_capacity($args.hot_queue)
            .cold_queue_capacity($args.cold_queue)
            .interval(Duration::from_millis($args.interval_ms))
            .batch_size($args.batch_size)
            .drain_timeout(Duration::from_millis($args.drain_ms))
    }};
}

async fn run<DB: Supported>(pool: sqlx::Pool<DB>, args: Args) -> Result<()> {
    let handling = Arc::new(Handling::new(&args)?);
    let outbox = match args.mode {
        Mode::Single => tuned!(Outbox::single_node(pool.clone()), args, handling).start().await?,
        Mode::Multi => {
            tuned!(Outbox::multi_node(pool.clone()), args, handling)
                // The name under which rows are claimed is the one that the test knows the node by.
                .claim_locking_as(&args.name, Duration::from_millis(args.claim_timeout_ms))
                .hot_grace(Duration::from_millis(args.hot_grace_ms))
                .start()
                .await?
        }
    };
    commands::obey(outbox, pool, handling, args).await
}
