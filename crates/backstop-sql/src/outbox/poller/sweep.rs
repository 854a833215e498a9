//! Where the next look at the table begins, how much it asks for, and what follows it.
//!
//! A backlog is read in sweeps: each look goes on after the last row of the one before, so that rows in flight and
//! index entries of rows that are gone are not scanned again and again. Rows that become due behind the
//! sweep (retries, late commits) are found by a look from the beginning, now and then and at its end.

use std::time::Duration;

use backstop_core::clock::Tick;

use crate::store::Place;

/// A sweep asks for at most this many rows at once, unless the batch size is larger: more gains nothing.
const LARGEST_BATCH: u32 = 500;

/// How often a look begins at the beginning while there is a backlog.
const FROM_THE_BEGINNING_EVERY: Duration = Duration::from_secs(1);

/// At most this part of the time goes into looks from the beginning, however long they take.
const SHARE: u32 = 20;

/// What follows a look at the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More rows are likely to wait.
    Again,
    /// More rows may wait, and nobody has room for them.
    WhenThereIsRoom,
    /// Nothing is known to wait.
    Rest,
}

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether as many rows came as were asked for.
    pub(super) full: bool,
    /// Whether any of them was new to us.
    pub(super) new: bool,
    /// Whether there was room for all of them.
    pub(super) all_taken: bool,
    /// The place of the last of them.
    pub(super) last: Option<Place>,
}

/// A pass over the due rows in several looks.
#[derive(Debug)]
pub(super) struct Sweep {
    batch_size: u32,
    size: u32,
    /// Whether looks may begin behind a place, and grow. Strict order always begins with the first row, and so
    /// does a poller that does not know what becomes of the rows it hands on.
    goes_on: bool,
    after: Option<Place>,
    /// Where the sweep was when it was interrupted by a look from the beginning.
    ahead: Option<Place>,
    /// Whether this sweep has found anything new.
    found: bool,
    begun_at: Option<Tick>,
    /// How long to go on before the next look from the beginning.
    patience: Duration,
}

impl Sweep {
    pub(super) fn new(batch_size: u32, goes_on: bool) -> Self {
        Self {
            batch_size,
            size: batch_size,
            goes_on,
            after: None,
            ahead: None,
            found: false,
            begun_at: None,
            patience: FROM_THE_BEGINNING_EVERY,
        }
    }

