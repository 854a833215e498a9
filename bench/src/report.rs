//! The figures: medians with their spread, and ratios against the first contender.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A spread wider than this says more about the machine than about the contender.
const TOO_WIDE: f64 = 0.25;

#[derive(Serialize)]
pub(crate) struct Table {
    events: u32,
    rows: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    rates: Vec<f64>,
}

impl Table {
    pub(crate) fn new(events: u32) -> Self {
        Self { events, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, took: Duration) {
        let rate = f64::from(self.events) / took.as_secs_f64();
        match self.rows.iter_mut().find(|line| line.name == name) {
            Some(line) => line.rates.push(rate),
            None => self.rows.push(Line { name: name.to_owned(), rates: vec![rate] }),
        }
    }
}

impl Line {
    fn median(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    /// How far apart the rates are, as a share of the median.
    fn spread(&self) -> f64 {
        let most = self.rates.iter().copied().fold(f64::MIN, f64::max);
        let least = self.rates.iter().copied().fold(f64::MAX, f64::min);
        (most - least) / self.median()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} events", self.events)?;
        writeln!(f, "{:<28} {:>12} {:>8}   against the raw loops", "contender", "events/s", "spread")?;
        let raw: Vec<_> = self.rows.iter().filter(|line| line.name.starts_with("raw")).collect();
        for line in &self.rows {
            let ratios = raw.iter().map(|raw| format!("{:.2} of {}", line.median() / raw.median(), raw.name));
            let ratios: Vec<_> = ratios.collect();
            let wide = if line.spread() > TOO_WIDE { "  (spread too wide to decide)" } else { "" };
            let (median, spread) = (line.median(), line.spread() * 100.0);
            writeln!(f, "{:<28} {median:>12.0} {spread:>7.0}%   {}{wide}", line.name, ratios.join(", "))?;
        }
        Ok(())
    }
}
