//! The kinds of values that settings have: what is accepted, and what is said of everything else.

use std::time::Duration;

use serde_json::{Value, json};

/// The longest time that a setting accepts unless it says otherwise: ten years.
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);
const SHORTEST: Duration = Duration::from_millis(1);

/// What kind of value a key has.
#[derive(Debug, Clone, Copy)]
pub enum ValueKind {
    /// Any text that is not empty.
    Text,
    /// A short name of lowercase letters, digits and dashes.
    Name,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Number {
        /// The least that is accepted.
        min: u64,
        /// The most; `u64::MAX` for no bound.
        max: u64,
    },
    /// A percentage, above 0 and up to 100.
    Percent,
    /// A time within bounds.
    Time {
        /// What a number without a unit counts.
        plain: Plain,
        /// The shortest that is accepted.
        min: Duration,
        /// The longest that is accepted.
        max: Duration,
    },
    /// Something secret: never shown, and kept outside of the settings file.
    Secret,
    /// A kind that only the crate that uses it understands, such as the URL of a database.
    Parsed(&'static Parsed),
}

/// A kind that a crate gives itself.
#[derive(Debug)]
pub struct Parsed {
    /// The kind in a word, for the reference: "table name".
    pub word: &'static str,
    /// What is accepted, worded to follow "must be".
    pub rule: &'static str,
    /// Whether no message may repeat a value, and it may be kept elsewhere (`env:NAME`, `file:PATH`).
    pub secret: bool,
    /// The rule that a text breaks, worded to follow the key: "must be …". It repeats nothing that may be secret.
    pub check: fn(&str) -> Result<(), String>,
}

/// What a number without a unit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Milliseconds, for keys that end in `-ms`.
    Milliseconds,
    /// Seconds, for keys that end in `-seconds`.
    Seconds,
    /// It could be anything, so a unit is needed.
    Nothing,
}

impl ValueKind {
    /// A number that is not zero, up to a million.
    pub const AT_LEAST_ONE: Self = Self::Number { min: 1, max: 1_000_000 };
    /// A time with its unit, not zero.
    pub const TIME: Self = Self::time(SHORTEST, LONGEST);
    /// A time with its unit; zero is one.
    pub const TIME_OR_ZERO: Self = Self::time(Duration::ZERO, LONGEST);
    /// A time; a number alone is in milliseconds.
    pub const MILLIS: Self = Self::Time { plain: Plain::Milliseconds, min: SHORTEST, max: LONGEST };
    /// A time; a number alone is in milliseconds, and zero is one.
    pub const MILLIS_OR_ZERO: Self =
        Self::Time { plain: Plain::Milliseconds, min: Duration::ZERO, max: LONGEST };
    /// A time; a number alone is in seconds.
    pub const SECONDS: Self = Self::Time { plain: Plain::Seconds, min: SHORTEST, max: LONGEST };

    /// A time with its unit, within bounds.
    pub const fn time(min: Duration, max: Duration) -> Self {
        Self::Time { plain: Plain::Nothing, min, max }
    }

