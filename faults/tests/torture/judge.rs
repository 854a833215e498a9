//! The judge: what of a history no fault excuses. It knows what is promised and nothing of how it is kept.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Answer, Call, DEAD, DONE, Fate, Fault, History, Kind, Micros, Mode, NEW, RETRY, Story};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) class: Class,
    pub(crate) event: String,
    pub(crate) what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Committed, and gone without having been handled to its end.
    Lost,
    /// Handled or in the table, though it was never committed.
    Invented,
    /// It still waits, though everything has been quiet for long enough.
    Stuck,
    /// Handled after one that it was to come before.
    Overtaken,
    /// Handled again, and nothing explains it.
    Twice,
    /// The attempts that were counted are not those that were made.
    Attempts,
}

/// What was judged, and what came of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: Counts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
    pub(crate) calls: usize,
    /// Calls after the first that the handler itself asked for, or a replay.
    pub(crate) asked_again: usize,
    /// Calls after the first that a fault explains.
    pub(crate) explained: usize,
}

/// Compares a history with what is promised.
pub(crate) fn judge(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (id, story) in &history.events {
        let mut complain = |class, what: String| {
            verdict.violations.push(Violation { class, event: id.clone(), what });
        };
        existence(story, &mut complain);
        ending(history, story, &mut complain);
        let repeats = repeats(history, story, &mut complain);
        attempts(history, story, &mut complain);
        let counts = &mut verdict.counts;
        counts.committed += usize::from(story.was_inserted());
        counts.rolled_back += usize::from(!story.was_inserted());
        counts.calls += story.calls.len();
        counts.asked_again += repeats.asked_for;
        counts.explained += repeats.explained;
    }
    if history.mode == Mode::Ordered {
        order(history, &mut verdict.violations);
        settled_in_order(history, &mut verdict.violations);
    }
    verdict
}

/// What was committed is there, and nothing else is.
fn existence(story: &Story, complain: &mut impl FnMut(Class, String)) {
    let inserted = story.was_inserted();
    match story.fate {
        Fate::Committed if !inserted => {
            complain(Class::Lost, "its commit was confirmed, and it never was in the table".to_owned());
        }
        Fate::RolledBack if inserted => {
            complain(Class::Invented, "it was rolled back, and it is in the table".to_owned());
        }
        _ => {}
    }
    if !inserted && !story.calls.is_empty() {
        complain(Class::Invented, "it was handled, and it never was in the table".to_owned());
    }
}

