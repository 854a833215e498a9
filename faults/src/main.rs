//! A node of the fault tests: one process with an outbox, which appends, delivers and writes down what it did.
//!
//! It is told what to do in lines on its standard input and answers in lines on its standard output; see
//! [`commands`]. It ends with its standard input, so that no test leaves one behind.

mod appending;
mod args;
mod commands;
mod handling;
mod recording;
mod transacting;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use backstop_core::Event;
use backstop_core::retry::Exponential;
use backstop_sql::outbox::{Builder, Delivering, Tunable, purge};
use backstop_sql::store::{DatabaseKind, Done};
use backstop_sql::{Outbox, Supported};
use clap::Parser as _;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, MySql, Postgres, Sqlite, raw_sql};

use args::{Args, Mode};
use handling::Handling;

/// The first pause before a failed event is tried again, unless the longest is shorter.
const FIRST_RETRY: Duration = Duration::from_millis(200);

/// A pool whose sessions are told something first; their types have nothing in common.
macro_rules! with_session {
    ($pool:expr, $session:expr) => {{
        let session = $session.clone();
        $pool.after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move {
                match session {
                    Some(session) => raw_sql(AssertSqlSafe(session)).execute(connection).await.map(drop),
                    None => Ok(()),
                }
            })
        })
    }};
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let args = Args::parse();
    watching::start(&args)?;
    let patience = Duration::from_millis(args.acquire_timeout_ms);
    match DatabaseKind::of(&args.url)? {
        DatabaseKind::Postgres => {
            let pool = PgPoolOptions::new().max_connections(args.pool).acquire_timeout(patience);
            let pool = with_session!(pool, args.session);
            run(pool.connect(&args.url).await.context("connecting")?, args).await
        }
        DatabaseKind::Mysql => {
            let pool = MySqlPoolOptions::new().max_connections(args.pool).acquire_timeout(patience);
            let pool = with_session!(pool, args.session);
            run(pool.connect(&args.url).await.context("connecting")?, args).await
        }
        DatabaseKind::Sqlite => {
            let path = args.url.trim_start_matches("sqlite://");
            let path = path.split('?').next().unwrap_or(path).to_owned();
            run(backstop_sql::sqlite::open(path).await?, args).await
        }
    }
}

async fn run<DB: Reached>(pool: sqlx::Pool<DB>, args: Args) -> Result<()> {
    let handling = Arc::new(Handling::new(&args)?);
    let outbox = match args.mode {
        Mode::Single => tuned(Outbox::single_node(pool.clone()), &args, &handling).start().await?,
        Mode::Ordered => delivering(Outbox::ordered(pool.clone()), &args, &handling).start().await?,
        Mode::Multi => {
            tuned(Outbox::multi_node(pool.clone()), &args, &handling)
                // The name under which rows are claimed is the one that the test knows the node by.
                .claim_locking_as(&args.name, Duration::from_millis(args.claim_timeout_ms))
                .hot_grace(Duration::from_millis(args.hot_grace_ms))
                .start()
                .await?
        }
    };
    commands::obey(outbox, pool, handling, args).await
}

/// The settings of the modes that have workers and tries.
fn tuned<DB: Reached, M: Tunable>(
    builder: Builder<DB, M>,
    args: &Args,
    handling: &Arc<Handling>,
) -> Builder<DB, M> {
    let longest = Duration::from_millis(args.retry_ms);
    delivering(builder, args, handling)
        .worker_count(args.workers)
        .hot_queue_capacity(args.hot_queue)
        .cold_queue_capacity(args.cold_queue)
        .max_attempts(args.max_attempts)
        .retry_policy(Exponential { base: FIRST_RETRY.min(longest), max: longest })
}

/// The settings of every mode.
fn delivering<DB: Reached, M: Delivering>(
    builder: Builder<DB, M>,
    args: &Args,
    handling: &Arc<Handling>,
) -> Builder<DB, M> {
    let (counting, tortured) = (handling.clone(), handling.clone());
    let builder = DB::reached(builder, args.pooled)
        .on(appending::AGGREGATE_TYPE, appending::EVENT_TYPE, move |event: Event| {
            let handling = counting.clone();
            async move { handling.handle(&event).await }
        })
        .on(transacting::AGGREGATE_TYPE, transacting::EVENT_TYPE, move |event: Event| {
            let handling = tortured.clone();
            async move { handling.follow_steps(&event).await }
        })
        .interval(Duration::from_millis(args.interval_ms))
        .batch_size(args.batch_size)
        .drain_timeout(Duration::from_millis(args.drain_ms))
        .done(if args.delete_done { Done::Delete } else { Done::Keep });
    match args.purge_ms.map(Duration::from_millis) {
        Some(age) => builder.purge(purge::Settings::default().retention(age).interval(age / 4)),
        None => builder,
    }
}

/// A database, and how it is reached.
trait Reached: Supported {
    /// Through a pooler, where there is such a thing.
    fn reached<M: Delivering>(builder: Builder<Self, M>, _pooled: bool) -> Builder<Self, M> {
        builder
    }
}

impl Reached for Postgres {
    fn reached<M: Delivering>(builder: Builder<Self, M>, pooled: bool) -> Builder<Self, M> {
        builder.behind_pooler(pooled)
    }
}

impl Reached for MySql {}
impl Reached for Sqlite {}
