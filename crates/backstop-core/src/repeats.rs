//! What happens again and again is told once, and then how often, at an interval.

use std::time::Duration;

use crate::clock::Tick;

/// How often something is told that may happen any number of times.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::{Clock, SystemClock, repeats::Repeats};
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// let (mut refused, now) = (Repeats::default(), SystemClock.ticks());
/// assert_eq!(refused.tell(now, MINUTE), Some(0)); // the first
/// assert_eq!(refused.tell(now, MINUTE), None);
/// assert_eq!(refused.tell(now + MINUTE, MINUTE), Some(1)); // with those that were not told
/// ```
#[derive(Debug, Clone, Default)]
pub struct Repeats {
    told_at: Option<Tick>,
    untold: u64,
}

impl Repeats {
    /// Whether this one is told, and if so how many before it were not: the first is, and one in each interval.
    pub fn tell(&mut self, now: Tick, interval: Duration) -> Option<u64> {
        if self.told_at.is_some_and(|told_at| now.since(told_at) < interval) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(self.take_untold())
    }

    /// Whether this one is told. It leaves the others to whoever asks for [those that were not](Self::take_untold).
    pub fn admits(&mut self, now: Tick, interval: Duration) -> bool {
        let untold = self.untold;
        let told = self.tell(now, interval).is_some();
        if told {
            self.untold = untold;
        }
        told
    }

    /// Whether the last one was told so long ago that nothing needs to be known of it.
    pub fn is_over(&self, now: Tick, interval: Duration) -> bool {
        self.untold == 0 && self.told_at.is_none_or(|told_at| now.since(told_at) >= interval)
    }

    /// How many were not told since this was last asked, or one was told.
    pub fn take_untold(&mut self) -> u64 {
        std::mem::take(&mut self.untold)
    }
}
