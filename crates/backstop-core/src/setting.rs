//! Settings that cannot be used: all faults are gathered and reported at once.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One setting that cannot be used, and the rule it breaks. It never quotes a secret.
///
/// ```
/// use backstop_core::setting::Faults;
///
/// let mut faults = Faults::default();
/// faults.add("topic", "must not be empty");
/// let faults = faults.into_result().unwrap_err();
/// assert_eq!(faults[0].to_string(), "topic must not be empty");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFault {
    /// The group it is in, such as `breaker`; empty for a setting of the component itself.
    pub group: String,
    /// The setting, by its key or by the name of its method.
    pub setting: &'static str,
    /// The rule, worded to follow the setting: "must not be empty".
    pub rule: String,
}

impl SettingFault {
    /// The setting with its groups, such as `breaker.consecutive-failures`.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            self.setting.to_owned()
        } else {
            format!("{}.{}", self.group, self.setting)
        }
    }
}

impl fmt::Display for SettingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path(), self.rule)
    }
}

/// The faults found so far. Rules that many settings have are worded here, once.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::setting::{self, Faults};
///
/// let mut faults = Faults::default();
/// faults.at_least_one("workers", 0_usize);
/// faults.within("timeout", Duration::ZERO, Duration::from_millis(1)..=Duration::from_secs(60));
/// let told = setting::list(&faults.into_vec());
/// assert_eq!(told, "workers must be at least 1; timeout must be between 1 ms and 1 min");
/// ```
#[derive(Debug, Default)]
pub struct Faults(Vec<SettingFault>);

impl Faults {
    /// Notes a rule that a setting breaks.
    pub fn add(&mut self, setting: &'static str, rule: impl Into<String>) {
        self.0.push(SettingFault { group: String::new(), setting, rule: rule.into() });
    }

    /// Notes the faults of a group of settings under its name.
    pub fn under(&mut self, group: &str, check: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        check(self);
        for fault in &mut self.0[before..] {
            let dot = if fault.group.is_empty() { "" } else { "." };
            fault.group = format!("{group}{dot}{}", fault.group);
        }
    }

    /// A number that must not be zero.
    pub fn at_least_one<N: Quantity + From<u8>>(&mut self, setting: &'static str, value: N) {
        self.at_least(setting, value, N::from(1));
    }

    /// A time that must not be zero, however short it is.
    pub fn longer_than_zero(&mut self, setting: &'static str, value: Duration) {
        if value.is_zero() {
            self.add(setting, "must be longer than zero");
        }
    }

    /// A number or a time that must not be below a bound.
    pub fn at_least<Q: Quantity>(&mut self, setting: &'static str, value: Q, least: Q) {
        if value < least {
            self.add(setting, format!("must be at least {}", least.told()));
        }
    }

    /// A number or a time that must not be above a bound.
    pub fn at_most<Q: Quantity>(&mut self, setting: &'static str, value: Q, most: Q) {
        if value > most {
            self.add(setting, format!("must be at most {}", most.told()));
        }
    }

    /// A number or a time with both bounds.
    pub fn within<Q: Quantity>(&mut self, setting: &'static str, value: Q, range: RangeInclusive<Q>) {
        if !range.contains(&value) {
            let (least, most) = range.into_inner();
            self.add(setting, format!("must be between {} and {}", least.told(), most.told()));
        }
    }

    /// Keeps the value, or notes the rule it breaks.
    pub fn keep<T>(&mut self, setting: &'static str, value: Result<T, String>) -> Option<T> {
        value.map_err(|rule| self.add(setting, rule)).ok()
    }

    /// Whether none was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<SettingFault> {
        self.0
    }

    /// `Ok` if there are none, or all of them.
    pub fn into_result(self) -> Result<(), Vec<SettingFault>> {
        if self.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// All faults in one line.
pub fn list(faults: &[SettingFault]) -> String {
    let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
    told.join("; ")
}

/// What has bounds: a number or a time.
pub trait Quantity: Copy + PartialOrd {
    /// As an operator would write it.
    fn told(self) -> String;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Quantity for $number {
            fn told(self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers!(u32, u64, usize);

/// In the largest unit of which it is a whole number.
impl Quantity for Duration {
    fn told(self) -> String {
        let nanos = self.as_nanos();
        let units = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
        let mut whole = units.into_iter().map(|(millis, name)| (millis * 1_000_000, name));
        match whole.find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(*unit)) {
            Some((unit, "days")) if nanos == unit => "1 day".to_owned(),
            Some((unit, name)) => format!("{} {name}", nanos / unit),
            None => format!("{self:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(check: impl FnOnce(&mut Faults)) -> String {
        let mut faults = Faults::default();
        check(&mut faults);
        list(&faults.into_vec())
    }

    #[test]
    fn a_bound_itself_is_allowed_and_what_is_beyond_it_is_not() {
        assert_eq!(told(|it| it.at_least_one("a", 1_u32)), "");
        assert_eq!(told(|it| it.at_least_one("a", 0_usize)), "a must be at least 1");
        assert_eq!(told(|it| it.at_least("a", 8_usize, 8)), "");
        assert_eq!(told(|it| it.at_least("a", 7_usize, 8)), "a must be at least 8");
        assert_eq!(told(|it| it.at_most("a", 8_u64, 8)), "");
        assert_eq!(told(|it| it.at_most("a", 9_u64, 8)), "a must be at most 8");
        for value in [1_u32, 3] {
            assert_eq!(told(|it| it.within("a", value, 1..=3)), "");
        }
        for value in [0_u32, 4] {
            assert_eq!(told(|it| it.within("a", value, 1..=3)), "a must be between 1 and 3");
        }
    }

    #[test]
    fn the_shortest_time_is_longer_than_zero() {
        assert_eq!(told(|it| it.longer_than_zero("a", Duration::from_nanos(1))), "");
        assert_eq!(told(|it| it.longer_than_zero("a", Duration::ZERO)), "a must be longer than zero");
    }

    #[test]
    fn a_time_is_told_in_its_largest_whole_unit() {
        let told = [1, 1_500, 90_000, 7_200_000, 86_400_000, 31_536_000_000]
            .map(|millis| Duration::from_millis(millis).told());
        assert_eq!(told, ["1 ms", "1500 ms", "90 s", "2 h", "1 day", "365 days"]);
        assert_eq!(Duration::from_micros(20).told(), "20µs");
        assert_eq!(Duration::ZERO.told(), "0ns");
    }
}
