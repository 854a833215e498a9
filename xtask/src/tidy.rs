//! `cargo xtask tidy`: the rules of the house that no compiler checks.

mod arrows;
mod code_map;
mod glossary;
mod links;
mod mirrors;
mod references;
mod sources;
mod tours;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::conformance::Conformance;
use crate::fault::Fault;
use crate::manifest;
use crate::say::say;
use crate::source;
use crate::workspace::Workspace;

/// How the house is tidied.
#[derive(Args)]
pub(crate) struct Options {
    /// Rewrite what can be derived from the code, in place of complaining about it
    #[arg(long)]
    fix: bool,
}

/// What the checks found: faults, which must be put right, and warnings, which may wait.
#[derive(Default)]
struct Findings {
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut findings = Findings::default();
    let sources = source::all(workspace)?;
    let crates = manifest::packages(workspace.root())?;
    let crates: Vec<_> =
        crates.into_iter().filter(|package| package.is_in(&workspace.path("crates"))).collect();
    sources::check(&sources, &mut findings);
    findings.faults.extend(mirrors::check(workspace)?);
    findings.faults.extend(arrows::check(workspace, &crates));
    findings.faults.extend(code_map::check(workspace, &crates)?);
    findings.faults.extend(glossary::check(workspace, &sources)?);
    findings.faults.extend(links::check(workspace)?);
    findings.faults.extend(tours::check(workspace, &sources)?);
    findings.faults.extend(references::check(workspace, options.fix)?);
    let conformance = Conformance::read(workspace, &sources)?;
    findings.faults.extend(conformance.faults());
    findings.warnings.extend(conformance.warnings());
    Ok(findings.report())
}

impl Findings {
    fn report(mut self) -> ExitCode {
        self.faults.sort();
        for warning in &self.warnings {
            say!("warning: {warning}");
        }
        for fault in &self.faults {
            say!("{fault}");
        }
        match self.faults.len() {
            0 => say!("tidy"),
            1 => say!("1 thing is out of order"),
            many => say!("{many} things are out of order"),
        }
        if self.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