    /// Whether the value is a secret: no message may repeat it, and it may be kept elsewhere.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Parsed(Parsed { secret: true, .. }))
    }

    /// The words of which one is meant, if only some are accepted.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Choice(words) => words,
            Self::Flag => &["true", "false"],
            _ => &[],
        }
    }

    /// The value that a text stands for, or the rule it breaks, worded to follow the key. Times come as `1500ms`.
    pub fn read(self, text: &str) -> Result<Value, String> {
        let read = match self {
            Self::Text | Self::Secret => (!text.is_empty()).then(|| json!(text)),
            Self::Name => is_name(text).then(|| json!(text)),
            Self::Choice(words) => words.contains(&text).then(|| json!(text)),
            Self::Flag => text.parse::<bool>().ok().map(Value::from),
            Self::Number { min, max } => {
                text.parse::<u64>().ok().filter(|number| (min..=max).contains(number)).map(Value::from)
            }
            Self::Percent => text.parse::<f64>().ok().filter(|share| is_percent(*share)).map(Value::from),
            Self::Time { plain, min, max } => millis(text, plain)
                .filter(|time| (min..=max).contains(&Duration::from_millis(*time)))
                .map(|time| json!(format!("{time}ms"))),
            Self::Parsed(Parsed { check, .. }) => {
                return check(text).map(|()| json!(text)).map_err(|rule| rule + &self.shown(text));
            }
        };
        read.ok_or_else(|| self.refusal(text))
    }

    fn refusal(self, text: &str) -> String {
        let unit = match self {
            Self::Time { plain: Plain::Nothing, .. } => "; a number alone has no unit",
            Self::Time { plain: Plain::Milliseconds, .. } => "; a number alone is in milliseconds",
            Self::Time { plain: Plain::Seconds, .. } => "; a number alone is in seconds",
            _ => "",
        };
        format!("must be {}{}{unit}", self.rule(), self.shown(text))
    }

    /// A wrong value, to be put after the rule, if it may be shown. Somebody may have written a URL with its password
    /// anywhere.
    fn shown(self, text: &str) -> String {
        let looks_secret = text.contains('@')
            || ["whsec_", "bst_", "env:", "file:"].iter().any(|begin| text.starts_with(begin));
        let may_show = !self.is_secret() && !looks_secret && (1..=80).contains(&text.chars().count());
        if may_show { format!(", not `{text}`") } else { String::new() }
    }

    /// What is accepted, worded to follow "must be".
    pub fn rule(self) -> String {
        match self {
            Self::Text => "a text that is not empty".to_owned(),
            Self::Name => "a name of at most 40 lowercase letters, digits and dashes".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Flag => "true or false".to_owned(),
            Self::Number { min, max: u64::MAX } => format!("a whole number of at least {min}"),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Percent => "a percentage above 0 and up to 100, such as 50".to_owned(),
            Self::Time { min, max, .. } => {
                let (min, max) = (written(min), written(max));
                format!("a time from {min} to {max} such as 500ms, 10s, 5m, 1h or 7d")
            }
            Self::Secret => "env:NAME or file:PATH".to_owned(),
            Self::Parsed(Parsed { rule, .. }) => (*rule).to_owned(),
        }
    }

    /// The kind in a word, for the reference.
    pub fn word(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Choice(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            Self::Flag => "`true`, `false`".to_owned(),
            Self::Number { .. } => "number".to_owned(),
            Self::Percent => "percent".to_owned(),
            Self::Time { plain: Plain::Milliseconds, .. } => "time, or milliseconds".to_owned(),
            Self::Time { plain: Plain::Seconds, .. } => "time, or seconds".to_owned(),
            Self::Time { plain: Plain::Nothing, .. } => "time".to_owned(),
            Self::Secret => "where the secret is kept".to_owned(),
            Self::Parsed(Parsed { word, .. }) => (*word).to_owned(),
        }
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

pub(super) fn is_percent(share: f64) -> bool {
    share > 0.0 && share <= 100.0
}

/// A time as it is written with its unit, in milliseconds.
pub(super) fn millis(text: &str, plain: Plain) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match (unit, plain) {
        ("ms", _) | ("", Plain::Milliseconds) => 1,
        ("s", _) | ("", Plain::Seconds) => 1_000,
        ("m", _) => 60_000,
        ("h", _) => 3_600_000,
        ("d", _) => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A time as a settings file writes it, in the largest unit of which it is a whole number.
pub(super) fn written(time: Duration) -> String {
    let millis = time.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.into_iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{millis}ms"), |(unit, name)| format!("{}{name}", millis / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: ValueKind = ValueKind::MILLIS;
    const TIME: ValueKind = ValueKind::TIME_OR_ZERO;

    #[test]
    fn times_have_units_and_the_names_that_end_in_one_need_none() {
        for (kind, text, millis) in [
            (MS, "200", 200),
            (MS, "2s", 2_000),
            (ValueKind::SECONDS, "90", 90_000),
            (TIME, "7d", 604_800_000),
            (TIME, "0ms", 0),
            (TIME, "5m", 300_000),
            (TIME, "1h", 3_600_000),
        ] {
            assert_eq!(kind.read(text), Ok(json!(format!("{millis}ms"))), "{text}");
        }
        for (kind, text) in [
            (MS, "0"),
            (MS, "-1"),
            (MS, "1.5s"),
            (MS, "1 s"),
            (MS, "s"),
            (TIME, "300"),
            (TIME, "99999d"),
            (TIME, "1y"),
            (TIME, "18446744073709551615d"),
        ] {
            assert!(kind.read(text).is_err(), "{text}");
        }
        assert_eq!(
            TIME.read("300").unwrap_err(),
            "must be a time from 0s to 3650d such as 500ms, 10s, 5m, 1h or 7d, not `300`; a number alone has no unit"
        );
    }

    #[test]
    fn a_bound_itself_is_accepted_and_what_is_beyond_it_is_not() {
        let day = ValueKind::time(Duration::from_millis(1), Duration::from_secs(86_400));
        assert!(["1ms", "1d", "24h"].iter().all(|time| day.read(time).is_ok()));
        assert!(["0ms", "2d", "86401s"].iter().all(|time| day.read(time).is_err()));
        let three = ValueKind::Number { min: 1, max: 3 };
        assert!(["1", "3"].iter().all(|number| three.read(number).is_ok()));
        assert!(["0", "4", "-1", "1.0", ""].iter().all(|number| three.read(number).is_err()));
        assert!(["0.5", "50", "100.0"].iter().all(|share| ValueKind::Percent.read(share).is_ok()));
        assert!(
            ["0", "-1", "100.1", "inf", "NaN"].iter().all(|share| ValueKind::Percent.read(share).is_err())
        );
    }

    #[test]
    fn a_time_is_written_in_its_largest_whole_unit() {
        let told = [0, 2, 1_500, 90_000, 7_200_000, 604_800_000].map(|ms| written(Duration::from_millis(ms)));
        assert_eq!(told, ["0s", "2ms", "1500ms", "90s", "2h", "7d"]);
    }

    #[test]
    fn a_wrong_value_is_repeated_unless_it_may_be_secret() {
        const HOST: ValueKind = ValueKind::Parsed(&Parsed {
            word: "host",
            rule: "a host",
            secret: false,
            check: |text| if text == "h" { Ok(()) } else { Err("must be a host".to_owned()) },
        });
        assert_eq!(HOST.read("h"), Ok(json!("h")));
        assert_eq!(HOST.read("x").unwrap_err(), "must be a host, not `x`");
        for (kind, wrong) in [
            (HOST, "http://u:tiger@h"),
            (HOST, "whsec_tiger"),
            (HOST, "file:tiger"),
            (HOST, "bst_tiger"),
            (ValueKind::Flag, "env:tiger"),
        ] {
            let said = kind.read(wrong).unwrap_err();
            assert!(!said.contains("tiger"), "{said}");
        }
    }

    #[test]
    fn names_are_looked_at() {
        assert!(["a", "orders-2"].iter().all(|name| is_name(name)));
        assert!(!["", "-a", "A", "a b", "a_b", &"a".repeat(41)].iter().any(|name| is_name(name)));
    }
}
