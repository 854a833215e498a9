//! How long a loop rests between looks for work: short while there is something to find, long when there is not.

use std::time::Duration;

/// The rest after a look that found something, where nobody would wake us for the next.
const SHORTEST: Duration = Duration::from_millis(50);

/// The first rest after a look that failed. Each further one is twice as long, up to the longest rest or to this.
const FIRST_AFTER_FAILURE: Duration = Duration::from_millis(100);
const LONGEST_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Each look that finds nothing makes the rest twice as long, up to the longest.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::rest::Rest;
///
/// let mut rest = Rest::new(Duration::from_secs(5));
/// rest.after_a_look(true);
/// assert_eq!(rest.length(None, false), Duration::from_millis(50));
/// rest.after_a_look(false);
/// assert_eq!(rest.length(None, false), Duration::from_millis(100));
/// // Who is woken when there is work need not look for it, and what becomes due is not overslept.
/// assert_eq!(rest.length(None, true), Duration::from_secs(5));
/// assert_eq!(rest.length(Some(Duration::from_secs(2)), true), Duration::from_secs(2));
/// ```
#[derive(Debug)]
pub struct Rest {
    longest: Duration,
    adapted: Duration,
    /// How long to rest after a look that failed.
    failing: Option<Duration>,
}

impl Rest {
    /// Rests, none longer than this except after failures.
    pub fn new(longest: Duration) -> Self {
        Self { longest, adapted: longest, failing: None }
    }

    /// The longest rest after a look that did not fail.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// A look went well, and found something or nothing.
    pub fn after_a_look(&mut self, found: bool) {
        self.failing = None;
        let next = if found { SHORTEST } else { self.adapted.saturating_mul(2) };
        self.adapted = next.min(self.longest);
    }

    /// A look failed: the next one comes soon, and later after each further failure.
    pub fn failed(&mut self) {
        let longest = self.longest.max(LONGEST_AFTER_FAILURE);
        let next =
            self.failing.map_or(FIRST_AFTER_FAILURE.min(self.longest), |pause| pause.saturating_mul(2));
        self.failing = Some(next.min(longest));
    }

    /// How long to rest if the last look failed.
    pub fn after_failure(&self) -> Option<Duration> {
        self.failing
    }

    /// How long to rest if something becomes due after `ahead`. A loop that receives wake-ups rests as long as it
    /// can.
    pub fn length(&self, ahead: Option<Duration>, hears: bool) -> Duration {
        let rest = if hears { self.longest } else { self.adapted };
        ahead.map_or(rest, |ahead| ahead.max(Duration::from_millis(1)).min(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_looks_follow_each_other_and_idle_ones_wait_ever_longer() {
        let mut rest = Rest::new(Duration::from_millis(300));
        assert_eq!(rest.length(None, false), Duration::from_millis(300));
        rest.after_a_look(true);
        let mut rests = Vec::new();
        for _ in 0..5 {
            rests.push(rest.length(None, false).as_millis());
            rest.after_a_look(false);
        }
        assert_eq!(rests, [50, 100, 200, 300, 300]);
    }

    #[test]
    fn after_a_failure_the_next_look_comes_soon_and_then_ever_later() {
        let mut rest = Rest::new(Duration::from_millis(500));
        assert_eq!(rest.after_failure(), None);
        let mut rests = Vec::new();
        for _ in 0..8 {
            rest.failed();
            rests.push(rest.after_failure().unwrap().as_millis());
        }
        assert_eq!(rests, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        rest.after_a_look(true);
        assert_eq!(rest.after_failure(), None);
        let mut quick = Rest::new(Duration::from_millis(20));
        quick.failed();
        assert_eq!(quick.after_failure(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn what_becomes_due_ends_the_rest_and_wake_ups_make_short_ones_needless() {
        let mut rest = Rest::new(Duration::from_secs(5));
        rest.after_a_look(true);
        assert_eq!(rest.length(None, true), Duration::from_secs(5));
        assert_eq!(rest.length(Some(Duration::from_secs(2)), true), Duration::from_secs(2));
        assert_eq!(rest.length(Some(Duration::ZERO), true), Duration::from_millis(1));
        assert_eq!(rest.length(Some(Duration::from_secs(2)), false), SHORTEST);
    }
}
