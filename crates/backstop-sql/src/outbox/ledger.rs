//! The events that this process has in hand: under which claims, how far each has come, and whether this node is the
//! one that delivers. Pure: time is passed in, and nothing waits.

use std::collections::HashMap;

use backstop_core::clock::Tick;

use super::claims::Terms;
use super::feed::Source;
use super::in_flight::Hold;
use crate::store::Claim;

/// How many attempts are made to give a row back: its transaction may not have committed yet at the first attempt.
/// After that the claim runs out by itself.
const TRIES: u8 = 20;

/// An event and its claim.
pub(super) type Claimed = (String, Claim);

/// An id is in one hand at most: written, then waiting or being handled, then on its way back to the table.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    terms: Option<Terms>,
    hands: HashMap<String, Hand>,
    /// The events that are written, and whose transactions nobody has reported yet as committed or rolled back: the
    /// last write of each id.
    written: HashMap<String, Writing>,
    last_writing: u64,
    /// Claims that nobody here needs any more, to be given back, each with how many attempts are left.
    to_give_back: HashMap<String, (Claim, u8)>,
    look: Option<UnderWay>,
    epoch: u64,
}

/// Which write of an id it was. After a savepoint was rolled back, or a row deleted, another event can be written
/// under the same id: a report about the first then says nothing about the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writing(u64);

#[derive(Debug)]
struct Hand {
    hold: Hold,
    /// When the row was written or taken: a claim counts from then.
    since: Tick,
    epoch: u64,
    claim: Option<Claim>,
    good_until: Tick,
    /// Another node has the row by now.
    is_lost: bool,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its transaction has not committed yet, or nobody has said so.
    Written,
    /// It is queued or being handled.
    Taken,
    /// Its result is on its way to the table, and ends its claim.
    Settling,
}

/// A look at the table that has begun and not ended.
#[derive(Debug)]
struct UnderWay {
    since: Tick,
    /// What to release when it ends.
    later: Vec<Hold>,
}

/// What a commit finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// Its id was taken when it was written, in that epoch.
    Held(Hold, u64),
    /// Its id was in another hand then.
    InAnotherHand,
    /// Another event was written under its id since.
    Stale,
}

/// Whether an event may be handled now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It may: its claim lasts until it is renewed by itself, or there is none.
    Ready,
    /// Its claim may run out before that.
    NotForLong(Claimed),
    /// Its claim has run out, so that another node may have it by now.
    RunOut,
    /// Another node has had the table since it was taken, or somebody here has taken it again.
    Gone,
}

/// Whether this node is the one that delivers. Changes are counted, so that events taken before a change are
/// recognised after it.
impl Ledger {
    pub(super) fn new(terms: Option<Terms>) -> Self {
        Self { terms, ..Self::default() }
    }

    /// How often that has changed.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// While another node has the table.
    pub(super) fn is_down(&self) -> bool {
        !self.epoch.is_multiple_of(2)
    }

    /// Whether this node has been the one ever since that epoch.
    pub(super) fn is_up_since(&self, epoch: u64) -> bool {
        epoch == self.epoch && !self.is_down()
    }

    /// Stands down or up. Returns whether that is news.
    pub(super) fn stand(&mut self, up: bool) -> bool {
        let news = self.is_down() == up;
        self.epoch += u64::from(news);
        news
    }
}

/// Events on their way from a transaction.
impl Ledger {
    pub(super) fn begin_writing(&mut self) -> Writing {
        self.last_writing += 1;
        Writing(self.last_writing)
    }

    /// An event was inserted. The event that had its id before is gone, or this one could not have been inserted: if
    /// that one was not reported yet, or is about to be released, its hold now belongs to this one. False if the id
    /// still has to be taken.
    pub(super) fn write(&mut self, id: &str, writing: Writing, since: Tick) -> bool {
        self.written.insert(id.to_owned(), writing);
        let epoch = self.epoch;
        if let Some(hand) = self.hands.get_mut(id).filter(|hand| hand.phase == Phase::Written) {
            (hand.since, hand.epoch) = (since, epoch);
            return true;
        }
        let Some(hold) = self.take_back(id) else { return false };
        self.take_written(hold, since);
        true
    }

    /// Takes the id of an event that was inserted.
    pub(super) fn take_written(&mut self, hold: Hold, since: Tick) {
        self.put(hold, since, Phase::Written);
    }

    /// An event was inserted that is not to be delivered yet.
    pub(super) fn write_delayed(&mut self, id: &str) -> Option<Hold> {
        self.written.remove(id);
        self.let_go_of_written(id)
    }

    /// A transaction has committed: its event is this hand's to deliver, if it is the last of its id.
    pub(super) fn commit(&mut self, id: &str, writing: Writing) -> Committed {
        if self.written.get(id) != Some(&writing) {
            return Committed::Stale;
        }
        self.written.remove(id);
        match self.hands.get_mut(id) {
            Some(hand) if hand.phase == Phase::Written => {
                hand.phase = Phase::Taken;
                Committed::Held(hand.hold.clone(), hand.epoch)
            }
            _ => Committed::InAnotherHand,
        }
    }

