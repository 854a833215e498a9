//! What every benchmark of a table is told on the command line.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::contender::Contender;
use crate::machine::Machine;
use crate::report::{Markdown, Report};

#[derive(Args)]
pub(crate) struct Options<Part: ValueEnum + Send + Sync + 'static> {
    /// How many events a backlog has.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) events: u32,
    /// How often everything is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Only contenders whose name contains this.
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// Only these parts. Defaults to all.
    #[arg(long = "part", value_name = "PART", num_args = 1.., value_delimiter = ',')]
    parts: Vec<Part>,
    /// How long events come in, in the part `latency`; the first second does not count.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u32,
    /// How long the target is away while its backlog is watched, in the part `outage` of the outbox.
    #[arg(long, default_value_t = 1)]
    pub(crate) minutes: u32,
    /// Where the figures are written as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Prints the section "The last run" of bench/README.md instead of a table.
    #[arg(long)]
    markdown: bool,
}

impl<Part: ValueEnum + Copy + PartialEq + Send + Sync> Options<Part> {
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(self.events >= 1_000, "fewer than 1000 events tell nothing");
        ensure!(self.rounds >= 1 && self.seconds >= 2 && self.minutes >= 1, "there is nothing to measure");
        Ok(())
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    pub(crate) fn wants(&self, contender: &Contender<Part>) -> bool {
        contender.parts.iter().any(|part| self.has(*part)) && contender.name.contains(&self.only)
    }

    /// A report without figures.
    pub(crate) fn report(&self, benchmark: &str) -> Report {
        Report {
            command: self.command(benchmark),
            events: self.events,
            rounds: self.rounds,
            machine: Machine::look(),
            series: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Prints a report as asked for.
    pub(crate) fn show(&self, report: &Report) -> Result<()> {
        match self.markdown {
            true => println!("{}", Markdown(report)),
            false => println!("{report}"),
        }
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_string_pretty(report)?)?;
        }
        Ok(())
    }

    /// How to measure the same again.
    fn command(&self, benchmark: &str) -> String {
        let mut command =
            format!("cargo xtask bench {benchmark} --events {} --rounds {}", self.events, self.rounds);
        let names = self.parts.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|part| part.get_name().to_owned()).collect();
        if !names.is_empty() {
            command += &format!(" --part {}", names.join(","));
        }
        if self.parts.is_empty() || names.iter().any(|name| name == "latency") {
            command += &format!(" --seconds {}", self.seconds);
        }
        if names.iter().any(|name| name == "outage") {
            command += &format!(" --minutes {}", self.minutes);
        }
        if !self.only.is_empty() {
            command += &format!(" --only '{}'", self.only);
        }
        command
    }
}
