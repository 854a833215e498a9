//! `backstop dlq redrive`: sends, with a word about how far it is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock};
use backstop_disk::dlq::{Directory, Filter, Progress, Unavailable};

use super::args;
use super::target::Target;
use crate::plain::plain;
use crate::signals::asked_to_end;

/// How often a line about the progress is printed.
const BETWEEN: Duration = Duration::from_secs(1);

pub(super) async fn run(args: args::Redrive) -> anyhow::Result<()> {
    let directory = Directory::open(args.directory)?;
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
    let mut last = SystemClock.ticks();
    let redrive = redrive.on_progress(move |progress| {
        show(progress, &mut last);
        shown.lock().unwrap_or_else(PoisonError::into_inner).clone_from(progress);
    });
    let target = if args.dry_run { Target::Nowhere } else { Target::open(&args.to, &args.web)? };
    let done = tokio::select! {
        done = redrive.to(target) => done?,
        ended = asked_to_end() => {
            ended?;
            eprintln!("stopped; start again to go on");
            so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    };
    summarize(&done, args.dry_run)
}

fn show(progress: &Progress, last: &mut Tick) {
    if let Some(Unavailable { wait, why, .. }) = &progress.waiting {
        eprintln!("waiting for {:.1} s, as the target asks: {}", wait.as_secs_f64(), plain(why));
        return;
    }
    let now = SystemClock.ticks();
    if now.since(*last) >= BETWEEN {
        *last = now;
        eprintln!("{} delivered, {} failed …", progress.delivered, progress.failed);
    }
}

fn summarize(done: &Progress, dry_run: bool) -> anyhow::Result<()> {
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
    eprintln!("{line}");
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
