//! A clock that stands still until the test moves it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::clock::{Tick, to_micros};
use backstop_core::{Clock, Timestamp};

use crate::lock;

/// A clock that the test moves. Clones show the same time, so a test keeps one and gives one away.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::Clock;
/// use backstop_testkit::clock::ManualClock;
///
/// let clock = ManualClock::new();
/// let (wall, ticks) = (clock.now(), clock.ticks());
///
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock.now(), wall + Duration::from_secs(30));
///
/// // Somebody sets the machine's clock back: what is measured goes on.
/// clock.set(wall - Duration::from_secs(3600));
/// assert_eq!(clock.ticks().since(ticks), Duration::from_secs(30));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    wall: Timestamp,
    ticks: Tick,
}

impl ManualClock {
    /// A clock that stands at 2030-01-01 00:00:00 UTC, the same in every test.
    pub fn new() -> Self {
        Self::at(Timestamp::UNIX_EPOCH + Duration::from_secs(1_893_456_000))
    }

    /// A clock that stands at the moment given.
    pub fn at(moment: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Reading { wall: to_micros(moment), ticks: Tick::ZERO })))
    }

    /// Lets time pass: both the wall clock and the ticks go forward.
    pub fn advance(&self, time: Duration) {
        let mut reading = lock(&self.0);
        reading.wall = to_micros(reading.wall + time);
        reading.ticks = reading.ticks + time;
    }

    /// Sets the wall clock, forward or back, as an administrator would. No time passes: the ticks stay where they
    /// are.
    pub fn set(&self, moment: Timestamp) {
        lock(&self.0).wall = to_micros(moment);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        lock(&self.0).wall
    }

    fn ticks(&self) -> Tick {
        lock(&self.0).ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_when_told_and_for_every_clone() {
        let (kept, given) = (ManualClock::new(), ManualClock::new());
        assert_eq!(kept.now(), given.now());
        let given = kept.clone();
        kept.advance(Duration::from_millis(1500));
        assert_eq!(given.now(), ManualClock::new().now() + Duration::from_millis(1500));
        assert_eq!(given.ticks(), Tick::ZERO + Duration::from_millis(1500));
    }

    #[test]
    fn setting_the_wall_clock_back_leaves_the_ticks_alone() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(5));
        let yesterday = clock.now() - Duration::from_secs(86_400);
        clock.set(yesterday);
        assert_eq!((clock.now(), clock.ticks()), (yesterday, Tick::ZERO + Duration::from_secs(5)));
    }

    #[test]
    fn the_wall_clock_shows_microseconds_as_databases_keep_them() {
        let clock = ManualClock::new();
        clock.set(clock.now() + Duration::from_nanos(1_234_567));
        assert_eq!(clock.now(), ManualClock::new().now() + Duration::from_micros(1234));
    }
}
