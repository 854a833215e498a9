//! The ledger in single cases, and in random histories against a model.

use std::collections::HashMap;
use std::time::Duration;

use backstop_core::{Clock, SystemClock};
use proptest::prelude::*;

use super::*;
use crate::outbox::in_flight::{InFlight, Tracker};

const SECOND: Duration = Duration::from_secs(1);
const TERMS: Terms = Terms { hot_grace: Duration::from_secs(30), timeout: Duration::from_secs(300) };

fn hold(id: &str, token: u64) -> Hold {
    Hold { id: id.to_owned(), token }
}

fn claim(seq: i64) -> Claim {
    Claim { owner: "here".into(), seq }
}

fn claimed(id: &str, seq: i64) -> Claimed {
    (id.to_owned(), claim(seq))
}

#[test]
fn what_was_taken_before_this_node_stood_down_is_known_after_it() {
    let (mut ledger, now) = (Ledger::new(None), SystemClock.ticks());
    assert!(!ledger.is_down() && !ledger.stand(true), "no news");
    let before = ledger.epoch();
    assert_eq!(ledger.take(hold("a", 1), now), before);
    assert!(ledger.stand(false) && ledger.is_down() && !ledger.stand(false));
    let while_down = ledger.epoch();
    assert!(!ledger.is_up_since(before) && !ledger.is_up_since(while_down));
    assert!(ledger.stand(true) && !ledger.is_down());
    assert!(
        !ledger.is_up_since(before) && !ledger.is_up_since(while_down) && ledger.is_up_since(ledger.epoch())
    );
}

#[test]
fn a_claim_is_good_for_its_term_and_longer_when_it_is_renewed() {
    let (mut ledger, now) = (Ledger::new(Some(TERMS)), SystemClock.ticks());
    for (id, source) in [("hot", Source::Hot), ("cold", Source::Cold)] {
        ledger.take(hold(id, 1), now);
        ledger.claim(&hold(id, 1), source, &claim(1));
    }
    let later = now + SECOND * 30;
    let (hot, cold) = (hold("hot", 1), hold("cold", 1));
    assert!(ledger.has_run_out(&hot, later) && !ledger.has_run_out(&cold, later));
    assert_eq!(ledger.aging(later, 9), [], "one has run out, and the other is fresh");
    assert_eq!(ledger.aging(now + SECOND * 101, 9), [claimed("cold", 1)], "a third of its time is over");
    ledger.renewed(&[claimed("hot", 1)], later + SECOND * 300);
    assert!(!ledger.has_run_out(&hot, later));
    ledger.renewed(&[claimed("hot", 1)], later);
    assert!(!ledger.has_run_out(&hot, later), "an earlier answer that comes late takes nothing back");
    let both = [claimed("cold", 1), claimed("hot", 1)];
    assert_eq!(ledger.aging(later + SECOND * 101, 9), both, "what runs out first in front");
    assert_eq!(ledger.aging(later + SECOND * 101, 1), both[..1]);
    assert_eq!(ledger.still_aging(&both, now + SECOND * 101), both[..1], "the other was renewed");
    assert_eq!(ledger.lost(&[claimed("hot", 2), claimed("unknown", 1)], later), 0);
    assert!(!ledger.has_run_out(&hot, later));
    assert_eq!(ledger.lost(&[claimed("hot", 1)], later), 1);
    assert!(ledger.has_run_out(&hot, later));
    ledger.settling(&cold);
    assert_eq!(ledger.lost(&[claimed("cold", 1)], later), 0, "it ends by itself");
    assert!(!ledger.has_run_out(&cold, later));
    assert_eq!(ledger.let_go(hot.clone()), Some(hot));
    assert_eq!(ledger.take_all_claims(), [claimed("cold", 1)]);
    assert!(ledger.take_all_claims().is_empty());
}

#[test]
fn a_claim_with_less_than_two_periods_left_is_short() {
    let (mut ledger, now) = (Ledger::new(Some(TERMS)), SystemClock.ticks());
    let event = hold("a", 1);
    ledger.take(event.clone(), now);
    assert_eq!(ledger.readiness(&event, 0, now), Readiness::Ready, "it has none");
    ledger.claim(&event, Source::Hot, &claim(0));
    assert_eq!(ledger.readiness(&event, 0, now + SECOND * 10), Readiness::Ready);
    assert_eq!(ledger.readiness(&event, 0, now + SECOND * 11), Readiness::NotForLong(claimed("a", 0)));
    assert_eq!(ledger.readiness(&event, 0, now + SECOND * 30), Readiness::RunOut);
}

