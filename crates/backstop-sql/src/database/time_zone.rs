//! Columns that carry no time zone, and which zone their moments are in.

use std::fmt;

use chrono::TimeDelta;

use super::At;
use crate::Error;

/// The time zone of a table's columns, if they carry none: `DATETIME` on MySQL, `TIMESTAMP` on PostgreSQL. A fixed
/// distance from UTC: when clocks are set back, an hour comes twice, and its rows could not be told apart.
///
/// ```
/// use backstop_sql::TimeZone;
///
/// assert_eq!(TimeZone::default().to_string(), "UTC");
/// assert_eq!(TimeZone::new("+02:00")?.to_string(), "+02:00");
/// assert_eq!(TimeZone::new("+00:00")?, TimeZone::default());
/// assert!(TimeZone::new("Europe/Berlin").is_err());
/// # Ok::<(), backstop_sql::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TimeZone {
    /// How far its clocks are ahead of UTC.
    minutes: i32,
}

impl TimeZone {
    /// No clock on Earth is further from UTC.
    const FURTHEST_MINUTES: i32 = 14 * 60;

    /// `UTC`, or hours and minutes ahead of it (`+02:00`) or behind it (`-05:30`).
    pub fn new(text: &str) -> Result<Self, Error> {
        let minutes = if text == "UTC" { Some(0) } else { minutes(text) };
        let known = minutes.filter(|minutes| minutes.abs() <= Self::FURTHEST_MINUTES);
        known.map(|minutes| Self { minutes }).ok_or_else(|| Error::TimeZone(text.to_owned()))
    }

    pub(crate) fn is_utc(self) -> bool {
        self.minutes == 0
    }

    /// How far its clocks are ahead of UTC.
    pub(crate) fn ahead(self) -> TimeDelta {
        TimeDelta::minutes(self.minutes.into())
    }

    /// What is to be added to a moment in a statement's text: the database's clock is asked in UTC. Moments that are
    /// bound are translated on their way.
    pub(crate) fn ahead_of(self, at: At) -> TimeDelta {
        match at {
            At::Database => self.ahead(),
            At::Instant(_) => TimeDelta::zero(),
        }
    }
}

fn minutes(text: &str) -> Option<i32> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two_digits = |part: &str| {
        let plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<i32>().ok()).flatten()
    };
    let minutes = two_digits(minutes).filter(|minutes| *minutes < 60)?;
    Some(sign * (two_digits(hours)? * 60 + minutes))
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, minutes) = (if self.minutes < 0 { '-' } else { '+' }, self.minutes.abs());
        match minutes {
            0 => f.write_str("UTC"),
            _ => write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utc_and_fixed_distances_from_it_are_zones() {
        for (text, minutes, shown) in [
            ("UTC", 0, "UTC"),
            ("+00:00", 0, "UTC"),
            ("-00:00", 0, "UTC"),
            ("+02:00", 120, "+02:00"),
            ("-05:30", -330, "-05:30"),
            ("-00:30", -30, "-00:30"),
            ("+14:00", 840, "+14:00"),
        ] {
            let zone = TimeZone::new(text).unwrap();
            assert_eq!(
                (zone.ahead(), zone.to_string()),
                (TimeDelta::minutes(minutes), shown.to_owned()),
                "{text}"
            );
        }
        for wrong in [
            "",
            "utc",
            "Z",
            "+2",
            "+02",
            "02:00",
            "+2:00",
            "+02:60",
            "+14:01",
            "+99:00",
            "++2:00",
            "+02:0é",
            "é",
            "Europe/Berlin",
            "SYSTEM",
        ] {
            let error = TimeZone::new(wrong).unwrap_err();
            assert!(matches!(&error, Error::TimeZone(text) if text == wrong), "{wrong}: {error}");
        }
    }
}
