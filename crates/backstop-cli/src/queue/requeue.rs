//! `backstop queue requeue`: what is meant is counted and shown, confirmed, and then set back in batches.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use backstop_core::operate::AUDIT;
use backstop_sql::queue::{Listed, Operations, Requeued, Status, Whereabouts};
use serde_json::json;

use super::args::{Matching, Named, Requeue};
use super::meant::Meant;
use super::{nowhere, open};
use crate::config::settings::Queue;
use crate::confirm::is_wanted;
use crate::output::{Output, Pace, count};
use crate::plain::plain;
use crate::signals::asked_to_end;
use crate::table::operator;

pub(super) async fn run(args: &Requeue) -> anyhow::Result<()> {
    let Requeue { named: Named { ids, all, stuck, force }, matching, .. } = args;
    if ids.is_empty() && !all && !stuck && *matching == Matching::default() {
        bail!("say which events to requeue: their ids, a filter such as --type, --stuck, or --all");
    }
    if *force && ids.is_empty() {
        bail!("--force is for events that you name by their ids: each is handled twice if its worker lives");
    }
    let (queue, operations) = open(&args.which).await?;
    let mut refused = 0;
    let meant = if !ids.is_empty() {
        let found = find(args, &queue, &operations, &mut refused).await?;
        Meant::known(found)
    } else if *stuck {
        Meant::stuck(&operations, matching).await?
    } else {
        Meant::of_status(Status::Failed, matching)
    };
    let matched = meant.count(&operations).await?;
    let wanted = matched.min(args.limit.unwrap_or(u64::MAX));
    let what = format!("{} of queue {}", count(wanted, "event", "events"), queue.name);
    if !args.dry_run && wanted > 0 && !is_wanted(&format!("requeue {what}"), args.yes)? {
        bail!("nothing was changed");
    }
    let changed = if args.dry_run || wanted == 0 {
        0
    } else {
        change(args, meant, wanted, &queue, &operations).await?
    };
    if args.json {
        let told = json!({
            "queue": queue.name, "operation": "requeue", "dry_run": args.dry_run, "matched": matched,
            "changed": changed, "refused": refused,
        });
        let mut output = Output::new();
        output.line(&told.to_string())?;
        output.end()?;
    }
    if args.dry_run {
        eprintln!("would requeue {what}");
    } else {
        let others = if changed < wanted { "; the others have changed meanwhile" } else { "" };
        eprintln!("requeued {} of queue {}{others}", count(changed, "event", "events"), queue.name);
    }
    match refused {
        0 => Ok(()),
        _ => bail!("{refused} of the {} events named were not requeued", ids.len()),
    }
}

/// The events that were named. Says of each that cannot be requeued where it is, and counts it.
async fn find(
    args: &Requeue,
    queue: &Queue,
    operations: &Operations,
    refused: &mut u64,
) -> anyhow::Result<Vec<Listed>> {
    let mut meant = Vec::new();
    for id in args.named.ids.iter().copied().collect::<BTreeSet<_>>() {
        let (Some(found), Some(state)) = (operations.find(id).await?, operations.why(id).await?) else {
            eprintln!("{}", nowhere(id, queue));
            *refused += 1;
            continue;
        };
        let why_not = match state {
            _ if !args.matching.includes(&found.listed) => Some("; it does not match the filter"),
            Whereabouts::Failed { .. } | Whereabouts::Stuck { .. } => None,
            Whereabouts::Handled { .. } if args.named.force => None,
            Whereabouts::Handled { .. } => {
                Some("; requeued now, it would be handled twice: say --force to do it anyway")
            }
            Whereabouts::Completed { .. } => Some("; publish it again to have it handled again"),
            _ => Some("; there is nothing to requeue"),
        };
        match why_not {
            None => meant.push(found.listed),
            Some(why_not) => {
                eprintln!("{}", plain(&format!("{id} {state}{why_not}")));
                *refused += 1;
            }
        }
    }
    Ok(meant)
}

async fn change(
    args: &Requeue,
    meant: Meant,
    wanted: u64,
    queue: &Queue,
    operations: &Operations,
) -> anyhow::Result<u64> {
    let (by, matching) = (operator(), &args.matching);
    let Named { ids, stuck, force, .. } = &args.named;
    // Before the first change: whoever kills it half-way leaves this line at least.
    tracing::info!(target: AUDIT, by, queue = queue.name, ?ids, ?matching, stuck, force, wanted, "begins requeueing events");
    let mut changed = 0;
    let ended = tokio::select! {
        ended = in_batches(args, meant, wanted, operations, &mut changed) => Some(ended),
        asked = asked_to_end() => {
            asked?;
            None
        }
    };
    match ended {
        Some(Ok(())) => {
            tracing::info!(target: AUDIT, by, queue = queue.name, changed, "ended requeueing events");
            Ok(changed)
        }
        Some(Err(error)) => {
            tracing::warn!(target: AUDIT, by, queue = queue.name, changed, %error, "stopped requeueing events");
            Err(error.context(format!("stopped after {changed} events were requeued")))
        }
        None => bail!("stopped after {changed} events were requeued; start again to go on"),
    }
}

async fn in_batches(
    args: &Requeue,
    mut meant: Meant,
    mut left: u64,
    operations: &Operations,
    changed: &mut u64,
) -> anyhow::Result<()> {
    let mut progress = Pace::new();
    let batch = u64::from(args.rate.unwrap_or(u32::MAX));
    while left > 0 {
        let page = meant.next(operations, left.min(batch)).await?;
        if page.is_empty() {
            break; // somebody else was faster
        }
        let ids: Vec<_> = page.iter().map(|listed| listed.id).collect();
        let Requeued { processing, failed } = operations.requeue(&ids, args.named.force).await?;
        *changed += processing + failed;
        left -= ids.len() as u64;
        if progress.is_due() {
            eprintln!("{changed} requeued …");
        }
        if let (Some(rate), true) = (args.rate, left > 0) {
            tokio::time::sleep(Duration::from_secs(1) * u32::try_from(ids.len()).unwrap_or(rate) / rate)
                .await;
        }
    }
    Ok(())
}