#[test]
fn a_claim_counts_from_the_insert_or_from_the_beginning_of_the_look_that_read_its_row() {
    let (mut ledger, now) = (Ledger::new(Some(TERMS)), SystemClock.ticks());
    let writing = ledger.begin_writing();
    assert!(!ledger.write("hot", writing, now));
    ledger.take_written(hold("hot", 1), now);
    let Committed::Held(hot, 0) = ledger.commit("hot", writing) else { panic!() };
    ledger.claim(&hot, Source::Hot, &claim(0));
    assert!(ledger.has_run_out(&hot, now + SECOND * 30));
    ledger.begin_look(now);
    ledger.take(hold("cold", 2), now + SECOND * 100);
    ledger.claim(&hold("cold", 2), Source::Cold, &claim(1));
    assert!(ledger.has_run_out(&hold("cold", 2), now + SECOND * 300));
}

#[test]
fn an_abandoned_event_has_its_claim_given_back_unless_another_node_has_taken_it() {
    let (mut ledger, now) = (Ledger::new(Some(TERMS)), SystemClock.ticks());
    for id in ["a", "b"] {
        ledger.take(hold(id, 1), now);
        ledger.claim(&hold(id, 1), Source::Hot, &claim(0));
    }
    ledger.lost(&[claimed("b", 0)], now);
    ledger.abandon(hold("a", 1));
    ledger.abandon(hold("b", 1));
    assert_eq!(ledger.to_give_back(), [claimed("a", 0)]);
    ledger.given_back(&[claimed("a", 1)]);
    for _ in 1..TRIES {
        ledger.tried_to_give_back(&[claimed("a", 0)]);
    }
    assert_eq!(ledger.to_give_back(), [claimed("a", 0)], "another claim of it was given back");
    ledger.tried_to_give_back(&[claimed("a", 0)]);
    assert!(ledger.to_give_back().is_empty());
    ledger.disown("a".to_owned(), claim(2));
    ledger.disown("a".to_owned(), claim(1));
    assert_eq!(ledger.to_give_back(), [claimed("a", 2)], "its row was claimed again since");
    ledger.take(hold("a", 3), now);
    ledger.claim(&hold("a", 3), Source::Cold, &claim(2));
    assert!(ledger.to_give_back().is_empty(), "somebody stands for it again");
    ledger.disown("a".to_owned(), claim(2));
    assert!(ledger.own_again("a") && !ledger.own_again("a"));
}

#[test]
fn what_is_said_of_an_event_says_nothing_of_a_later_one_with_its_id() {
    let (mut ledger, now) = (Ledger::new(None), SystemClock.ticks());
    let first = ledger.begin_writing();
    assert!(!ledger.write("a", first, now));
    ledger.take_written(hold("a", 1), now);
    let second = ledger.begin_writing();
    assert!(ledger.write("a", second, now), "it goes on with the same hold");
    assert_eq!((ledger.commit("a", first), ledger.give_up("a", first)), (Committed::Stale, (false, None)));
    assert_eq!(ledger.commit("a", second), Committed::Held(hold("a", 1), 0));
    let third = ledger.begin_writing();
    assert!(!ledger.write("a", third, now), "it is in a hand");
    assert_eq!(ledger.commit("a", third), Committed::InAnotherHand);
    let fourth = ledger.begin_writing();
    ledger.write("b", fourth, now);
    ledger.take_written(hold("b", 2), now);
    assert_eq!(ledger.write_delayed("b"), Some(hold("b", 2)), "not to be delivered yet, so in no hand");
    assert_eq!(ledger.commit("b", fourth), Committed::Stale);
}

#[test]
fn whoever_held_an_id_before_it_was_taken_again_has_no_part_in_it_any_more() {
    let (mut ledger, now) = (Ledger::new(Some(TERMS)), SystemClock.ticks());
    let (before, after) = (hold("a", 1), hold("a", 2));
    for hold in [&before, &after] {
        ledger.take(hold.clone(), now);
        ledger.claim(hold, Source::Cold, &claim(2));
    }
    assert_eq!(ledger.readiness(&before, 0, now), Readiness::Gone);
    assert_eq!(ledger.readiness(&after, 0, now), Readiness::Ready);
    ledger.claim(&before, Source::Cold, &claim(1));
    ledger.abandon(before.clone());
    assert_eq!(ledger.readiness(&after, 0, now), Readiness::Ready);
    assert!(ledger.to_give_back().is_empty());
    assert_eq!(ledger.aging(now + SECOND * 299, 9), [claimed("a", 2)]);
    assert_eq!(ledger.claims(), 1);
}