    /// How many rows to ask for, if there is room for `room` more.
    pub(super) fn batch(&self, room: usize) -> u32 {
        self.size.min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// The place after which the next look begins.
    pub(super) fn begin(&mut self, now: Tick) -> Option<Place> {
        let due = self.begun_at.is_none_or(|at| now.since(at) >= self.patience);
        if due && self.after.is_some() {
            self.ahead = self.after.take();
        }
        if self.after.is_none() {
            self.begun_at = Some(now);
        }
        self.after.clone()
    }

    /// Takes note of what the look found, and returns what follows.
    pub(super) fn seen(&mut self, seen: Seen, now: Tick) -> Next {
        let from_the_beginning = self.after.is_none();
        if let (true, Some(begun)) = (from_the_beginning, self.begun_at) {
            self.patience = FROM_THE_BEGINNING_EVERY.max(now.since(begun) * SHARE);
        }
        let interrupted = self.ahead.take();
        self.found |= seen.new;
        self.size = if seen.full { self.larger() } else { self.batch_size };
        if !seen.all_taken {
            self.start_over();
            return Next::WhenThereIsRoom;
        }
        // Where no place can be told, the next look begins at the beginning, as in strict order.
        if !self.goes_on || (seen.full && seen.last.is_none()) {
            self.start_over();
            return if seen.full && seen.new { Next::Again } else { Next::Rest };
        }
        match (seen.full, interrupted) {
            // Little or nothing has come up behind the sweep: it goes on where it was.
            (_, Some(ahead)) if !(seen.full && seen.new) => {
                self.after = Some(ahead);
                Next::Again
            }
            (true, _) => {
                self.after = seen.last;
                Next::Again
            }
            (false, _) => {
                let again = !from_the_beginning && self.found;
                self.start_over();
                if again { Next::Again } else { Next::Rest }
            }
        }
    }

    /// Begins the next look at the beginning.
    pub(super) fn start_over(&mut self) {
        self.after = None;
        self.ahead = None;
        self.found = false;
    }

    fn larger(&self) -> u32 {
        let factor = if self.goes_on { 2 } else { 1 };
        self.size.saturating_mul(factor).min(LARGEST_BATCH.max(self.batch_size))
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::{Clock, Timestamp};
    use backstop_testkit::clock::ManualClock;

    use super::*;

    fn place(number: i64) -> Place {
        let moment = Timestamp::from_timestamp(number, 0).unwrap();
        Place { due_at: moment, created_at: moment, id: number.to_string() }
    }

    /// As many rows as were asked for, the last of them at this place.
    fn full(last: i64) -> Seen {
        Seen { full: true, new: true, all_taken: true, last: Some(place(last)) }
    }

    fn some(last: i64) -> Seen {
        Seen { full: false, ..full(last) }
    }

    fn nothing() -> Seen {
        Seen { full: false, new: false, all_taken: true, last: None }
    }

    #[test]
    fn a_backlog_is_read_on_and_on_and_once_more_from_the_beginning() {
        let now = ManualClock::default().ticks();
        let mut sweep = Sweep::new(50, true);
        assert_eq!(sweep.begin(now), None);
        assert_eq!(sweep.seen(full(50), now), Next::Again);
        assert_eq!(sweep.begin(now), Some(place(50)));
        assert_eq!(sweep.seen(some(60), now), Next::Again);
        assert_eq!(sweep.begin(now), None, "for what was committed late");
        assert_eq!(sweep.seen(nothing(), now), Next::Rest);
    }

    #[test]
    fn a_few_rows_are_one_look() {
        let now = ManualClock::default().ticks();
        let mut sweep = Sweep::new(50, true);
        sweep.begin(now);
        assert_eq!(sweep.seen(some(3), now), Next::Rest);
    }

    #[test]
    fn a_backlog_that_is_all_in_our_hands_is_not_swept_in_circles() {
        let now = ManualClock::default().ticks();
        let mut sweep = Sweep::new(50, true);
        let held = |seen| Seen { new: false, ..seen };
        sweep.begin(now);
        assert_eq!(sweep.seen(held(full(50)), now), Next::Again);
        assert_eq!(sweep.begin(now), Some(place(50)));
        assert_eq!(sweep.seen(held(some(80)), now), Next::Rest);
        assert_eq!(sweep.begin(now), None);
    }

    #[test]
    fn now_and_then_a_look_begins_at_the_beginning_and_the_sweep_goes_on_where_it_was() {
        let clock = ManualClock::default();
        let mut sweep = Sweep::new(50, true);
        sweep.begin(clock.ticks());
        sweep.seen(full(50), clock.ticks());
        clock.advance(Duration::from_secs(1));
        assert_eq!(sweep.begin(clock.ticks()), None);
        assert_eq!(sweep.seen(some(7), clock.ticks()), Next::Again);
        assert_eq!(sweep.begin(clock.ticks()), Some(place(50)));
    }

    #[test]
    fn many_rows_that_came_up_behind_the_sweep_are_read_before_it_goes_on() {
        let clock = ManualClock::default();
        let mut sweep = Sweep::new(50, true);
        sweep.begin(clock.ticks());
        sweep.seen(full(5_000), clock.ticks());
        clock.advance(Duration::from_secs(1));
        assert_eq!(sweep.begin(clock.ticks()), None);
        assert_eq!(sweep.seen(full(100), clock.ticks()), Next::Again);
        assert_eq!(sweep.begin(clock.ticks()), Some(place(100)));
    }

    #[test]
    fn looks_from_the_beginning_that_take_long_are_rare() {
        let clock = ManualClock::default();
        let mut sweep = Sweep::new(50, true);
        sweep.begin(clock.ticks());
        clock.advance(Duration::from_secs(2));
        sweep.seen(full(50), clock.ticks());
        clock.advance(Duration::from_secs(37));
        assert_eq!(sweep.begin(clock.ticks()), Some(place(50)), "within 20 times as long");
        sweep.seen(full(100), clock.ticks());
        clock.advance(Duration::from_secs(2));
        assert_eq!(sweep.begin(clock.ticks()), None);
    }

    #[test]
    fn batches_grow_with_a_backlog_up_to_500_or_the_batch_size_and_to_the_room_there_is() {
        let now = ManualClock::default().ticks();
        let mut sweep = Sweep::new(50, true);
        let mut sizes = Vec::new();
        for last in 0..6 {
            sizes.push(sweep.batch(usize::MAX));
            sweep.begin(now);
            sweep.seen(full(last), now);
        }
        assert_eq!(sizes, [50, 100, 200, 400, 500, 500]);
        assert_eq!(sweep.batch(7), 7);
        sweep.begin(now);
        sweep.seen(some(9), now);
        assert_eq!(sweep.batch(usize::MAX), 50);
        assert_eq!(Sweep { size: 2_000, ..Sweep::new(2_000, true) }.larger(), 2_000);
    }

    #[test]
    fn strict_order_always_begins_with_the_first_row_and_rows_without_room_are_read_again() {
        let now = ManualClock::default().ticks();
        let mut strict = Sweep::new(50, false);
        strict.begin(now);
        assert_eq!(strict.seen(full(50), now), Next::Again);
        assert_eq!(strict.begin(now), None);

        let mut sweep = Sweep::new(50, true);
        sweep.begin(now);
        assert_eq!(sweep.seen(Seen { all_taken: false, ..full(50) }, now), Next::WhenThereIsRoom);
        assert_eq!(sweep.begin(now), None);
    }
}