    /// Nobody here delivers an event that was written. Returns whether it is the last of its id, and what the tracker
    /// is to release.
    pub(super) fn give_up(&mut self, id: &str, writing: Writing) -> (bool, Option<Hold>) {
        if self.written.get(id) != Some(&writing) {
            return (false, None);
        }
        self.written.remove(id);
        (true, self.let_go_of_written(id))
    }

    fn let_go_of_written(&mut self, id: &str) -> Option<Hold> {
        let hand = self.hands.get(id).filter(|hand| hand.phase == Phase::Written)?;
        let hold = hand.hold.clone();
        self.let_go(hold)
    }
}

/// Events in hand.
impl Ledger {
    /// Takes the id of an event that was committed or read, and tells the epoch. A row that was read was so no later than
    /// the look began, so its claim counts from there.
    pub(super) fn take(&mut self, hold: Hold, now: Tick) -> u64 {
        let since = self.look.as_ref().map_or(now, |look| look.since);
        self.put(hold, since, Phase::Taken);
        self.epoch
    }

    fn put(&mut self, hold: Hold, since: Tick, phase: Phase) {
        let hand = Hand {
            since,
            epoch: self.epoch,
            claim: None,
            good_until: since,
            is_lost: false,
            phase,
            hold: hold.clone(),
        };
        self.hands.insert(hold.id, hand);
    }

    /// Whether an event is in hand.
    pub(super) fn holds(&self, id: &str) -> bool {
        self.hands.contains_key(id)
    }

    /// Says under which claim an event was taken.
    pub(super) fn claim(&mut self, hold: &Hold, source: Source, claim: &Claim) {
        let Some(terms) = self.terms else { return };
        if let Some(hand) = self.hand_mut(hold) {
            let good_for = match source {
                Source::Hot => terms.hot_grace,
                Source::Cold => terms.timeout,
            };
            hand.claim = Some(claim.clone());
            hand.good_until = hand.since + good_for;
            // Somebody needs it again.
            self.given_back(&[(hold.id.clone(), claim.clone())]);
        }
    }

    /// Whether an event that was taken in that epoch may be handled now. A tracker may forget, so that it is in another hand.
    pub(super) fn readiness(&self, hold: &Hold, epoch: u64, now: Tick) -> Readiness {
        let Some(hand) = self.hand(hold).filter(|_| self.is_up_since(epoch)) else { return Readiness::Gone };
        match (&hand.claim, self.terms) {
            (Some(_), _) if now >= hand.good_until => Readiness::RunOut,
            (Some(claim), Some(terms)) if hand.good_until < now + terms.enough() => {
                Readiness::NotForLong((hold.id.clone(), claim.clone()))
            }
            _ => Readiness::Ready,
        }
    }

    /// Whether the claim of an event has run out, so that another node may have it by now.
    pub(super) fn has_run_out(&self, hold: &Hold, now: Tick) -> bool {
        self.hand(hold).is_some_and(|hand| !hand.is_good(now))
    }

    /// The result of an event is on its way to the table.
    pub(super) fn settling(&mut self, hold: &Hold) {
        if let Some(hand) = self.hand_mut(hold) {
            hand.phase = Phase::Settling;
        }
    }

    /// Releases an event, and returns what the tracker is to release: nothing while the poller looks at the table. It
    /// may have read the row before the row was settled, and would take the event for one that nobody holds.
    pub(super) fn let_go(&mut self, hold: Hold) -> Option<Hold> {
        self.refuse(&hold);
        match &mut self.look {
            Some(look) => {
                look.later.push(hold);
                None
            }
            None => Some(hold),
        }
    }

    /// Releases an event at once, since it was not delivered.
    pub(super) fn refuse(&mut self, hold: &Hold) {
        if self.hand(hold).is_some() {
            self.hands.remove(&hold.id);
        }
    }

    /// Releases an event that is still due. Its claim is given back, unless another node has taken the row: a claim
    /// that has run out by our count, which began before the database's, may still be valid there and keep everybody
    /// from the row.
    pub(super) fn abandon(&mut self, hold: Hold) -> Option<Hold> {
        let claim = self.hand(&hold).filter(|hand| !hand.is_lost).and_then(|hand| hand.claim.clone());
        if let Some(claim) = claim {
            self.disown(hold.id.clone(), claim);
        }
        self.let_go(hold)
    }

    fn hand(&self, hold: &Hold) -> Option<&Hand> {
        self.hands.get(&hold.id).filter(|hand| hand.hold == *hold)
    }

    fn hand_mut(&mut self, hold: &Hold) -> Option<&mut Hand> {
        self.hands.get_mut(&hold.id).filter(|hand| hand.hold == *hold)
    }
}

impl Hand {
    fn is_good(&self, now: Tick) -> bool {
        self.claim.is_none() || now < self.good_until
    }
}

/// Looks at the table.
impl Ledger {
    pub(super) fn begin_look(&mut self, now: Tick) {
        self.look = Some(UnderWay { since: now, later: Vec::new() });
    }

