//! The figures: medians with their spread, and whether the targets are met.

mod claim;
mod markdown;
mod text;

use serde::Serialize;
use serde::ser::SerializeStruct;

use crate::machine::Machine;
pub(crate) use claim::{Bound, Claim};
pub(crate) use markdown::Markdown;

/// A spread wider than this says more about the machine than about what was measured.
const TOO_WIDE: f64 = 0.25;

#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) events: u32,
    pub(crate) rounds: usize,
    pub(crate) machine: Machine,
    pub(crate) series: Vec<Series>,
    pub(crate) claims: Vec<Claim>,
}

#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    #[serde(rename = "events/s")]
    EventsPerSecond,
    #[serde(rename = "commits/s")]
    CommitsPerSecond,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "µs")]
    Microseconds,
    #[serde(rename = "rows/s")]
    RowsPerSecond,
    #[serde(rename = "MB/min")]
    MegabytesPerMinute,
}

/// What one contender showed, a value per round.
pub(crate) struct Series {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// The contender that this one is held against.
    pub(crate) against: Option<&'static str>,
    pub(crate) values: Vec<f64>,
}

impl Report {
    pub(crate) fn add(
        &mut self,
        group: &'static str,
        name: &str,
        unit: Unit,
        against: Option<&'static str>,
        value: f64,
    ) {
        match self.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.values.push(value),
            None => {
                let name = name.to_owned();
                self.series.push(Series { group, name, unit, against, values: vec![value] });
            }
        }
    }

    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// The ratio of two contenders in each round: what slowed both down at the time cancels out.
    pub(crate) fn ratios(&self, of: &str, to: &str) -> Option<Vec<f64>> {
        self.pairs(of, to, |of, to| of / to)
    }

    /// How far two contenders are apart in each round.
    pub(crate) fn differences(&self, of: &str, to: &str) -> Option<Vec<f64>> {
        self.pairs(of, to, |of, to| of - to)
    }

    fn pairs(&self, of: &str, to: &str, with: fn(f64, f64) -> f64) -> Option<Vec<f64>> {
        let (of, to) = (self.series(of)?, self.series(to)?);
        Some(of.values.iter().zip(&to.values).map(|(of, to)| with(*of, *to)).collect())
    }

    fn against(&self, series: &Series) -> Option<(f64, &'static str)> {
        let against = series.against?;
        Some((median(&self.ratios(&series.name, against)?), against))
    }
}

impl Series {
    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }

    fn is_too_wide(&self) -> bool {
        spread(&self.values).is_some_and(|spread| spread > TOO_WIDE)
    }
}

/// With what follows from the values, so that a reader of the JSON need not work it out.
impl Serialize for Series {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut series = serializer.serialize_struct("Series", 7)?;
        series.serialize_field("group", self.group)?;
        series.serialize_field("name", &self.name)?;
        series.serialize_field("unit", &self.unit)?;
        series.serialize_field("against", &self.against)?;
        series.serialize_field("median", &self.median())?;
        series.serialize_field("spread", &spread(&self.values))?;
        series.serialize_field("values", &self.values)?;
        series.end()
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::EventsPerSecond => "events/s",
            Self::CommitsPerSecond => "commits/s",
            Self::Milliseconds => "ms",
            Self::Mebibytes => "MiB",
            Self::Microseconds => "µs",
            Self::RowsPerSecond => "rows/s",
            Self::MegabytesPerMinute => "MB/min",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::EventsPerSecond | Self::CommitsPerSecond => thousands(value),
            Self::Milliseconds | Self::RowsPerSecond | Self::MegabytesPerMinute => format!("{value:.3}"),
            Self::Mebibytes | Self::Microseconds => format!("{value:.1}"),
        }
    }
}

/// `1,234,567`
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// How far apart the values are, as a share of the median; none if there is only one.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    Some((most - least) / median(values).abs().max(f64::MIN_POSITIVE))
}

fn show_spread(values: &[f64]) -> String {
    spread(values).map_or_else(|| "–".to_owned(), |spread| format!("{:.0} %", spread * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_values_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn one_value_has_no_spread() {
        assert_eq!(spread(&[7.0]), None);
        assert_eq!(spread(&[8.0, 10.0, 12.0]), Some(0.4));
    }

    #[test]
    fn large_numbers_are_grouped_by_thousands() {
        assert_eq!(thousands(999.6), "1,000");
        assert_eq!(thousands(123.0), "123");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
    }
}
