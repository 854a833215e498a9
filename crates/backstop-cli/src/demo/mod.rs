//! `backstop demo`: a small shop on SQLite, with an outbox, a queue and the dashboard beside it. Every number it shows is
//! counted.

mod shop;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use backstop_admin::{Admin, metrics};
use backstop_core::inspect::Report;
use backstop_core::retry::Exponential;
use backstop_core::{Clock, Shutdown, SystemClock};
use backstop_sql::queue::{Filter, OnFailure, Status, Worker};
use backstop_sql::store::{Census, DeadFilter};
use backstop_sql::{Outbox, Queue};
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
    let shop = Shop { outbox: open_outbox(&pool).await?, queue: open_queue(&pool).await? };
    let dashboard = dashboard.watch(shop.outbox.inspect()).watch(shop.queue.inspect());
    let dashboard = dashboard.bind(([127, 0, 0, 1], args.port).into()).await?;
    greet(&dashboard.url(), &data, args.run_for);

    let shutdown = Shutdown::new();
    let serving = tokio::spawn(dashboard.serve(shutdown.child()));
    let orders = tokio::spawn(shop.clone().take_orders(args.rate, shutdown.child()));
    let operator = tokio::spawn(bring_back(shop.clone(), shutdown.child()));
    let ended = tokio::select! {
        ended = asked_to_end() => ended,
        () = after(args.run_for) => Ok(()),
        () = show_progress(&shop) => Ok(()),
    };

    shutdown.begin();
    operator.await.context("the operator's task failed")?;
    let taken = orders.await.context("the shop's task failed")?;
    let drained = shop.outbox.close().await.and(shop.queue.close().await);
    serving.await.context("the dashboard's task failed")?;
    summarize(taken?, &shop).await?;
    pool.close().await;
    drained?;
    ended
}

async fn open_outbox(pool: &SqlitePool) -> Result<Outbox<Sqlite>, backstop_sql::Error> {
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

async fn open_queue(pool: &SqlitePool) -> Result<Queue<Sqlite>, backstop_sql::Error> {
    let worker = Worker::new()
        .concurrency(4)
        .on_failure(OnFailure::Retry)
        .retry_policy(Exponential { base: Duration::from_secs(1), max: Duration::from_secs(8) })
        .on("InvoiceRequested", shop::invoice);
    Queue::new(pool.clone()).name("invoices").max_attempts(3).worker(worker).start().await
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
    println!("A job for its invoice is published in the same transaction, and a worker handles it.");
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

async fn show_progress(shop: &Shop) {
    let start = SystemClock.ticks();
    loop {
        tokio::time::sleep(PROGRESS).await;
        let seconds = SystemClock.ticks().since(start).as_secs();
        println!("{seconds:>5} s  orders    {}", places(&shop.outbox.report().await));
        println!("         invoices  {}", places(&shop.queue.report().await));
    }
}

/// An operator who comes by now and then, replays what is dead and requeues what has failed: some of it arrives this time.
async fn bring_back(shop: Shop, shutdown: Shutdown) {
    while shutdown.interrupts(tokio::time::sleep(REPLAY)).await.is_some() {
        match shop.outbox.dead().replay_all(DeadFilter::default()).run().await {
            Ok(0) => {}
            Ok(replayed) => println!("         an operator replayed {replayed} dead events"),
            Err(stopped) => eprintln!("cannot replay: {stopped}"),
        }
        match requeue(&shop.queue).await {
            Ok(0) => {}
            Ok(requeued) => println!("         an operator requeued {requeued} failed jobs"),
            Err(error) => eprintln!("cannot requeue: {error}"),
        }
    }
}

async fn requeue(queue: &Queue<Sqlite>) -> Result<u64, backstop_sql::Error> {
    let operations = queue.operations();
    let failed = operations.list(Status::Failed, &Filter::default(), 1_000).await?;
    let ids: Vec<_> = failed.iter().map(|listed| listed.id).collect();
    Ok(operations.requeue(&ids, false).await?.failed)
}

fn places(report: &Report) -> String {
    let each = report.places.iter().map(|place| {
        let more = if place.count.capped { "+" } else { "" };
        format!("{} {}{more}", place.name, place.count.events)
    });
    each.collect::<Vec<_>>().join(" · ")
}

/// Says where every event is, and fails if one is nowhere.
async fn summarize(taken: shop::Taken, shop: &Shop) -> anyhow::Result<()> {
    println!();
    let orders = summarize_orders(taken, &shop.outbox).await?;
    let invoices = summarize_invoices(taken, shop).await?;
    println!(
        "{orders} appended = {orders} accounted for, {invoices} published = {invoices} accounted for. Nothing is lost."
    );
    Ok(())
}

async fn summarize_orders(taken: shop::Taken, outbox: &Outbox<Sqlite>) -> anyhow::Result<u64> {
    let Census { waiting, retrying, dead, done } = outbox.store().census(u32::MAX).await?;
    let found = waiting.events + retrying.events + dead.events + done.events;
    let expected = taken.now + taken.before;
    let metrics = outbox.metrics();
    println!(
        "orders: appended {} this time, {} before; delivered {}, failed {}, replayed {} this time.",
        taken.now,
        taken.before,
        metrics.dispatch_success.total(),
        metrics.dispatch_failure.total(),
        metrics.replay.total(),
    );
    println!(
        "  in the table: waiting {} · retrying {} · dead {} · done {}",
        waiting.events, retrying.events, dead.events, done.events
    );
    if found != expected {
        bail!("{expected} events were appended and {found} are in the table: please report this as a bug");
    }
    Ok(found)
}

async fn summarize_invoices(taken: shop::Taken, shop: &Shop) -> anyhow::Result<u64> {
    let expected = taken.now + taken.invoices_before;
    let metrics = shop.queue.metrics();
    println!(
        "invoices: published {} this time, {} before; completed {}, failed {}, retried {}, requeued {} this time.",
        taken.now,
        taken.invoices_before,
        metrics.completed.total(),
        metrics.failed.total(),
        metrics.retried.total(),
        metrics.requeued.total(),
    );
    let waiting = shop.count("select count(*) from events where status = 'PENDING'").await?;
    let processing = shop.count("select count(*) from events where status <> 'PENDING'").await?;
    let completed = shop.count("select count(*) from event_log where status = 'COMPLETED'").await?;
    let failed = shop.count("select count(*) from event_log where status <> 'COMPLETED'").await?;
    println!(
        "  in the tables: waiting {waiting} · processing {processing} · completed {completed} · failed {failed}"
    );
    let found = waiting + processing + completed + failed;
    if found != expected {
        bail!("{expected} jobs were published and {found} are in the tables: please report this as a bug");
    }
    Ok(found)
}
