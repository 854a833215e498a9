//! The report as the section "The last run" of the README.

use std::fmt;

use super::{Report, Unit, show_spread};

pub(crate) struct Markdown<'a>(pub(crate) &'a Report);

impl fmt::Display for Markdown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        write_head(f, report)?;
        write_claims(f, report)?;
        write_series(f, report)
    }
}

fn write_head(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let machine = &report.machine;
    writeln!(f, "## The last run\n\n`{}`, medians of {} rounds, on\n", report.command, report.rounds)?;
    let processor = machine.processor.as_deref().unwrap_or("an unknown processor");
    writeln!(f, "- {} cores of {processor}, shared by client and servers", machine.cores)?;
    for (server, version) in &machine.servers {
        // "PostgreSQL 15.1 (Debian …) on x86_64 …": the compiler that built it does not matter here.
        let version = version.split(" on ").next().unwrap_or(version);
        writeln!(f, "- {server}: {version}")?;
    }
    if let Some(rustc) = &machine.rustc {
        writeln!(f, "- {}", rustc.split(" (").next().unwrap_or(rustc))?;
    }
    let settings: Vec<_> =
        machine.postgres_settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !settings.is_empty() {
        writeln!(f, "- PostgreSQL's settings: {}", settings.join(", "))?;
    }
    Ok(())
}

fn write_claims(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(f, "\n| claim | measured | spread | target | |\n|---|---|---|---|---|")?;
    for claim in &report.claims {
        let (measured, spread, target) = (claim.measured(), claim.spread(), claim.target());
        writeln!(f, "| {} | {measured} | {spread} | {target} | {} |", claim.text, claim.verdict())?;
    }
    Ok(())
}

fn write_series(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let mut group = "";
    for series in &report.series {
        if series.group != group {
            group = series.group;
            writeln!(f, "\n| {group} | median | spread | against |\n|---|---|---|---|")?;
        }
        let unit = if series.unit == Unit::EventsPerSecond { "/s" } else { series.unit.name() };
        let against = report.against(series);
        let against = against.map(|(ratio, against)| format!("{ratio:.2} of {against}")).unwrap_or_default();
        let wide = if series.is_too_wide() { ", wide" } else { "" };
        let (median, spread) = (series.unit.show(series.median()), show_spread(&series.values));
        writeln!(f, "| {} | {median} {unit} | {spread}{wide} | {against} |", series.name)?;
    }
    Ok(())
}
