//! `backstop outbox`: the dead events of an outbox on the command line, and where any event is. It works on the table,
//! whether the outbox runs or not.

mod args;
mod operation;
mod shown;
mod why;

use anyhow::{Context, bail};
use backstop_sql::outbox::DeadEvents;
use backstop_sql::store::{DeadEvent, Rights, Whereabouts};

pub(crate) use args::Command;

use crate::config;
use crate::config::settings::Outbox;
use crate::output::{Output, count};
use crate::plain::plain;
use crate::table;
use crate::told::on_lines;

/// How many dead events are read at once.
const PAGE: u32 = 200;

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(&args).await,
        Command::Show(args) => show(&args).await,
        Command::Why(args) => why::run(&args).await,
        Command::Replay(args) => operation::run(operation::Verb::Replay, &args).await,
        Command::Discard(args) => operation::run(operation::Verb::Discard, &args).await,
    }
}

async fn list(args: &args::List) -> anyhow::Result<()> {
    let (outbox, dead) = open(&args.which, Rights::default()).await?;
    let filter = args.matching.filter();
    let mut output = Output::new();
    let (mut shown, mut after) = (0, None);
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let wanted = PAGE.min(u32::try_from(left).unwrap_or(u32::MAX));
        let page = dead.query_after(&filter, after.as_ref(), wanted).await?;
        for event in &page {
            let line = if args.json { shown::dead_as_json(event)? } else { shown::dead_as_line(event) };
            if !output.line(&line)? {
                return Ok(());
            }
        }
        shown += page.len() as u64;
        left -= page.len() as u64;
        after = page.last().map(DeadEvent::place);
        if page.len() < wanted as usize {
            break;
        }
    }
    output.end()?;
    eprintln!("{} in outbox {}", count(shown, "dead event", "dead events"), outbox.name);
    Ok(())
}

async fn show(args: &args::One) -> anyhow::Result<()> {
    let (outbox, dead) = open(&args.which, Rights::default()).await?;
    let Some(found) = dead.whereabouts(&args.id).await? else { bail!(nowhere(&args.id, &outbox)) };
    let mut output = Output::new();
    let line = shown::row_as_json(&found)?;
    // For people the same, spread over lines.
    let text = if args.json { line } else { on_lines(&line, &shown::ORDER)? };
    output.line(&text)?;
    output.end()
}

/// The outbox that is meant, and its dead events.
async fn open(which: &args::Which, rights: Rights) -> anyhow::Result<(Outbox, DeadEvents)> {
    let (settings, sections) = config::load(&which.config.config)?.settings()?;
    let outbox = table::named(settings.outbox, which.outbox.as_deref(), "--outbox")?;
    let dead = table::dead_events(&outbox, rights)
        .await
        .with_context(|| format!("{} cannot be reached", sections.told(&outbox.path)))?;
    Ok((outbox, dead))
}

/// What can be said about an event that has no row.
fn nowhere(id: &str, outbox: &Outbox) -> String {
    format!(
        "there is no event {} in table {} of outbox {}: its transaction was rolled back or has not committed yet, it was \
         purged, deleted when it was done or discarded, or it is in another outbox",
        plain(id),
        outbox.database.table.table,
        outbox.name
    )
}

/// Where an event stands, by the time that claims have in this outbox.
fn state(found: &Whereabouts, outbox: &Outbox) -> backstop_sql::outbox::EventState {
    found.state(outbox.config().claim_locking.lock_timeout)
}
