//! `backstop dlq redrive`: sends, with a word about how far it is.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use backstop_core::operate::AUDIT;
use backstop_disk::dlq::{Directory, Filter, Progress, Unavailable};

use super::args;
use super::rows::{self, Moved, Settling};
use super::target::Target;
use crate::output::Pace;
use crate::plain::plain;
use crate::signals::asked_to_end;
use crate::table;

pub(super) async fn run(args: args::Redrive) -> anyhow::Result<()> {
    let directory = Directory::open(&args.directory)?;
    // Before anything is sent: whoever cannot be reached is known then.
    let (target, tables) = if args.dry_run {
        (Target::Nowhere, Vec::new())
    } else {
        let target = Target::open(&args).await?;
        let tables =
            if matches!(target, Target::Outbox(_)) { Vec::new() } else { rows::tables(&args).await? };
        (target, tables)
    };
    let filter = args.matching.narrow(args.only.map_or_else(Filter::all, Filter::only));
    let mut redrive = directory.redrive(filter).dry_run(args.dry_run).per_second(args.rate.unwrap_or(0));
    redrive = redrive.patience(args.patience);
    if let Some(limit) = args.limit {
        redrive = redrive.limit(limit);
    }
    if let Some(place) = &args.after {
        redrive = redrive.after(place);
    }
    let so_far = Arc::new(Mutex::new(Progress::default()));
    let shown = Arc::clone(&so_far);
    let mut pace = Pace::new();
    let of_rows = Arc::new(Mutex::new(rows::Progress::default()));
    let seen = of_rows.clone();
    let redrive = redrive.on_progress(move |progress| {
        let is_stuck = seen.lock().unwrap_or_else(PoisonError::into_inner).stuck.is_some();
        show(progress, is_stuck, &mut pace);
        shown.lock().unwrap_or_else(PoisonError::into_inner).clone_from(progress);
    });
    let done = tokio::select! {
        done = redrive.to(Settling::new(target, tables, of_rows.clone())) => done?,
        ended = asked_to_end() => {
            ended?;
            eprintln!("stopped; start again to go on");
            so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    };
    let rows = of_rows.lock().unwrap_or_else(PoisonError::into_inner);
    if rows.moved != Moved::default() {
        let (by, moved) = (table::operator(), rows.moved);
        tracing::info!(target: AUDIT, by, ?moved, directory = %args.directory.display(), "a redrive has moved rows");
    }
    summarize(&done, &rows, args.dry_run)
}

fn show(progress: &Progress, is_stuck: bool, pace: &mut Pace) {
    if let Some(Unavailable { wait, why, .. }) = &progress.waiting {
        let who = if is_stuck { "the next look at the database is in" } else { "the target asks for" };
        eprintln!("waiting, {who} {:.1} s: {}", wait.as_secs_f64(), plain(why));
        return;
    }
    if pace.is_due() {
        eprintln!("{} delivered, {} failed …", progress.delivered, progress.failed);
    }
}

fn summarize(done: &Progress, rows: &rows::Progress, dry_run: bool) -> anyhow::Result<()> {
    if dry_run {
        eprintln!("would send {}, {} damaged", done.matched, done.damaged);
        return Ok(());
    }
    let mut line = format!("{} delivered, {} failed", done.delivered, done.failed);
    for (number, what) in [
        (done.damaged, "damaged and left"),
        (done.busy, "in use"),
        (done.not_removed, "delivered but not removed"),
    ] {
        if number > 0 {
            line.extend([", ", &number.to_string(), " ", what]);
        }
    }
    eprintln!("{line}{}", rows.moved.told());
    if let (Some(Unavailable { at, .. }), Some(why)) = (&done.stopped, &rows.stuck) {
        bail!(
            "{at} has arrived, and its row cannot be settled, so nothing was sent behind it; start again when the database \
             takes it, which sends this one again (or redrive with --leave-rows): {}",
            plain(why)
        );
    }
    if let Some(Unavailable { at, why, .. }) = &done.stopped {
        bail!(
            "the target is unavailable, so nothing was sent from {at} on; start again when it is back (or skip that entry \
             with --after {at}): {}",
            plain(why)
        );
    }
    if let Some(failure) = &done.last_failure {
        bail!("{} stay in the directory; the last failure was {}", done.failed, plain(failure));
    }
    if done.not_removed > 0 {
        bail!("{} will be sent again: they arrived and could not be removed", done.not_removed);
    }
    Ok(())
}
