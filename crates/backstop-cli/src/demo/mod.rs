//! `backstop demo`: a small shop on SQLite, with the dashboard beside it. Every number it shows is counted.

mod shop;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use backstop_admin::{Admin, metrics};
use backstop_core::inspect::Report;
use backstop_core::retry::Exponential;
use backstop_core::{Clock, Shutdown, SystemClock};
use backstop_sql::Outbox;
use backstop_sql::store::{Census, DeadFilter};
use sqlx::{Sqlite, SqlitePool};
use tempfile::TempDir;

use crate::args;
use crate::signals::asked_to_end;
use shop::Shop;

/// How often a line about the flow is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// How often somebody replays what is dead.
const REPLAY: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: args::Demo) -> anyhow::Result<()> {
    let data = Data::open(args.dir)?;
    let prometheus = metrics::install()?;
    let dashboard = Admin::new().metrics(move || prometheus.render());
    let pool = backstop_sql::sqlite::open(data.file()).await?;
    Shop::prepare(&pool).await?;
    let outbox = open(&pool).await?;
    let dashboard = dashboard.watch(outbox.inspect()).bind(([127, 0, 0, 1], args.port).into()).await?;
    greet(&dashboard.url(), &data, args.run_for);

    let shutdown = Shutdown::new();
    let serving = tokio::spawn(dashboard.serve(shutdown.child()));
    let shop = tokio::spawn(shop::take_orders(outbox.clone(), args.rate, shutdown.child()));
    let operator = tokio::spawn(replay_the_dead(outbox.clone(), shutdown.child()));
    let ended = tokio::select! {
        ended = asked_to_end() => ended,
        () = after(args.run_for) => Ok(()),
        () = show_progress(&outbox) => Ok(()),
    };

    shutdown.begin();
    operator.await.context("the operator's task failed")?;
    let taken = shop.await.context("the shop's task failed")?;
    let drained = outbox.close().await;
    serving.await.context("the dashboard's task failed")?;
    summarize(taken?, &outbox).await?;
    pool.close().await;
    drained?;
    ended
}

async fn open(pool: &SqlitePool) -> Result<Outbox<Sqlite>, backstop_sql::Error> {
    Outbox::single_node(pool.clone())
        .name("orders")
        .on("Order", "OrderPlaced", shop::ship)
        .max_attempts(4)
        .retry_policy(Exponential { base: Duration::from_secs(1), max: Duration::from_secs(8) })
        // Shorter than the default, so that a retry is seen soon after it is due.
        .interval(Duration::from_millis(250))
        .start()
        .await
}

/// Where the database is: a directory of the user's, or a temporary one that goes with the process.
enum Data {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Data {
    fn open(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(dir) = dir else {
            let made = tempfile::Builder::new().prefix("backstop-demo-").tempdir();
            return Ok(Self::Temporary(
                made.context("cannot make a temporary directory; name one with --dir")?,
            ));
        };
        let advice = || format!("cannot use --dir {}; name a directory you may write to", dir.display());
        std::fs::create_dir_all(&dir).with_context(advice)?;
        tempfile::tempfile_in(&dir).with_context(advice)?;
        Ok(Self::Kept(dir))
    }

    fn directory(&self) -> &Path {
        match self {
            Self::Kept(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory().join("backstop-demo.db")
    }
}

fn greet(url: &str, data: &Data, run_for: Option<Duration>) {
    let fate = match data {
        Data::Kept(_) => "kept: start again to go on from there",
        Data::Temporary(_) => "removed at the end",
    };
    let end = run_for.map_or("Ctrl-C ends it.".to_owned(), |time| format!("Ends by itself after {time:?}."));
    println!(
        "A shop takes orders; each commits with its event, and a warehouse that sometimes fails receives it."
    );
    println!();
    println!("  dashboard  {url}");
    println!("  health     {url}/health");
    println!("  metrics    {url}/metrics");
    println!("  data       {} ({fate})", data.file().display());
    println!();
    println!("{end}");
    println!();
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn show_progress(outbox: &Outbox<Sqlite>) {
    let start = SystemClock.ticks();
    loop {
        tokio::time::sleep(PROGRESS).await;
        let seconds = SystemClock.ticks().since(start).as_secs();
        println!("{seconds:>5} s  {}", places(&outbox.report().await));
    }
}

/// An operator who comes by now and then and replays what is dead: some of it arrives this time.
async fn replay_the_dead(outbox: Outbox<Sqlite>, shutdown: Shutdown) {
    while shutdown.interrupts(tokio::time::sleep(REPLAY)).await.is_some() {
        match outbox.dead().replay_all(DeadFilter::default()).run().await {
            Ok(0) => {}
            Ok(replayed) => println!("         an operator replayed {replayed} dead events"),
            Err(stopped) => eprintln!("cannot replay: {stopped}"),
        }
    }
}

fn places(report: &Report) -> String {
    let each = report.places.iter().map(|place| {
        let more = if place.count.capped { "+" } else { "" };
        format!("{} {}{more}", place.name, place.count.events)
    });
    each.collect::<Vec<_>>().join(" · ")
}

/// Says where every event is, and fails if one is nowhere.
async fn summarize(taken: shop::Taken, outbox: &Outbox<Sqlite>) -> anyhow::Result<()> {
    let Census { waiting, retrying, dead, done } = outbox.store().census(u32::MAX).await?;
    let found = waiting.events + retrying.events + dead.events + done.events;
    let expected = taken.now + taken.before;
    let metrics = outbox.metrics();
    println!();
    println!(
        "appended {} this time, {} before; delivered {}, failed {}, replayed {} this time.",
        taken.now,
        taken.before,
        metrics.dispatch_success.total(),
        metrics.dispatch_failure.total(),
        metrics.replay.total(),
    );
    println!(
        "in the table: waiting {} · retrying {} · dead {} · done {}",
        waiting.events, retrying.events, dead.events, done.events
    );
    if found != expected {
        bail!("{expected} events were appended and {found} are in the table: please report this as a bug");
    }
    println!("{expected} appended = {found} accounted for. Nothing is lost.");
    Ok(())
}
