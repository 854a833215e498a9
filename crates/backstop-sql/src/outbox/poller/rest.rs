//! How long the poller rests: short while there is something to find, the interval when there is not.

use std::time::Duration;

use super::Settings;

/// The rest after a look that found something, where nobody would wake us for the next.
const SHORTEST: Duration = Duration::from_millis(50);

/// Each look that finds nothing makes the rest twice as long, up to the interval.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) longest: Duration,
    adapted: Duration,
}

impl Rest {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { longest: settings.interval, adapted: settings.interval }
    }

    pub(super) fn after_a_look(&mut self, found: bool) {
        let next = if found { SHORTEST } else { self.adapted.saturating_mul(2) };
        self.adapted = next.min(self.longest);
    }

    /// How long to rest if a row becomes due that far ahead. Who hears wake-ups rests the whole interval.
    pub(super) fn length(&self, ahead: Option<Duration>, hears: bool) -> Duration {
        let rest = if hears { self.longest } else { self.adapted };
        ahead.map_or(rest, |ahead| ahead.max(Duration::from_millis(1)).min(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_looks_follow_each_other_and_idle_ones_wait_for_the_interval() {
        let mut rest = Rest::new(&Settings::default().interval(Duration::from_millis(300)));
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
    fn a_scheduled_row_ends_the_rest_and_wake_ups_make_short_ones_needless() {
        let mut rest = Rest::new(&Settings::default());
        rest.after_a_look(true);
        assert_eq!(rest.length(None, true), Duration::from_secs(5));
        assert_eq!(rest.length(Some(Duration::from_secs(2)), true), Duration::from_secs(2));
        assert_eq!(rest.length(Some(Duration::ZERO), true), Duration::from_millis(1));
        assert_eq!(rest.length(Some(Duration::from_secs(2)), false), SHORTEST);
    }
}