    /// What the tracker is to release.
    pub(super) fn end_look(&mut self) -> Vec<Hold> {
        self.look.take().map(|look| look.later).unwrap_or_default()
    }

    fn take_back(&mut self, id: &str) -> Option<Hold> {
        let later = &mut self.look.as_mut()?.later;
        let place = later.iter().position(|hold| hold.id == id)?;
        Some(later.swap_remove(place))
    }
}

/// Claims.
impl Ledger {
    /// Those that are to be renewed, up to that many, those that run out first come first. One that has run out must not be
    /// taken back from the node that has it now.
    pub(super) fn aging(&self, now: Tick, most: usize) -> Vec<Claimed> {
        let mut aging: Vec<_> = self.claimed().filter(|(hand, _)| self.is_aging(hand, now)).collect();
        if aging.len() > most {
            aging.select_nth_unstable_by_key(most, |(hand, _)| hand.good_until);
            aging.truncate(most);
        }
        aging.sort_by_key(|(hand, _)| hand.good_until);
        aging.into_iter().map(|(hand, claim)| (hand.hold.id.clone(), claim.clone())).collect()
    }

    /// Which of these are still to be renewed.
    pub(super) fn still_aging(&self, rows: &[Claimed], now: Tick) -> Vec<Claimed> {
        let hand =
            |(id, claim): &Claimed| self.hands.get(id).filter(|hand| hand.claim.as_ref() == Some(claim));
        let is_aging = |row: &&Claimed| hand(row).is_some_and(|hand| self.is_aging(hand, now));
        rows.iter().filter(is_aging).cloned().collect()
    }

    fn is_aging(&self, hand: &Hand, now: Tick) -> bool {
        let fresh = |terms: Terms| hand.good_until >= now + terms.fresh();
        now < hand.good_until && self.terms.is_some_and(|terms| !fresh(terms))
    }

    /// How many there are.
    pub(super) fn claims(&self) -> usize {
        self.claimed().count()
    }

    fn claimed(&self) -> impl Iterator<Item = (&Hand, &Claim)> {
        self.hands.values().filter_map(|hand| Some((hand, hand.claim.as_ref()?)))
    }

    pub(super) fn renewed(&mut self, rows: &[Claimed], until: Tick) {
        for (id, claim) in rows {
            if let Some(hand) = self.hands.get_mut(id).filter(|hand| hand.claim.as_ref() == Some(claim)) {
                hand.good_until = hand.good_until.max(until);
            }
        }
    }

    /// Lets claims run out now: another node has taken their rows. Returns for how many of them that matters.
    pub(super) fn lost(&mut self, rows: &[Claimed], now: Tick) -> usize {
        let mut lost = 0;
        for (id, claim) in rows {
            let hand = self.hands.get_mut(id).filter(|hand| hand.claim.as_ref() == Some(claim));
            if let Some(hand) = hand.filter(|hand| hand.phase != Phase::Settling) {
                (hand.good_until, hand.is_lost) = (hand.good_until.min(now), true);
                lost += 1;
            }
        }
        lost
    }

    /// A claim that nobody here needs any more. The poller gives it back at its next look.
    pub(super) fn disown(&mut self, id: String, claim: Claim) {
        // A row that was claimed again is given back under its last claim.
        if self.to_give_back.get(&id).is_none_or(|(other, _)| other.seq <= claim.seq) {
            self.to_give_back.insert(id, (claim, TRIES));
        }
    }

    /// Somebody here needs a row again, under the same claim. Returns whether it was to be given back.
    pub(super) fn own_again(&mut self, id: &str) -> bool {
        self.to_give_back.remove(id).is_some()
    }

    /// What is to be given back.
    pub(super) fn to_give_back(&self) -> Vec<Claimed> {
        self.to_give_back.iter().map(|(id, (claim, _))| (id.clone(), claim.clone())).collect()
    }

    /// Rows were given back.
    pub(super) fn given_back(&mut self, rows: &[Claimed]) {
        for (id, claim) in rows {
            if self.to_give_back.get(id).is_some_and(|(other, _)| other == claim) {
                self.to_give_back.remove(id);
            }
        }
    }

    /// Giving rows back was tried. Those that have no attempt left are given up: their claims run out by themselves.
    pub(super) fn tried_to_give_back(&mut self, rows: &[Claimed]) {
        for (id, claim) in rows {
            if let Some((other, tries)) = self.to_give_back.get_mut(id)
                && other == claim
            {
                *tries -= 1;
                if *tries == 0 {
                    self.to_give_back.remove(id);
                }
            }
        }
    }

    /// All claims, which nobody here holds any more after this: for closing.
    pub(super) fn take_all_claims(&mut self) -> Vec<Claimed> {
        let held =
            self.hands.values_mut().filter_map(|hand| Some((hand.hold.id.clone(), hand.claim.take()?)));
        let mut all: Vec<_> = held.collect();
        all.extend(self.to_give_back.drain().map(|(id, (claim, _))| (id, claim)));
        all
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
