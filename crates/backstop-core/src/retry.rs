//! Retry as a value and a pure function: how long to wait, and when to give up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config;
use crate::failure::{Failure, Kind};

/// How many attempts an event gets, and how long to wait between them.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::{Failure, retry::{Decision, Exponential, Jitter, Retry}};
///
/// let retry = Retry { max_attempts: 3, ..Retry::default() };
/// let timeout = Failure::transient("timeout", "no answer");
///
/// assert_eq!(retry.decide(1, &timeout, Jitter::NONE), Decision::Retry { after: Duration::from_millis(200) });
/// assert_eq!(retry.decide(2, &timeout, Jitter::NONE), Decision::Retry { after: Duration::from_millis(400) });
/// assert_eq!(retry.decide(3, &timeout, Jitter::NONE), Decision::Bury);
/// ```
#[derive(Debug, Clone)]
pub struct Retry {
    /// How often the handler is called at most. Defaults to 10.
    pub max_attempts: u32,
    /// How long to wait after a failure. Defaults to [`Exponential::default`].
    pub policy: SharedPolicy,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 10, policy: SharedPolicy::new(Exponential::default()) }
    }
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Try again after this time.
    Retry {
        /// The delay, counted from the moment of settlement.
        after: Duration,
    },
    /// Try again after this time, with no attempt counted.
    Defer {
        /// The delay, counted from the moment of settlement.
        after: Duration,
    },
    /// Give up.
    Bury,
}

impl Retry {
    /// Decides what follows when attempt number `attempt`, counted from 1, has failed.
    ///
    /// A permanent failure buries at once; a failure that carries its own delay uses that one; the last attempt buries
    /// whatever the failure says. A failure that says nothing about the event counts no attempt.
    pub fn decide(&self, attempt: u32, failure: &Failure, jitter: Jitter) -> Decision {
        let after = match failure.kind() {
            Kind::Permanent => return Decision::Bury,
            Kind::Unavailable(wait) => {
                let after = wait.unwrap_or_else(|| self.policy.delay(1, jitter));
                return Decision::Defer { after };
            }
            _ if attempt >= self.max_attempts => return Decision::Bury,
            Kind::RetryAfter(delay) => delay,
            Kind::Transient => self.policy.delay(attempt, jitter),
        };
        Decision::Retry { after }
    }
}

/// How long to wait after the failure of attempt number `attempt` (counted from 1).
///
/// A closure is a policy too:
///
/// ```
/// use std::time::Duration;
/// use backstop_core::retry::{Jitter, Policy};
///
/// let every_second = |_attempt: u32, _jitter: Jitter| Duration::from_secs(1);
/// assert_eq!(every_second.delay(7, Jitter::random()), Duration::from_secs(1));
/// ```
pub trait Policy: Send + Sync + 'static {
    /// The delay. Randomness comes from the caller, so that tests can choose it.
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration;
}

impl<F: Fn(u32, Jitter) -> Duration + Send + Sync + 'static> Policy for F {
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration {
        self(attempt, jitter)
    }
}

crate::config! {
    /// Doubles the delay with each attempt up to a maximum, then spreads it by a random factor of 0.5 to 1.5.
    ///
    /// The spread comes after the maximum, so a delay can reach 1.5 times `max`: 90 s with the defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Exponential {
        /// The delay after the first failure; each further one doubles it.
        base: Duration = Duration::from_millis(200) => "base-delay-ms": one(config::ValueKind::MILLIS);
        /// The longest delay that doubling leads to.
        max: Duration = Duration::from_secs(60) => "max-delay-ms": one(config::ValueKind::MILLIS);
    }
}

impl Policy for Exponential {
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration {
        let doublings = attempt.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max).mul_f64(jitter.factor())
    }
}

/// Any policy behind one type, cheap to clone.
#[derive(Clone)]
pub struct SharedPolicy(Arc<dyn Policy>);

impl SharedPolicy {
    /// Shares a policy.
    pub fn new(policy: impl Policy) -> Self {
        Self(Arc::new(policy))
    }
}

impl Policy for SharedPolicy {
    fn delay(&self, attempt: u32, jitter: Jitter) -> Duration {
        self.0.delay(attempt, jitter)
    }
}

impl fmt::Debug for SharedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedPolicy")
    }
}

