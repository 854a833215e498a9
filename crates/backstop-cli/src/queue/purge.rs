//! `backstop queue purge`: old events of the log are counted, confirmed, and deleted in batches.

use anyhow::bail;
use backstop_core::operate::AUDIT;
use backstop_sql::queue::{Operations, Status};
use serde_json::json;

use super::args::{Matching, Purge};
use super::meant::Meant;
use super::open;
use crate::args::ago;
use crate::confirm::is_wanted;
use crate::output::{Output, Pace, count};
use crate::signals::asked_to_end;
use crate::table::operator;

/// How many events one statement deletes.
const BATCH: u32 = 1_000;

/// How far is counted before it is asked.
const COUNTED: u64 = 100_000;

pub(super) async fn run(args: &Purge) -> anyhow::Result<()> {
    let (queue, operations) = open(&args.which).await?;
    let matched = matched(args, &operations).await?;
    let wanted = matched.min(args.limit.unwrap_or(u64::MAX));
    let more = if wanted == COUNTED { " or more" } else { "" };
    let what = format!(
        "{}{more} from the log of queue {}, those that ended more than {:?} ago",
        count(wanted, "event", "events"),
        queue.name,
        args.older_than
    );
    if !args.dry_run && wanted > 0 && !is_wanted(&format!("delete {what}"), args.yes)? {
        bail!("nothing was deleted");
    }
    let mut deleted = 0;
    if !args.dry_run && wanted > 0 {
        let (by, older_than) = (operator(), args.older_than);
        // Before the first: whoever kills it half-way leaves this line at least.
        tracing::info!(target: AUDIT, by, queue = queue.name, ?older_than, wanted, "begins purging the log of a queue");
        let ended = tokio::select! {
            ended = in_batches(args, &operations, &mut deleted) => Some(ended),
            asked = asked_to_end() => {
                asked?;
                None
            }
        };
        tracing::info!(target: AUDIT, by, queue = queue.name, ?older_than, deleted, "ended purging the log of a queue");
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                return Err(error.context(format!("stopped after {deleted} events were deleted")));
            }
            None => bail!("stopped after {deleted} events were deleted; start again to go on"),
        }
    }
    if args.json {
        let told = json!({
            "queue": queue.name, "operation": "purge", "dry_run": args.dry_run, "matched": matched, "changed": deleted,
        });
        let mut output = Output::new();
        output.line(&told.to_string())?;
        output.end()?;
    }
    if args.dry_run {
        eprintln!("would delete {what}");
    } else {
        eprintln!("deleted {} from the log of queue {}", count(deleted, "event", "events"), queue.name);
    }
    Ok(())
}

/// How many there are, counted up to a point.
async fn matched(args: &Purge, operations: &Operations) -> anyhow::Result<u64> {
    let before = ago(args.older_than);
    let enough = args.limit.unwrap_or(COUNTED).min(COUNTED);
    let mut found = 0;
    for status in [Status::Completed, Status::Failed] {
        // An event that ended before then was published before then.
        let mut old = Meant::of_status(status, &Matching::until(before));
        loop {
            let page = old.next(operations, u64::MAX).await?;
            if page.is_empty() || found >= enough {
                break;
            }
            found += page.iter().filter(|listed| listed.updated_at < before).count() as u64;
        }
    }
    Ok(found.min(enough))
}

async fn in_batches(args: &Purge, operations: &Operations, deleted: &mut u64) -> anyhow::Result<()> {
    let mut pace = Pace::new();
    let limit = args.limit.unwrap_or(u64::MAX);
    while *deleted < limit {
        let batch = BATCH.min(u32::try_from(limit - *deleted).unwrap_or(u32::MAX));
        let now = operations.purge(args.older_than, batch).await?;
        *deleted += now;
        if now < u64::from(batch) {
            break;
        }
        if pace.is_due() {
            eprintln!("{deleted} deleted …");
        }
    }
    Ok(())
}
