//! `backstop queue`: the events of a queue on the command line. It works on the tables, whether a worker runs or not.

mod args;
mod meant;
mod purge;
mod requeue;
mod shown;
mod why;

use anyhow::{Context, bail};
use backstop_sql::queue::{Counts, Operations};

pub(crate) use args::Command;

use crate::config;
use crate::config::settings::Queue;
use crate::output::{Output, count};
use crate::table;
use crate::told::on_lines;
use meant::Meant;

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) if args.counts => counts(&args).await,
        Command::List(args) => list(&args).await,
        Command::Show(args) => show(&args).await,
        Command::Why(args) => why::run(&args).await,
        Command::Requeue(args) => requeue::run(&args).await,
        Command::Purge(args) => purge::run(&args).await,
    }
}

async fn list(args: &args::List) -> anyhow::Result<()> {
    let (queue, operations) = open(&args.which).await?;
    let mut meant = if args.stuck {
        Meant::stuck(&operations, &args.matching).await?
    } else {
        Meant::of_status(args.status, &args.matching)
    };
    let mut output = Output::new();
    let (mut shown, mut left) = (0, args.limit.unwrap_or(u64::MAX));
    while left > 0 {
        let page = meant.next(&operations, left).await?;
        if page.is_empty() {
            break;
        }
        for listed in &page {
            let line = if args.json { shown::listed_as_json(listed)? } else { shown::as_line(listed) };
            if !output.line(&line)? {
                return Ok(());
            }
        }
        shown += page.len() as u64;
        left -= page.len() as u64;
    }
    output.end()?;
    let word = if args.stuck { "stuck" } else { args.status.name() };
    let events = count(shown, &format!("{word} event"), &format!("{word} events"));
    eprintln!("{events} in queue {}", queue.name);
    Ok(())
}

async fn counts(args: &args::List) -> anyhow::Result<()> {
    let (queue, operations) = open(&args.which).await?;
    let counts: Counts = operations.counts().await?;
    let mut output = Output::new();
    if args.json {
        output.line(&shown::counts_as_json(&queue.name, &counts))?;
    } else {
        for line in shown::counts_as_lines(&counts) {
            output.line(&line)?;
        }
    }
    output.end()
}

async fn show(args: &args::One) -> anyhow::Result<()> {
    let (queue, operations) = open(&args.which).await?;
    let Some(found) = operations.find(args.id).await? else { bail!(nowhere(args.id, &queue)) };
    let line = shown::found_as_json(&found)?;
    // For people the same, spread over lines.
    let text = if args.json { line } else { on_lines(&line, &shown::ORDER)? };
    let mut output = Output::new();
    output.line(&text)?;
    output.end()
}

/// The queue that is meant, and its tables.
async fn open(which: &args::Which) -> anyhow::Result<(Queue, Operations)> {
    let (settings, sections) = config::load(&which.config.config)?.settings()?;
    let queue = table::named(settings.queue, which.queue.as_deref(), "--queue")?;
    let operations = table::existing_queue(&queue)
        .await
        .with_context(|| format!("{} cannot be reached", sections.told(&queue.path)))?;
    Ok((queue, operations))
}

/// What can be said about an event that has no row.
fn nowhere(id: i64, queue: &Queue) -> String {
    let tables = &queue.database.table;
    format!(
        "there is no event {id} in the tables {} and {} of queue {}: its transaction was rolled back or has not committed \
         yet, it was purged, or it is in another queue",
        tables.table, tables.log_table, queue.name
    )
}
