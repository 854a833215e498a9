//! `backstop outbox replay` and `discard`: what is meant is counted and shown, confirmed, and then done in batches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use backstop_sql::outbox::DeadEvents;
use backstop_sql::store::{DeadFilter, Rights};
use serde_json::json;

use super::{args, nowhere, open, state};
use crate::config::settings::Outbox;
use crate::confirm::is_wanted;
use crate::output::{Output, Pace, count};
use crate::plain::plain;
use crate::signals::asked_to_end;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Replay,
    Discard,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard => "discard",
        }
    }

    /// What the database user must be allowed to do.
    fn rights(self) -> Rights {
        Rights { update: self == Self::Replay, delete: self == Self::Discard }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Discard => "discarded",
        }
    }
}

pub(super) async fn run(verb: Verb, args: &args::Move) -> anyhow::Result<()> {
    let args::Named { ids, all } = &args.named;
    let filter = args.matching.filter();
    if ids.is_empty() && !all && filter == DeadFilter::default() {
        bail!("say which events to {}: their ids, a filter such as --type, or --all", verb.word());
    }
    let filter = DeadFilter { ids: (!ids.is_empty()).then(|| ids.clone()), ..filter };
    let (outbox, dead) = open(&args.which, verb.rights()).await?;
    let missing = tell_what_is_not_meant(ids, &filter, &outbox, &dead).await?;
    let matched = dead.count(&filter).await?;
    let wanted = matched.min(args.limit.unwrap_or(u64::MAX));
    let what = format!("{} of outbox {}", count(wanted, "dead event", "dead events"), outbox.name);
    if !args.dry_run && wanted > 0 && !is_wanted(&format!("{} {what}", verb.word()), args.yes)? {
        bail!("nothing was changed");
    }
    let changed = if args.dry_run || wanted == 0 { 0 } else { change(verb, args, filter, &dead).await? };
    if args.json {
        let told = json!({
            "outbox": outbox.name, "operation": verb.word(), "dry_run": args.dry_run, "matched": matched,
            "changed": changed, "not_dead": missing,
        });
        let mut output = Output::new();
        output.line(&told.to_string())?;
        output.end()?;
    }
    if args.dry_run {
        eprintln!("would {} {what}", verb.word());
    } else {
        let others =
            if changed < wanted { "; the others were no longer dead, or no longer matched" } else { "" };
        eprintln!(
            "{} {} of outbox {}{others}",
            verb.done(),
            count(changed, "dead event", "dead events"),
            outbox.name
        );
    }
    match missing {
        0 => Ok(()),
        _ => bail!("{missing} of the {} events named are not dead, or do not match", ids.len()),
    }
}

/// Says of each event that was named, and is not meant after all, where it is; and how many these are.
async fn tell_what_is_not_meant(
    ids: &[String],
    filter: &DeadFilter,
    outbox: &Outbox,
    dead: &DeadEvents,
) -> anyhow::Result<u64> {
    if ids.is_empty() {
        return Ok(0);
    }
    let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let meant: Vec<_> = dead.query(filter, limit).await?.into_iter().map(|event| event.id).collect();
    let mut missing = 0;
    for id in ids.iter().filter(|id| !meant.contains(id)) {
        missing += 1;
        let told = match dead.whereabouts(id).await? {
            Some(found) => format!("{id} {}", state(&found, outbox)),
            None => nowhere(id, outbox),
        };
        eprintln!("{}", plain(&told));
    }
    Ok(missing)
}

async fn change(verb: Verb, args: &args::Move, filter: DeadFilter, dead: &DeadEvents) -> anyhow::Result<u64> {
    let mut operation = match verb {
        Verb::Replay => dead.replay_all(filter),
        Verb::Discard => dead.discard_all(filter),
    };
    if let Some(limit) = args.limit {
        operation = operation.limit(limit);
    }
    if let Some(rate) = args.rate {
        operation = operation.per_second(rate);
    }
    let so_far = Arc::new(AtomicU64::new(0));
    let (noted, pace) = (so_far.clone(), Mutex::new(Pace::new()));
    let operation = operation.on_progress(move |changed| {
        noted.store(changed, Ordering::Relaxed);
        if pace.lock().unwrap_or_else(PoisonError::into_inner).is_due() {
            eprintln!("{changed} {} …", verb.done());
        }
    });
    tokio::select! {
        done = operation.run() => Ok(done?),
        ended = asked_to_end() => {
            ended?;
            let changed = so_far.load(Ordering::Relaxed);
            bail!("stopped after {} events were {}; start again to go on", changed, verb.done())
        }
    }
}
