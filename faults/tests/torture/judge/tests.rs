//! The judge is shown histories that are made up, each with one thing that must not be.

use super::*;
use crate::history::{Change, Row};

const SECOND: Micros = 1_000_000;

fn history(mode: Mode, events: impl IntoIterator<Item = (&'static str, Story)>) -> History {
    History {
        mode,
        deletes_done: false,
        max_attempts: 3,
        claim_timeout: 2 * SECOND,
        tolerated: SECOND / 3,
        events: events.into_iter().map(|(id, story)| (id.to_owned(), story)).collect(),
        faults: Vec::new(),
        not_begun: 0,
    }
}

/// A life that is told in the order of time.
trait Told: Sized {
    fn call(self, life: &str, at: Micros, answer: Answer) -> Self;
    fn broken_call(self, life: &str, at: Micros) -> Self;
    fn becomes(self, status: i64, attempts: i64, at: Micros) -> Self;
    fn deleted(self, at: Micros) -> Self;
}

impl Told for Story {
    fn call(mut self, life: &str, at: Micros, answer: Answer) -> Self {
        self.calls.push(Call { life: life.to_owned(), begun: at, ended: Some((at + 1_000, answer)) });
        self
    }

    fn broken_call(mut self, life: &str, at: Micros) -> Self {
        self.calls.push(Call { life: life.to_owned(), begun: at, ended: None });
        self
    }

    fn becomes(mut self, status: i64, attempts: i64, at: Micros) -> Self {
        let before = self.changes.last().unwrap().clone();
        self.changes.push(Change { at, from: before.to, to: Some(status), attempts, ..before });
        let (status, attempts) = (i16::try_from(status).unwrap(), i32::try_from(attempts).unwrap());
        self.row = Some(Row { status, attempts });
        self
    }

    fn deleted(mut self, at: Micros) -> Self {
        let before = self.changes.last().unwrap().clone();
        self.changes.push(Change { at, from: before.to, to: None, ..before });
        self.row = None;
        self
    }
}

/// An event whose commit took from one moment to the next, created just before that.
fn committed(at: Micros) -> Story {
    let created = at - 10;
    let inserted =
        Change { at: created, from: None, to: Some(NEW), attempts: 0, owner: None, claim: 0, created };
    Story {
        fate: Fate::Committed,
        transaction: format!("{at} of a-1"),
        committing_at: Some(at),
        committed_at: Some(at + 1_000),
        calls: Vec::new(),
        changes: vec![inserted],
        row: Some(Row { status: 0, attempts: 0 }),
    }
}

/// One that was committed at a moment and handled at another.
fn delivered(at: Micros, handled: Micros) -> Story {
    committed(at).call("a-1", handled, Answer::Done).becomes(DONE, 0, handled + 2_000)
}

fn rolled_back() -> Story {
    Story { fate: Fate::RolledBack, ..Story::default() }
}

fn fault(kind: Kind, life: &str, from: Micros, until: Micros) -> Fault {
    Fault { kind, life: Some(life.to_owned()), from, until }
}

/// What the judge says, without its words.
fn complaints(history: &History) -> Vec<(Class, String)> {
    let violations = judge(history).violations;
    violations.into_iter().map(|violation| (violation.class, violation.event)).collect()
}

fn complains(mode: Mode, story: Story, of: Class) {
    assert_eq!(complaints(&history(mode, [("e", story)])), [(of, "e".to_owned())]);
}

#[test]
fn a_history_in_which_everything_is_as_promised_is_not_complained_of() {
    let failing = committed(0).call("a-1", 5_000, Answer::Failed).becomes(RETRY, 1, 7_000);
    let failing = failing.call("a-1", 9_000, Answer::Deferred).becomes(NEW, 1, 11_000);
    let failing = failing.call("a-1", 15_000, Answer::Done).becomes(DONE, 1, 18_000).deleted(SECOND);
    let replayed = committed(0).call("a-1", 5_000, Answer::Refused).becomes(DEAD, 0, 7_000);
    let replayed = replayed.becomes(NEW, 0, 8_000).call("a-1", 9_000, Answer::Done).becomes(DONE, 0, 11_000);
    let unsure = Story { fate: Fate::Unsure, ..delivered(0, 5_000) };
    for mode in [Mode::Single, Mode::Multi] {
        let events = [
            ("done", delivered(0, 5_000)),
            ("failing", failing.clone()),
            ("replayed", replayed.clone()),
            ("rolled back", rolled_back()),
            ("unsure and there", unsure.clone()),
            ("unsure and not there", Story::default()),
        ];
        let verdict = judge(&history(mode, events));
        assert_eq!(verdict.violations, []);
        let counts = Counts { committed: 4, rolled_back: 2, calls: 7, asked_again: 3, explained: 0 };
        assert_eq!(verdict.counts, counts);
    }
}

#[test]
fn what_was_committed_and_is_not_there_is_lost() {
    complains(Mode::Single, Story { fate: Fate::Committed, ..Story::default() }, Class::Lost);
    complains(Mode::Single, Story { row: None, ..committed(0) }, Class::Lost);
}

#[test]
fn what_was_deleted_while_it_waited_is_lost() {
    let dead = committed(0).call("a-1", 5_000, Answer::Refused).becomes(DEAD, 0, 7_000);
    assert_eq!(complaints(&history(Mode::Multi, [("e", dead.clone().deleted(8_000))])), []);
    complains(Mode::Multi, dead.becomes(NEW, 0, 8_000).deleted(9_000), Class::Lost);
}

#[test]
fn where_done_rows_are_deleted_only_those_may_be_that_a_handler_is_done_with() {
    let judged = |story| complaints(&History { deletes_done: true, ..history(Mode::Single, [("e", story)]) });
    assert_eq!(judged(committed(0).call("a-1", 5_000, Answer::Done).deleted(7_000)), []);
    assert_eq!(judged(committed(0).deleted(7_000)), [(Class::Lost, "e".to_owned())]);
}

#[test]
fn what_is_done_without_a_handler_that_said_so_is_lost() {
    complains(Mode::Single, committed(0).becomes(DONE, 0, 5_000), Class::Lost);
    let deferred = committed(0).call("a-1", 5_000, Answer::Deferred).becomes(DONE, 0, 7_000);
    complains(Mode::Single, deferred, Class::Lost);
}

#[test]
fn what_was_rolled_back_and_is_handled_or_there_is_invented() {
    complains(Mode::Single, rolled_back().call("a-1", 5_000, Answer::Done), Class::Invented);
    complains(Mode::Multi, Story { fate: Fate::RolledBack, ..delivered(0, 5_000) }, Class::Invented);
    // Of one whose end nobody knows, the table tells.
    complains(Mode::Single, Story::default().call("a-1", 5_000, Answer::Done), Class::Invented);
}

#[test]
fn what_still_waits_at_the_end_is_stuck() {
    complains(Mode::Single, committed(0), Class::Stuck);
    let failing = committed(0).call("a-1", 5_000, Answer::Failed).becomes(RETRY, 1, 7_000);
    complains(Mode::Multi, failing, Class::Stuck);
}

#[test]
fn what_is_handled_after_one_that_follows_it_was_overtaken() {
    let (first, second) = (delivered(0, 9_000), delivered(3_000, 5_000));
    assert_eq!(complaints(&history(Mode::Single, [("1", first.clone()), ("2", second.clone())])), []);
    let overtaken = history(Mode::Ordered, [("1", first.clone()), ("2", second.clone())]);
    assert_eq!(complaints(&overtaken), [(Class::Overtaken, "1".to_owned())]);

    // Where the two overlap, or the second was created first by its writer's clock, nothing is promised.
    let overlapping = Story { committed_at: Some(4_000), ..first.clone() };
    assert_eq!(complaints(&history(Mode::Ordered, [("1", overlapping), ("2", second.clone())])), []);
    let mut behind = second;
    behind.changes[0].created = -SECOND;
    assert_eq!(complaints(&history(Mode::Ordered, [("1", first), ("2", behind)])), []);
}

#[test]
fn events_of_one_transaction_are_ordered_too() {
    let (mut first, mut second) = (delivered(0, 5_000), delivered(0, 6_000));
    (first.changes[0].created, second.changes[0].created) = (-20, -10);
    let in_order = history(Mode::Ordered, [("2", first.clone()), ("1", second.clone())]);
    assert_eq!(complaints(&in_order), []);
    (first.calls[0].begun, second.calls[0].begun) = (6_000, 5_000);
    let overtaken = history(Mode::Ordered, [("2", first), ("1", second)]);
    assert_eq!(complaints(&overtaken), [(Class::Overtaken, "2".to_owned())]);
}

#[test]
fn events_of_one_moment_are_ordered_by_their_ids() {
    let at_once = |handled| {
        let mut story = delivered(0, handled);
        story.changes[0].created = 0;
        story
    };
    let mut second = at_once(5_000);
    second.transaction = "2 of a-1".to_owned();
    (second.committing_at, second.committed_at) = (Some(2_000), Some(3_000));
    let in_order = history(Mode::Ordered, [("1", at_once(4_000)), ("2", second.clone())]);
    assert_eq!(complaints(&in_order), []);
    let overtaken = history(Mode::Ordered, [("1", at_once(6_000)), ("2", second)]);
    assert_eq!(complaints(&overtaken), [(Class::Overtaken, "1".to_owned())]);
}

/// A process ends after 1, 2 and 3: the next may begin with 2 again, but not leave 3 out then.
#[test]
fn what_is_settled_before_an_earlier_one_overtook_it() {
    let again = |at: Micros, handled, again| {
        let once = committed(at).call("a-1", handled, Answer::Done);
        once.call("a-2", again, Answer::Done).becomes(DONE, 0, again + 2_000)
    };
    let (one, two) = (delivered(0, 10_000), again(2_000, 11_000, SECOND));
    let three = again(4_000, 12_000, SECOND + 10_000);
    let faults = vec![fault(Kind::Killed, "a-1", 20_000, 21_000)];
    let good = history(Mode::Ordered, [("1", one.clone()), ("2", two.clone()), ("3", three)]);
    assert_eq!(complaints(&History { faults: faults.clone(), ..good }), []);
    let bad = history(Mode::Ordered, [("1", one), ("2", two), ("3", delivered(4_000, 12_000))]);
    assert_eq!(complaints(&History { faults, ..bad }), [(Class::Overtaken, "2".to_owned())]);
}

#[test]
fn what_a_living_process_without_claims_handles_again_came_twice_whatever_happened() {
    for mode in [Mode::Single, Mode::Ordered] {
        let twice = committed(0).call("a-1", 5_000, Answer::Done).call("a-1", SECOND, Answer::Done);
        let twice = twice.becomes(DONE, 0, SECOND + 2_000);
        let faults = [Kind::SessionsEnded, Kind::Locked, Kind::Stopped, Kind::Stalled, Kind::ClockMoved];
        let faults = faults.map(|kind| fault(kind, "a-1", 0, SECOND)).to_vec();
        let history = History { faults, ..history(mode, [("e", twice)]) };
        assert_eq!(complaints(&history), [(Class::Twice, "e".to_owned())]);
    }
}

#[test]
fn what_the_next_process_handles_again_is_explained_by_the_end_of_the_first() {
    let again = committed(0).broken_call("a-1", 5_000).call("a-2", SECOND, Answer::Done);
    let again = history(Mode::Single, [("e", again.becomes(DONE, 0, SECOND + 2_000))]);
    let verdict = judge(&again);
    assert_eq!((verdict.violations, verdict.counts.explained), (Vec::new(), 1));
}

#[test]
fn with_claims_a_fault_of_either_process_near_by_explains_a_repetition_and_no_other_does() {
    let twice = committed(0).call("a-1", 10 * SECOND, Answer::Done).call("b-1", 12 * SECOND, Answer::Done);
    let twice = twice.becomes(DONE, 0, 12 * SECOND + 2_000);
    let judged = |faults: Vec<Fault>| {
        let history = History { faults, ..history(Mode::Multi, [("e", twice.clone())]) };
        complaints(&history).len()
    };
    assert_eq!(judged(Vec::new()), 1, "no fault");
    let explaining = [
        fault(Kind::Killed, "a-1", 11 * SECOND, 11 * SECOND),
        fault(Kind::Stopped, "b-1", 9 * SECOND, 11 * SECOND),
        fault(Kind::Stalled, "a-1", 10 * SECOND, 11 * SECOND),
        Fault { kind: Kind::Locked, life: None, from: 9 * SECOND, until: 11 * SECOND },
    ];
    for fault in explaining {
        assert_eq!(judged(vec![fault.clone()]), 0, "{fault:?}");
    }
    let beside = [
        fault(Kind::Killed, "c-1", 11 * SECOND, 11 * SECOND),
        fault(Kind::Killed, "a-1", 13 * SECOND, 13 * SECOND),
        fault(Kind::Stopped, "a-1", 5 * SECOND, 7 * SECOND),
        fault(Kind::Stopped, "a-1", 11 * SECOND, 11 * SECOND + SECOND / 10),
        fault(Kind::ClockMoved, "a-1", 11 * SECOND, 11 * SECOND),
        fault(Kind::SessionsEnded, "a-1", 11 * SECOND, 11 * SECOND),
        fault(Kind::Hogged, "a-1", 9 * SECOND, 12 * SECOND),
        fault(Kind::Blocked, "a-1", 9 * SECOND, 12 * SECOND),
    ];
    for fault in beside {
        assert_eq!(judged(vec![fault.clone()]), 1, "{fault:?}");
    }
}

#[test]
fn what_died_comes_again_by_a_replay_only() {
    let dead = committed(0).call("a-1", 5_000, Answer::Refused).becomes(DEAD, 0, 7_000);
    let again = dead.call("a-1", SECOND, Answer::Done);
    complains(Mode::Single, again, Class::Twice);
    let failed = committed(0).call("a-1", 5_000, Answer::Failed).becomes(DEAD, 0, 7_000);
    complains(Mode::Ordered, failed.call("a-1", SECOND, Answer::Done), Class::Twice);
}

#[test]
fn what_is_handled_in_two_places_at_once_came_twice_whatever_was_answered() {
    let mut story = committed(0).call("a-1", 5_000, Answer::Failed).call("b-1", 5_500, Answer::Done);
    story = story.becomes(RETRY, 1, 7_000).becomes(DONE, 1, 8_000);
    complains(Mode::Multi, story, Class::Twice);
}

#[test]
fn failures_that_are_counted_without_a_call_or_not_at_all_are_told() {
    let failing = || committed(0).call("a-1", 5_000, Answer::Failed);
    let done =
        |story: Story, attempts| story.call("a-1", 9_000, Answer::Done).becomes(DONE, attempts, 11_000);
    complains(Mode::Single, done(failing(), 0), Class::Attempts);
    let twice = failing().becomes(RETRY, 1, 7_000).becomes(RETRY, 2, 8_000);
    complains(Mode::Single, done(twice, 2), Class::Attempts);
    let by_two = failing().becomes(RETRY, 2, 7_000);
    complains(Mode::Single, done(by_two, 2), Class::Attempts);

    // One that ended before it could say so is not counted, also if it was called while its process was closing.
    let again = failing().call("a-2", SECOND, Answer::Done).becomes(DONE, 0, SECOND + 2_000);
    for ended in [fault(Kind::Killed, "a-1", 7_000, 7_000), fault(Kind::Closed, "a-1", 1_000, 7_000)] {
        let history = History { faults: vec![ended], ..history(Mode::Single, [("e", again.clone())]) };
        assert_eq!(complaints(&history), []);
    }
    let faults = vec![fault(Kind::Killed, "a-1", SECOND, SECOND)];
    let uncounted = History { faults, ..history(Mode::Single, [("e", done(failing(), 0))]) };
    assert_eq!(complaints(&uncounted), [(Class::Attempts, "e".to_owned())], "it lived to handle it again");
}

/// The row that was dead and is replayed has been buried again by a settlement that was written twice.
#[test]
fn a_row_that_is_buried_without_a_failure_is_told() {
    let dead = committed(0).call("a-1", 5_000, Answer::Refused).becomes(DEAD, 0, 7_000);
    complains(Mode::Single, dead.becomes(NEW, 0, 8_000).becomes(DEAD, 0, 9_000), Class::Attempts);
}

#[test]
fn more_attempts_than_are_allowed_are_told() {
    let mut story = committed(0);
    for attempt in 1..=3 {
        let at = attempt * 10_000;
        story = story.call("a-1", at, Answer::Failed).becomes(RETRY, attempt, at + 2_000);
    }
    story = story.call("a-1", SECOND, Answer::Done).becomes(DONE, 3, SECOND + 2_000);
    let complaints = complaints(&history(Mode::Single, [("e", story)]));
    assert!(!complaints.is_empty() && complaints.iter().all(|(class, _)| *class == Class::Attempts));
}

#[test]
fn a_row_that_disagrees_with_its_history_is_told() {
    let story = Story { row: Some(Row { status: 1, attempts: 1 }), ..delivered(0, 5_000) };
    complains(Mode::Single, story, Class::Attempts);
}
