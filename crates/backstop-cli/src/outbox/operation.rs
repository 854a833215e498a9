//! `backstop outbox replay` and `discard`: what is meant is counted and shown, confirmed, and then done in batches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use backstop_core::inspect::Count;
use backstop_sql::outbox::DeadEvents;
use backstop_sql::store::{DeadFilter, Rights};
use serde_json::json;

use super::{args, nowhere, open, state};
use crate::config::settings::Outbox;
use crate::confirm::is_wanted;
use crate::output::{Output, Pace, count};
use crate::plain::plain;
use crate::signals::asked_to_end;

/// At so many dead events, the oldest, it looks to say how many match: the first must not be changed only after all were
/// counted.
const LOOKED_AT: u32 = 100_000;

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
    let matched = dead.count_up_to(&filter, LOOKED_AT).await?;
    let wanted = wanted(matched, args.limit);
    let what = format!("{} of outbox {}", told(wanted), outbox.name);
    let is_any = wanted != Count::exactly(0);
    if !args.dry_run && is_any && !is_wanted(&format!("{} {what}", verb.word()), args.yes)? {
        bail!("nothing was changed");
    }
    let changed = if args.dry_run || !is_any { 0 } else { change(verb, args, filter, &dead).await? };
    if args.json {
        let told = json!({
            "outbox": outbox.name, "operation": verb.word(), "dry_run": args.dry_run, "matched": matched.events,
            "matched_or_more": matched.capped, "changed": changed, "not_dead": missing,
        });
        let mut output = Output::new();
        output.line(&told.to_string())?;
        output.end()?;
    }
    if args.dry_run {
        eprintln!("would {} {what}", verb.word());
    } else {
        let are_fewer = !wanted.capped && changed < wanted.events;
        let others = if are_fewer { "; the others were no longer dead, or no longer matched" } else { "" };
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

/// How many are to be changed, as far as they were counted.
fn wanted(matched: Count, limit: Option<u64>) -> Count {
    match limit {
        Some(limit) if limit <= matched.events => Count::exactly(limit),
        _ => matched,
    }
}

fn told(wanted: Count) -> String {
    let Count { events, capped } = wanted;
    match capped {
        false => count(events, "dead event", "dead events"),
        true if events == u64::from(LOOKED_AT) => format!("{events}+ dead events"),
        true => format!("{events}+ dead events ({events} of the oldest {LOOKED_AT} match)"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_to_its_end_is_told_as_so_many_or_more() {
        let more = |events| Count { events, capped: true };
        for (matched, limit, said) in [
            (Count::exactly(0), None, "0 dead events"),
            (Count::exactly(1), Some(5), "1 dead event"),
            (Count::exactly(7), Some(5), "5 dead events"),
            (more(100_000), None, "100000+ dead events"),
            (more(100_000), Some(5), "5 dead events"),
            (more(3), Some(5), "3+ dead events (3 of the oldest 100000 match)"),
            (more(0), None, "0+ dead events (0 of the oldest 100000 match)"),
        ] {
            assert_eq!(told(wanted(matched, limit)), said);
        }
    }
}
