//! Who takes part. Those of one run take turns, each on a fresh database.

use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::options::Options;
use crate::report::{Report, Unit, thousands};

pub(crate) struct Contender<Part: 'static> {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    /// The parts that need it.
    pub(crate) parts: &'static [Part],
    pub(crate) against: Option<&'static str>,
    /// Drains a backlog of so many events, or fewer if it is slow and says so.
    pub(crate) run: fn(u32) -> Run,
}

pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Drained>>>>;

/// `contender!(name, group, parts, against, |events| drained)`
macro_rules! contender {
    ($name:expr, $group:expr, [$($part:expr),+], $against:expr, |$events:ident| $drained:expr) => {
        Contender {
            name: $name,
            group: $group,
            parts: &[$($part),+],
            against: $against,
            run: |$events| Box::pin($drained),
        }
    };
}

pub(crate) use contender;

/// Events that were delivered and written down, and how long it took.
pub(crate) struct Drained {
    pub(crate) events: u32,
    pub(crate) took: Duration,
}

impl Drained {
    fn rate(&self) -> f64 {
        f64::from(self.events) / self.took.as_secs_f64()
    }
}

/// One round: each contender that is wanted once, one after the other.
pub(crate) async fn drain_all<Part>(
    all: &[Contender<Part>],
    options: &Options<Part>,
    round: usize,
    report: &mut Report,
) -> Result<()>
where
    Part: ValueEnum + Copy + PartialEq + Send + Sync,
{
    for contender in all.iter().filter(|contender| options.wants(contender)) {
        let rate = (contender.run)(options.events).await?.rate();
        eprintln!("round {round}: {}: {} events/s", contender.name, thousands(rate));
        report.add(contender.group, contender.name, Unit::EventsPerSecond, contender.against, rate);
    }
    Ok(())
}