/// One table, this process and the other nodes. What the ledger says is compared with what is so.
struct World {
    ledger: Ledger,
    tracker: InFlight,
    now: Tick,
    /// Each with which row of that id it is.
    rows: HashMap<&'static str, (Row, u64)>,
    inserted: u64,
    /// What a look that is under way has read.
    read: Option<HashMap<&'static str, u64>>,
    written: HashMap<&'static str, Writing>,
    hands: HashMap<&'static str, Held>,
    seq: i64,
}

#[derive(Clone, Copy, PartialEq)]
enum Row {
    Uncommitted,
    Due,
    Done,
}

struct Held {
    hold: Hold,
    claim: Claim,
    good_until: Tick,
    row: u64,
    lost: bool,
}

const IDS: [&str; 3] = ["a", "b", "c"];

impl World {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(Some(TERMS)),
            tracker: InFlight::new(),
            now: SystemClock.ticks(),
            rows: HashMap::new(),
            inserted: 0,
            read: None,
            written: HashMap::new(),
            hands: HashMap::new(),
            seq: 0,
        }
    }

    fn step(&mut self, what: u8, id: &'static str) {
        match what {
            0 | 1 => self.append(id),
            2 | 3 => self.commit(id),
            4 => self.roll_back(id),
            5 | 6 => self.begin_look(),
            7 | 8 => self.offer(id),
            9 => self.end_look(),
            10 | 11 => self.settle(id),
            12 => self.abandon(id),
            13 => self.renew(),
            14 => self.lose(id),
            15 => drop(self.ledger.stand(self.ledger.is_down())),
            16 => self.give_back(),
            17 => self.delete(id),
            _ => self.now = self.now + SECOND * 20,
        }
        self.check();
    }

    /// Where there is no row of that id: another event of the same id is gone.
    fn append(&mut self, id: &'static str) {
        if matches!(self.rows.get(id), Some((Row::Due | Row::Done, _))) {
            return;
        }
        self.inserted += 1;
        self.rows.insert(id, (Row::Uncommitted, self.inserted));
        self.ledger.own_again(id);
        let writing = self.ledger.begin_writing();
        self.written.insert(id, writing);
        if !self.ledger.write(id, writing, self.now)
            && let Some(hold) = self.tracker.try_acquire(id)
        {
            self.ledger.take_written(hold, self.now);
        }
    }

    fn commit(&mut self, id: &'static str) {
        let Some(writing) = self.written.remove(id) else { return };
        let row = self.rows[id].1;
        self.rows.insert(id, (Row::Due, row));
        let committed = self.ledger.commit(id, writing);
        assert_eq!(self.ledger.commit(id, writing), Committed::Stale, "said twice");
        match committed {
            Committed::Held(hold, epoch) => {
                assert!(epoch <= self.ledger.epoch());
                self.hold(id, hold, Source::Hot, row);
            }
            Committed::InAnotherHand => {
                if let Some(hold) = self.tracker.try_acquire(id) {
                    self.ledger.take(hold.clone(), self.now);
                    self.hold(id, hold, Source::Hot, row);
                }
            }
            Committed::Stale => panic!("{id} was written last"),
        }
    }

    fn roll_back(&mut self, id: &'static str) {
        let Some(writing) = self.written.remove(id) else { return };
        self.rows.remove(id);
        let (was_last, free) = self.ledger.give_up(id, writing);
        assert!(was_last);
        self.release(free);
    }

    /// Somebody deletes a row, whoever works on it.
    fn delete(&mut self, id: &'static str) {
        if matches!(self.rows.get(id), Some((Row::Due | Row::Done, _))) {
            self.rows.remove(id);
        }
    }

    fn begin_look(&mut self) {
        if self.read.is_none() {
            self.ledger.begin_look(self.now);
            let due = self.rows.iter().filter(|(_, (row, _))| *row == Row::Due);
            self.read = Some(due.map(|(id, (_, row))| (*id, *row)).collect());
        }
    }

    fn offer(&mut self, id: &'static str) {
        let Some(row) = self.read.as_mut().and_then(|read| read.remove(id)) else { return };
        let Some(hold) = self.tracker.try_acquire(id) else { return };
        let settled = self.rows.get(id) == Some(&(Row::Done, row));
        assert!(!settled, "{id} was let go of during the look that had read it");
        self.ledger.take(hold.clone(), self.now);
        self.hold(id, hold, Source::Cold, row);
    }

    fn hold(&mut self, id: &'static str, hold: Hold, source: Source, row: u64) {
        self.seq += 1;
        self.ledger.claim(&hold, source, &claim(self.seq));
        let good_until = self.ledger.hands[id].good_until;
        let hand = Held { hold, claim: claim(self.seq), good_until, row, lost: false };
        assert!(self.hands.insert(id, hand).is_none(), "{id} is in two hands");
    }

    fn end_look(&mut self) {
        self.read = None;
        for hold in self.ledger.end_look() {
            self.release(Some(hold));
        }
    }

    fn settle(&mut self, id: &'static str) {
        let Some(held) = self.hands.remove(id) else { return };
        self.ledger.settling(&held.hold);
        if self.rows.get(id) == Some(&(Row::Due, held.row)) {
            self.rows.insert(id, (Row::Done, held.row));
        }
        let free = self.ledger.let_go(held.hold);
        self.release(free);
    }

    fn abandon(&mut self, id: &'static str) {
        let Some(held) = self.hands.remove(id) else { return };
        let free = self.ledger.abandon(held.hold);
        assert_eq!(self.ledger.to_give_back().contains(&(id.to_owned(), held.claim)), !held.lost);
        self.release(free);
    }

    fn renew(&mut self) {
        let aging = self.ledger.aging(self.now, usize::MAX);
        self.ledger.renewed(&aging, self.now + TERMS.timeout);
        for (id, claim) in aging {
            let held = self.hands.get_mut(&*id).filter(|held| held.claim == claim && !held.lost);
            let held = held.expect("a claim that is renewed is in a hand");
            held.good_until = held.good_until.max(self.now + TERMS.timeout);
        }
    }

    fn lose(&mut self, id: &'static str) {
        if let Some(held) = self.hands.get_mut(id) {
            held.lost = true;
            self.ledger.lost(&[(id.to_owned(), held.claim.clone())], self.now);
        }
    }

    fn give_back(&mut self) {
        let to_give_back = self.ledger.to_give_back();
        self.ledger.given_back(&to_give_back);
        assert!(self.ledger.to_give_back().is_empty());
    }

    fn release(&self, hold: Option<Hold>) {
        if let Some(hold) = hold {
            self.tracker.release(&hold);
        }
    }

    fn check(&self) {
        let later = self.ledger.look.as_ref().map_or(0, |look| look.later.len());
        assert_eq!(self.tracker.held(), self.ledger.hands.len() + later, "an id is forgotten");
        for (id, held) in &self.hands {
            assert!(self.tracker.try_acquire(id).is_none(), "{id} is in no hand");
            assert!(self.ledger.hand(&held.hold).is_some());
            let is_good = !held.lost && self.now < held.good_until;
            assert_eq!(self.ledger.has_run_out(&held.hold, self.now), !is_good);
        }
    }

    /// Everything ends: nothing is held, and every claim is given back once.
    fn close(mut self) {
        let held: Vec<_> =
            self.hands.values().map(|held| (held.hold.id.clone(), held.claim.clone())).collect();
        let to_give_back = self.ledger.to_give_back();
        let all = self.ledger.take_all_claims();
        assert_eq!(all.len(), held.len() + to_give_back.len());
        assert!(all.iter().all(|claimed| held.contains(claimed) || to_give_back.contains(claimed)));
        for id in IDS {
            self.roll_back(id);
            self.settle(id);
        }
        self.end_look();
        assert_eq!((self.tracker.held(), self.ledger.hands.len(), self.ledger.written.len()), (0, 0, 0));
    }
}

proptest! {
    #[test]
    fn an_id_is_in_one_hand_and_never_forgotten_nor_let_go_during_a_look_that_may_have_read_it(
        steps in proptest::collection::vec((0_u8..19, 0_usize..IDS.len()), 1..200)
    ) {
        let mut world = World::new();
        for (what, id) in steps {
            world.step(what, IDS[id]);
        }
        world.close();
    }
}