/// A draw of randomness, taken once at the edge and passed into the decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    /// No spread: the factor is 1.
    pub const NONE: Jitter = Jitter(0.5);

    /// A draw from `0.0..=1.0`; a value outside is moved to the nearest end.
    pub fn new(unit: f64) -> Self {
        Self(if unit.is_nan() { Self::NONE.0 } else { unit.clamp(0.0, 1.0) })
    }

    /// A random draw.
    pub fn random() -> Self {
        Self(fastrand::f64())
    }

    /// The factor by which a delay is multiplied, from 0.5 to 1.5.
    pub fn factor(self) -> f64 {
        0.5 + self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAST: Jitter = Jitter(0.0);
    const MOST: Jitter = Jitter(1.0);

    /// Rules: O-391, O-392.
    #[test]
    fn the_defaults_are_200_ms_and_60_s_and_ten_tries() {
        let Exponential { base, max } = Exponential::default();
        assert_eq!((base.as_millis(), max.as_millis()), (200, 60_000));
        assert_eq!(Retry::default().max_attempts, 10);
        // And the default retry uses them: delays of the first and of a late attempt.
        let policy = Retry::default().policy;
        assert_eq!(policy.delay(1, Jitter::NONE).as_millis(), 200);
        assert_eq!(policy.delay(30, Jitter::NONE).as_millis(), 60_000);
    }

    /// Rules: O-385, O-386, O-387, O-388.
    #[test]
    fn the_delay_doubles_with_each_try_up_to_the_maximum() {
        let policy = Exponential { base: Duration::from_millis(200), max: Duration::from_secs(60) };
        let delays: Vec<_> = (1..=11).map(|n| policy.delay(n, Jitter::NONE).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
    }

    #[test]
    fn try_zero_counts_as_the_first_and_huge_numbers_stay_at_the_maximum() {
        let policy = Exponential::default();
        assert_eq!(policy.delay(0, Jitter::NONE), policy.delay(1, Jitter::NONE));
        for attempt in [32, 33, 64, 65, u32::MAX] {
            assert_eq!(policy.delay(attempt, Jitter::NONE), policy.max);
        }
        let huge = Exponential { base: Duration::from_secs(u64::MAX / 4), max: Duration::from_secs(10) };
        assert_eq!(huge.delay(40, Jitter::NONE), huge.max);
    }

    /// Rules: O-390.
    #[test]
    fn the_spread_comes_after_the_maximum() {
        assert_eq!(Exponential::default().delay(20, MOST), Duration::from_secs(90));
        assert_eq!(Exponential::default().delay(20, LEAST), Duration::from_secs(30));
    }

    proptest! {
        /// Rules: O-389.
        #[test]
        fn the_spread_is_between_half_and_one_and_a_half(attempt in 0_u32..200, unit in 0.0_f64..=1.0) {
            let policy = Exponential::default();
            let plain = policy.delay(attempt, Jitter::NONE);
            let spread = policy.delay(attempt, Jitter::new(unit));
            prop_assert!(spread >= plain.mul_f64(0.5) && spread <= plain.mul_f64(1.5));
            let drawn = policy.delay(attempt, Jitter::random());
            prop_assert!(drawn >= plain.mul_f64(0.5) && drawn <= plain.mul_f64(1.5));
        }
    }

    #[test]
    fn random_draws_differ_and_odd_ones_are_cut_to_the_range() {
        assert!((0..100).map(|_| Jitter::random().0).any(|unit| unit < 0.5));
        assert!((0..100).map(|_| Jitter::random().0).any(|unit| unit > 0.5));
        assert_eq!((Jitter::new(-3.0), Jitter::new(8.0), Jitter::new(f64::NAN)), (LEAST, MOST, Jitter::NONE));
    }

    #[test]
    fn the_last_try_buries_whatever_the_failure_says() {
        let retry = Retry { max_attempts: 2, ..Retry::default() };
        let later = Failure::retry_after(Duration::from_secs(7));
        let seven = Decision::Retry { after: Duration::from_secs(7) };
        assert_eq!(retry.decide(1, &later, Jitter::NONE), seven);
        assert_eq!(retry.decide(2, &later, Jitter::NONE), Decision::Bury);
        assert_eq!(retry.decide(1, &Failure::permanent("schema", "bad"), Jitter::NONE), Decision::Bury);
    }
}
