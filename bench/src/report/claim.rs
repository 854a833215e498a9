//! A target, what was measured against it, and whether that decides it.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeStruct;

use super::{TOO_WIDE, median, show_spread, spread};

/// What is claimed, with what each round showed.
pub(crate) struct Claim {
    pub(crate) text: String,
    /// What the values are counted in; empty for a ratio.
    pub(crate) unit: &'static str,
    pub(crate) bound: Bound,
    pub(crate) values: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Under(f64),
}

#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Met,
    Missed,
    #[serde(rename = "too wide to decide")]
    TooWide,
}

impl Claim {
    pub(super) fn median(&self) -> f64 {
        median(&self.values)
    }

    /// The median decides, unless the rounds are far apart and some of them say the opposite.
    pub(super) fn verdict(&self) -> Verdict {
        let met = self.values.iter().filter(|value| self.bound.holds(**value)).count();
        let disagree = met > 0 && met < self.values.len();
        if disagree && spread(&self.values).is_some_and(|spread| spread > TOO_WIDE) {
            Verdict::TooWide
        } else if self.bound.holds(self.median()) {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }

    pub(super) fn measured(&self) -> String {
        format!("{}{}", digits(self.median()), self.unit())
    }

    pub(super) fn target(&self) -> String {
        format!("{}{}", self.bound, self.unit())
    }

    pub(super) fn spread(&self) -> String {
        show_spread(&self.values)
    }

    fn unit(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (measured, target, spread) = (self.measured(), self.target(), self.spread());
        let verdict = self.verdict();
        write!(f, "claim: {} = {measured} (target {target}, spread {spread}): {verdict}", self.text)
    }
}

impl Serialize for Claim {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut claim = serializer.serialize_struct("Claim", 7)?;
        claim.serialize_field("text", &self.text)?;
        claim.serialize_field("unit", self.unit)?;
        claim.serialize_field("target", &self.bound.to_string())?;
        claim.serialize_field("measured", &self.median())?;
        claim.serialize_field("spread", &spread(&self.values))?;
        claim.serialize_field("verdict", &self.verdict())?;
        claim.serialize_field("values", &self.values)?;
        claim.end()
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::Under(bound) => value < bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {}", digits(*bound)),
            Self::AtMost(bound) => write!(f, "≤ {}", digits(*bound)),
            Self::Under(bound) => write!(f, "< {}", digits(*bound)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::TooWide => "too wide to decide",
        })
    }
}

/// As many digits as tell two figures of that size apart.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(bound: Bound, values: &[f64]) -> Verdict {
        Claim { text: String::new(), unit: "", bound, values: values.to_vec() }.verdict()
    }

    #[test]
    fn the_median_decides_while_the_rounds_are_close_or_agree() {
        assert_eq!(verdict(Bound::AtLeast(0.8), &[0.79, 0.82, 0.83]), Verdict::Met);
        assert_eq!(verdict(Bound::AtLeast(0.8), &[0.9, 1.5, 3.0]), Verdict::Met);
        assert_eq!(verdict(Bound::Under(2.0), &[2.5, 9.0, 40.0]), Verdict::Missed);
    }

    #[test]
    fn rounds_far_apart_that_disagree_decide_nothing() {
        assert_eq!(verdict(Bound::AtLeast(0.8), &[0.6, 0.85, 0.9]), Verdict::TooWide);
    }
}
