//! The report for a terminal.

use std::fmt;

use super::{Report, show_spread, thousands};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} events, rounds: {}", thousands(f64::from(self.events)), self.rounds)?;
        let mut group = "";
        for series in &self.series {
            if series.group != group {
                group = series.group;
                writeln!(f, "\n{group:<52} {:>12} {:<10} {:>7}", "median", "", "spread")?;
            }
            let (median, unit) = (series.unit.show(series.median()), series.unit.name());
            let spread = show_spread(&series.values);
            write!(f, "  {:<50} {median:>12} {unit:<10} {spread:>7}", series.name)?;
            if let Some((ratio, against)) = self.against(series) {
                write!(f, "   {ratio:.2} of {against}")?;
            }
            writeln!(f, "{}", if series.is_too_wide() { "   (wide)" } else { "" })?;
        }
        writeln!(f)?;
        for claim in &self.claims {
            writeln!(f, "{claim}")?;
        }
        Ok(())
    }
}
