//! Who takes part. Those of one run take turns, each on a fresh database.

use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::options::Options;
use crate::processor;
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
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.events) / self.took.as_secs_f64()
    }
}

/// The database's own time is not in it.
const PROCESSOR: &str = "processor time of the client for each event";

/// One round: each contender that is wanted once, one after the other. The processor time of one group is told too.
pub(crate) async fn drain_all<Part>(
    all: &[Contender<Part>],
    options: &Options<Part>,
    processor_of: Option<&str>,
    round: usize,
    report: &mut Report,
) -> Result<()>
where
    Part: ValueEnum + Copy + PartialEq + Send + Sync,
{
    let mut used = Vec::new();
    for contender in all.iter().filter(|contender| options.wants(contender)) {
        let used_before = processor::used();
        let drained = (contender.run)(options.events).await?;
        let rate = drained.rate();
        eprintln!("round {round}: {}: {} events/s", contender.name, thousands(rate));
        report.add(contender.group, contender.name, Unit::EventsPerSecond, contender.against, rate);
        if let (Some(before), Some(after)) = (used_before, processor::used())
            && processor_of == Some(contender.group)
        {
            let each = (after - before).as_secs_f64() * 1e6 / f64::from(drained.events);
            eprintln!("round {round}: {}: {each:.1} µs of processor time each", contender.name);
            used.push((format!("processor time: {}", contender.name), each));
        }
    }
    for (name, each) in used {
        report.add(PROCESSOR, &name, Unit::Microseconds, None, each);
    }
    Ok(())
}
