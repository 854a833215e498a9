//! Time: what the wall clock says, and how long something took. The only place that reads either.

use std::fmt;
use std::ops::Add;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

/// A moment in UTC. Stored and compared with microseconds, the precision every database keeps.
pub type Timestamp = DateTime<Utc>;

/// Where a component reads the time.
///
/// Two readings, because they answer different questions: [`now`](Clock::now) is written down and shown,
/// and may jump when somebody sets the machine's clock; [`ticks`](Clock::ticks) only ever moves forward
/// and measures how long something took.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock, cut to microseconds.
    fn now(&self) -> Timestamp;

    /// The monotonic clock.
    fn ticks(&self) -> Tick;
}

/// The machine's own clock.
///
/// ```
/// use backstop_core::{Clock, SystemClock};
///
/// let before = SystemClock.ticks();
/// assert!(SystemClock.ticks() >= before);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        to_micros(Utc::now())
    }

    fn ticks(&self) -> Tick {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Tick(ORIGIN.get_or_init(Instant::now).elapsed())
    }
}

/// A reading of the monotonic clock: time since an origin that means nothing by itself.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::clock::Tick;
///
/// let later = Tick::ZERO + Duration::from_secs(3);
/// assert_eq!(later.since(Tick::ZERO), Duration::from_secs(3));
/// assert_eq!(Tick::ZERO.since(later), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(Duration);

impl Tick {
    /// The origin.
    pub const ZERO: Tick = Tick(Duration::ZERO);

    /// How long ago `earlier` was; zero if it is in the future.
    pub fn since(self, earlier: Tick) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, duration: Duration) -> Tick {
        Tick(self.0.saturating_add(duration))
    }
}

/// The moment that comes so long after another, cut to microseconds; none if no calendar has it.
pub fn after(moment: Timestamp, span: Duration) -> Option<Timestamp> {
    moment.checked_add_signed(TimeDelta::from_std(span).ok()?).map(to_micros)
}

/// Cuts a moment to the microseconds that databases keep, so that what was written equals what is read.
pub fn to_micros(moment: Timestamp) -> Timestamp {
    moment.trunc_subsecs(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_shows_no_more_than_microseconds() {
        for _ in 0..100 {
            assert_eq!(SystemClock.now().timestamp_subsec_nanos() % 1000, 0);
        }
    }
}
