//! Columns that carry no time zone: which one their moments are in, and the connections that translate.

use std::fmt;
use std::ops::DerefMut;
use std::sync::Arc;

use chrono::TimeDelta;

use crate::connection::{Connection, Connections, Kind, Transaction};
use crate::statement::{Statement, Value};
use crate::store::At;
use crate::{BoxFuture, Error};

/// The zone that a table's moments are in, where its columns carry none: `DATETIME` on MySQL, `TIMESTAMP` on
/// PostgreSQL. A fixed distance from UTC: where clocks are set back, an hour comes twice, and no table could tell
/// its rows apart.
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

/// A connection, or a source of them, to a table in a zone. Moments are in UTC on this side of it, and in the
/// table's zone on the other.
pub(crate) struct Zoned<C> {
    pub(crate) inner: C,
    pub(crate) zone: TimeZone,
}

impl<C> Zoned<C> {
    /// The statement as the table understands it.
    fn told(&self, statement: &Statement) -> Statement {
        statement.with_values(|value| moved(value, self.zone.ahead()))
    }

    /// Rows as everybody else understands them.
    fn understood(&self, rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
        let row = |row: Vec<Value>| row.into_iter().map(|value| moved(value, -self.zone.ahead())).collect();
        rows.into_iter().map(row).collect()
    }
}

fn moved(value: Value, by: TimeDelta) -> Value {
    match value {
        // A moment at the end of the calendar stays there.
        Value::Time(Some(moment)) => Value::Time(Some(moment.checked_add_signed(by).unwrap_or(moment))),
        other => other,
    }
}

impl<C> Connection for Zoned<C>
where
    C: DerefMut<Target: Connection> + Send,
{
    fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        if self.zone.is_utc() {
            return self.inner.execute(statement);
        }
        Box::pin(async move {
            let statement = self.told(statement);
            self.inner.execute(&statement).await
        })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Kind],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        if self.zone.is_utc() {
            return self.inner.fetch(statement, columns);
        }
        Box::pin(async move {
            let statement = self.told(statement);
            let rows = self.inner.fetch(&statement, columns).await?;
            Ok(self.understood(rows))
        })
    }
}

impl Connections for Zoned<Arc<dyn Connections>> {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection + '_>, Error>> {
        Box::pin(async {
            let inner = self.inner.connection().await?;
            Ok(Box::new(Zoned { inner, zone: self.zone }) as Box<dyn Connection>)
        })
    }

    fn transaction(&self, begin: &'static str) -> BoxFuture<'_, Result<Box<dyn Transaction + '_>, Error>> {
        Box::pin(async move {
            let inner = self.inner.transaction(begin).await?;
            Ok(Box::new(Zoned { inner, zone: self.zone }) as Box<dyn Transaction>)
        })
    }
}

impl Transaction for Zoned<Box<dyn Transaction + '_>> {
    fn commit<'a>(self: Box<Self>) -> BoxFuture<'a, Result<(), Error>>
    where
        Self: 'a,
    {
        self.inner.commit()
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

    #[test]
    fn moments_are_moved_and_everything_else_stays() {
        let hours = TimeDelta::hours(2);
        let moment = |text: &str| Value::Time(Some(text.parse().unwrap()));
        assert_eq!(moved(moment("2030-01-31T23:00:00Z"), hours), moment("2030-02-01T01:00:00Z"));
        for same in [
            Value::Time(None),
            Value::Int(Some(7)),
            "7".into(),
            Value::Time(Some(chrono::DateTime::<chrono::Utc>::MAX_UTC)),
        ] {
            assert_eq!(moved(same.clone(), hours), same);
        }
    }
}
