//! How many events to take ahead of the handlers: as many as they get through in a moment, so that what one worker cannot
//! handle soon is left to others.

use std::time::Duration;

/// What the handlers get through in this time is taken ahead.
const AHEAD: Duration = Duration::from_millis(50);

/// Pure: time is passed in.
#[derive(Debug)]
pub(super) struct Pace {
    least: usize,
    most: usize,
    target: usize,
}

impl Pace {
    /// For that many handlers at once; two statements' worth is the most that makes sense.
    pub(super) fn new(concurrency: usize, batch: u32) -> Self {
        let most = (2 * batch as usize).max(1);
        let least = (2 * concurrency).clamp(1, most);
        Self { least, most, target: least }
    }

    /// How many events may wait in memory.
    pub(super) fn target(&self) -> usize {
        self.target
    }

    /// The handlers took so many in that time, while there were events for them.
    pub(super) fn handled(&mut self, events: usize, within: Duration) {
        let millis = within.as_millis().max(1);
        let ahead = usize::try_from(events as u128 * AHEAD.as_millis() / millis).unwrap_or(usize::MAX);
        // Up at once, and down by halves: a single slow event says little.
        self.target = ahead.max(self.target / 2).clamp(self.least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_handlers_take_few_ahead_and_fast_ones_many() {
        let mut pace = Pace::new(4, 500);
        assert_eq!(pace.target(), 8);
        pace.handled(500, Duration::from_millis(10));
        assert_eq!(pace.target(), 1_000);
        let mut targets = Vec::new();
        for _ in 0..8 {
            pace.handled(4, Duration::from_secs(1));
            targets.push(pace.target());
        }
        assert_eq!(targets, [500, 250, 125, 62, 31, 15, 8, 8]);
        pace.handled(6_000, Duration::from_secs(1));
        assert_eq!(
            pace.target(),
            300,
            "what a dead worker leaves behind is handled one by one, so it is not much"
        );
    }

    #[test]
    fn a_small_batch_bounds_the_rest() {
        let mut pace = Pace::new(64, 1);
        assert_eq!(pace.target(), 2);
        pace.handled(1_000, Duration::ZERO);
        assert_eq!(pace.target(), 2);
    }
}
