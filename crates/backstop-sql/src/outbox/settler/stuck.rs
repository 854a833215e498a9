//! Settlements that the database refuses: kept, shown, and tried again at growing intervals.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Settled;
use crate::outbox::gate::{Gate, Trouble};

/// One event that cannot be settled stops no other. After this many in a row it is not the event's fault, and each
/// further event would be handled without a record of it.
const IN_A_ROW: usize = 3;

/// At most this many are kept before deliveries are stopped.
const MOST: usize = 500;

/// How long to wait before they are tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What was refused. Its events stay in this node's hands, so that they are not handled again.
pub(super) struct Stuck {
    settled: Vec<Settled>,
    error: String,
    /// How many were refused since one was written.
    in_a_row: usize,
    again_at: Instant,
    pause: Duration,
    /// How many are being tried again, and how many were left then.
    taken: usize,
    left: usize,
    gate: Arc<Gate>,
}

impl Stuck {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        let (error, again_at) = (String::new(), Instant::now());
        Self {
            settled: Vec::new(),
            error,
            in_a_row: 0,
            again_at,
            pause: FIRST_PAUSE,
            taken: 0,
            left: 0,
            gate,
        }
    }

    pub(super) fn add(&mut self, settled: Settled, error: String) {
        if self.settled.is_empty() && self.taken == 0 {
            self.wait();
        }
        // One that is refused again is the same one: however often that is, it stops nobody.
        if self.taken == 0 {
            self.in_a_row += 1;
        }
        self.settled.push(settled);
        self.error = error;
    }

    fn wait(&mut self) {
        self.again_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// When to try again, if there is something to try.
    pub(super) fn again_at(&self) -> Option<Instant> {
        (!self.settled.is_empty()).then_some(self.again_at)
    }

    pub(super) fn is_due(&self) -> bool {
        self.again_at().is_some_and(|at| at <= Instant::now())
    }

    /// Some of them, for another attempt.
    pub(super) fn take(&mut self, most: usize) -> Vec<Settled> {
        let most = most.min(self.settled.len());
        self.taken = most;
        self.left = self.settled.len() - most;
        self.settled.drain(..most).collect()
    }

    pub(super) fn something_was_written(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether nothing is or was refused lately, so that there is nothing to show.
    pub(super) fn is_quiet(&self) -> bool {
        self.settled.is_empty() && self.taken == 0 && self.gate.trouble().is_none()
    }

    /// Shuts the gate or opens it, and shows the state. Returns whether that lets deliveries go on.
    pub(super) fn show(&mut self) -> bool {
        let events = self.settled.len();
        if self.taken > 0 {
            if events < self.left + self.taken {
                self.pause = FIRST_PAUSE; // some were taken, so the others may be too
                self.again_at = Instant::now();
            } else {
                self.wait();
            }
            self.taken = 0;
        }
        if events == 0 {
            self.pause = FIRST_PAUSE;
            let cleared = self.gate.clear();
            if cleared {
                tracing::info!("results of events can be written again; deliveries go on");
            }
            return cleared;
        }
        let shut = self.in_a_row >= IN_A_ROW || events >= MOST;
        let news = self.gate.set(Trouble { events, error: self.error.clone(), shut });
        if news && shut {
            tracing::error!(
                events,
                error = self.error,
                "the database refuses to record the results of events; deliveries are stopped until it accepts them"
            );
        }
        !shut && news
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::Event;
    use backstop_core::delivery::Settlement;

    use super::*;
    use crate::outbox::feed::{Queued, Source};
    use crate::outbox::in_flight::InFlight;
    use crate::outbox::lease::Leases;

    fn refused() -> Settled {
        let event = Event::of_json("OrderPlaced", "{}").unwrap();
        let lease = Leases::new(Arc::new(InFlight::new()), None).take(event.id(), Source::Hot, None).unwrap();
        Settled::new(Queued::hot(event), Settlement::Done, lease)
    }

    fn stuck(events: usize) -> (Stuck, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        let mut stuck = Stuck::new(gate.clone());
        (0..events).for_each(|_| stuck.add(refused(), "no".to_owned()));
        stuck.show();
        (stuck, gate)
    }

    /// Tries them again, of which so many are refused once more.
    fn try_again(stuck: &mut Stuck, refused_again: usize) {
        for settled in stuck.take(10).into_iter().take(refused_again) {
            stuck.add(settled, "no".to_owned());
        }
        stuck.show();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_tried_again_after_a_second_and_then_ever_later() {
        let (mut stuck, _) = stuck(2);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(!stuck.is_due());
            let before = Instant::now();
            tokio::time::sleep_until(stuck.again_at().unwrap()).await;
            assert!(stuck.is_due());
            waits.push(before.elapsed().as_secs());
            try_again(&mut stuck, 2);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        try_again(&mut stuck, 1);
        assert!(stuck.is_due(), "one was taken, so the other may be too");
    }

    #[tokio::test(start_paused = true)]
    async fn deliveries_stand_still_after_three_refusals_in_a_row_and_go_on_when_none_is_left() {
        let (mut stuck, gate) = stuck(2);
        assert!(!gate.is_shut() && gate.trouble().is_some_and(|trouble| trouble.events == 2));
        stuck.something_was_written();
        stuck.add(refused(), "no".to_owned());
        stuck.show();
        assert!(!gate.is_shut(), "it is these events that are refused, and not all");
        stuck.add(refused(), "no".to_owned());
        stuck.add(refused(), "no".to_owned());
        stuck.show();
        assert!(gate.is_shut());
        try_again(&mut stuck, 0);
        assert!(!gate.is_shut() && gate.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn deliveries_stand_still_when_too_many_are_kept_although_others_are_written_between() {
        let (mut stuck, gate) = stuck(0);
        for kept in 1..=MOST {
            stuck.something_was_written();
            stuck.add(refused(), "no".to_owned());
            stuck.show();
            assert_eq!(gate.is_shut(), kept == MOST, "{kept}");
        }
    }
}