/// What was committed ended: done by a handler that said so, or dead, or deleted after that.
fn ending(history: &History, story: &Story, complain: &mut impl FnMut(Class, String)) {
    if !story.was_inserted() {
        return;
    }
    let said_so = story.calls.iter().any(|call| answered(call, Answer::Done));
    for change in &story.changes {
        let waited = matches!(change.from, Some(NEW | RETRY));
        match change.to {
            Some(DONE) if waited && !said_so => {
                complain(Class::Lost, "its row says DONE, and no handler said so".to_owned());
            }
            None if waited && !(history.deletes_done && said_so) => {
                complain(Class::Lost, "its row was deleted while it waited".to_owned());
            }
            _ => {}
        }
    }
    let deleted = story.changes.iter().any(|change| change.to.is_none());
    match story.row {
        None if !deleted => complain(Class::Lost, "its row is gone, and nobody deleted it".to_owned()),
        Some(row) if matches!(i64::from(row.status), NEW | RETRY) => {
            complain(Class::Stuck, format!("it still waits, with status {}", row.status));
        }
        _ => {}
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Repeats {
    asked_for: usize,
    explained: usize,
}

/// Each call after the first was asked for by the handler or by an operator, or a fault explains it.
fn repeats(history: &History, story: &Story, complain: &mut impl FnMut(Class, String)) -> Repeats {
    let mut repeats = Repeats::default();
    for pair in story.calls.windows(2) {
        let [before, after] = pair else { continue };
        if was_asked_for(history, story, before, after) {
            repeats.asked_for += 1;
        } else if is_explained(history, before, after) {
            repeats.explained += 1;
        } else {
            let said = before.ended.map_or_else(|| "nothing yet".to_owned(), |(_, said)| format!("{said:?}"));
            let (first, second) = (&before.life, &after.life);
            complain(
                Class::Twice,
                format!("{first} handled it and said {said}, then {second} did, and no fault explains it"),
            );
        }
    }
    repeats
}

fn was_asked_for(history: &History, story: &Story, before: &Call, after: &Call) -> bool {
    let replayed = || {
        let mut replays = story.changes.iter().filter(|it| it.from == Some(DEAD) && it.to == Some(NEW));
        // The audit's moment is that of the statement, the call's that of its node: both by the same clock, and
        // both rounded.
        replays.any(|replay| (before.begun..=after.begun + CLOCK_ERROR).contains(&replay.at))
    };
    match before.ended {
        // Between two calls there is the answer of the first.
        Some((at, _)) if at > after.begun => false,
        Some((_, Answer::Deferred)) => true,
        Some((_, Answer::Failed)) => history.mode != Mode::Ordered || replayed(),
        Some((_, Answer::Refused)) => replayed(),
        Some((_, Answer::Done)) | None => false,
    }
}

/// SQLite tells the time in milliseconds.
const CLOCK_ERROR: Micros = 2_000;

/// Whether a fault explains that an event was handled again although nobody asked for it.
fn is_explained(history: &History, before: &Call, after: &Call) -> bool {
    // Without claims a living process knows what it has handled, whatever happens to its connections, and tells the
    // database when it can. Only another process does not.
    if history.mode != Mode::Multi {
        return before.life != after.life;
    }
    let since = before.begun - history.claim_timeout;
    let concerns =
        |fault: &&Fault| fault.life.as_ref().is_none_or(|life| *life == before.life || *life == after.life);
    let mut near = history.faults.iter().filter(concerns).filter(|fault| {
        let length = fault.until - fault.from;
        !fault.kind.leaves_claims_alone() && (!fault.kind.may_be_tolerated() || length >= history.tolerated)
    });
    near.any(|fault| fault.from <= after.begun && fault.until >= since)
}

/// A failure is counted once, and there are no more of them than are allowed.
fn attempts(history: &History, story: &Story, complain: &mut impl FnMut(Class, String)) {
    let failed = |call: &&Call| answered(call, Answer::Failed) || answered(call, Answer::Refused);
    let failed: Vec<_> = story.calls.iter().filter(failed).collect();
    let failures = failed.len();
    let excused = failed.iter().filter(|call| may_be_uncounted(history, story, call)).count();
    let (mut counted, mut before) = (0, 0);
    for change in &story.changes {
        let settled = change.from.is_some_and(|from| matches!(from, NEW | RETRY));
        let expected = match (settled, change.to) {
            (true, Some(RETRY)) if change.attempts != before => {
                counted += 1;
                before + 1
            }
            (true, Some(DEAD)) => {
                counted += 1;
                before
            }
            (false, Some(NEW)) => 0, // born, or replayed
            _ => before,
        };
        if change.attempts != expected {
            let is = change.attempts;
            complain(Class::Attempts, format!("{is} attempts are counted where {expected} are expected"));
        }
        before = change.attempts;
        // The last one is not counted: it makes the row dead.
        if change.attempts >= history.max_attempts {
            let (is, most) = (change.attempts, history.max_attempts);
            complain(Class::Attempts, format!("{is} attempts have failed and were tried again, of {most}"));
        }
    }
    if counted > failures {
        complain(
            Class::Attempts,
            format!("{counted} failures are counted, and handlers failed {failures} times"),
        );
    }
    if counted + excused < failures && story.was_inserted() {
        complain(Class::Attempts, format!("handlers failed {failures} times, and {counted} are counted"));
    }
    if let Some(row) = story.row.filter(|row| i64::from(row.attempts) != before) {
        complain(Class::Attempts, format!("the row says {} attempts, its history {before}", row.attempts));
    }
}

/// Whether a fault explains that a failure was not counted: its process ended before it could say so, lost its claim, or
/// did not know for a while whether the table was still its own.
fn may_be_uncounted(history: &History, story: &Story, call: &Call) -> bool {
    let (since, until) = (call.begun - history.claim_timeout, call.begun + 2 * history.claim_timeout);
    // A process that handled it again was told so by the table.
    let was_its_last = !story.calls.iter().any(|next| next.life == call.life && next.begun > call.begun);
    history.faults.iter().any(|fault| {
        let concerns = fault.life.as_ref().is_none_or(|life| *life == call.life);
        let near = fault.from <= until && fault.until >= since;
        concerns
            && match fault.kind {
                // Also one that was called while its process was closing, which takes a while.
                Kind::Killed | Kind::Closed => was_its_last && fault.until >= call.begun,
                Kind::SessionsEnded => near,
                kind if kind.leaves_claims_alone() => false,
                _ => history.mode == Mode::Multi && near && fault.until - fault.from >= history.tolerated,
            }
    })
}

fn answered(call: &Call, answer: Answer) -> bool {
    call.ended.is_some_and(|(_, said)| said == answer)
}

/// `ordered` promises: of two events of one transaction, or of transactions that follow one another, the one that was
/// created first, by its row and then by its id, is handled first. "Follow" means that the commit of the one was confirmed
/// before that of the other was asked for: whoever saw the second row saw the first as well. One that was committed later
/// may come later, however early it was created. Only the first calls count: whatever is deferred or replayed is behind
/// the others.
fn order(history: &History, violations: &mut Vec<Violation>) {
    struct Entry<'a> {
        key: (Micros, &'a String),
        transaction: &'a str,
        committing: Micros,
        committed: Micros,
        begun: Micros,
    }
    let entries = history.events.iter().filter_map(|(id, story)| {
        Some(Entry {
            key: (story.created()?, id),
            transaction: &story.transaction,
            committing: story.committing_at?,
            committed: story.committed_at?,
            begun: story.calls.first()?.begun,
        })
    });
    let entries: Vec<_> = entries.collect();
    for late in &entries {
        let overtakes = |early: &&Entry<'_>| {
            let follows = late.transaction == early.transaction || late.committed <= early.committing;
            late.key < early.key && follows && early.begun < late.begun
        };
        if let Some(early) = entries.iter().find(overtakes) {
            let (event, other) = (late.key.1.clone(), early.key.1);
            let what =
                format!("{other} was handled before it, was created after it and not committed before it");
            violations.push(Violation { class: Class::Overtaken, event, what });
        }
    }
}

/// In `ordered` what a process has handled is written in that order, so that after a crash the next one goes on where it
/// ended: it repeats the last ones, and never one that stands before some that it does not repeat.
fn settled_in_order(history: &History, violations: &mut Vec<Violation>) {
    let mut lives: BTreeMap<&str, Vec<(&String, &Call, bool)>> = BTreeMap::new();
    for (id, story) in &history.events {
        for (place, call) in story.calls.iter().enumerate() {
            let next = story.calls.get(place + 1);
            let repeated =
                next.is_some_and(|next| next.life != call.life && !was_asked_for(history, story, call, next));
            lives.entry(&call.life).or_default().push((id, call, repeated));
        }
    }
    for calls in lives.values_mut() {
        calls.sort_by_key(|(_, call, _)| call.begun);
        // What is deferred comes again at a time of its own.
        calls.retain(|(_, call, _)| !answered(call, Answer::Deferred));
        let Some(first) = calls.iter().position(|(_, _, repeated)| *repeated) else { continue };
        if let Some((settled, ..)) = calls[first..].iter().find(|(_, _, repeated)| !repeated) {
            let event = calls[first].0.clone();
            let what = format!("{settled} was handled after it and settled before it");
            violations.push(Violation { class: Class::Overtaken, event, what });
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}: {}", self.class, self.event, self.what)
    }
}
