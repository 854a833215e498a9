//! The outbox: which parts are measured, and in what order.

mod append;
mod claims;
mod contenders;
mod http;
mod kafka;
mod latency;
mod mariadb;
pub(crate) mod memory;
mod ours;
mod outage;
mod peers;
mod postgres;
mod raw;
mod raw_tokio_postgres;
mod schema;
mod snapshot;
mod sqlite;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::machine::Machine;
use crate::processor;
use crate::report::{Markdown, Report, Unit, thousands};

#[derive(Args)]
pub(crate) struct Options {
    /// How many events a backlog has; the part `memory` drains a twentieth of it and five times as many.
    #[arg(long, default_value_t = 200_000)]
    events: u32,
    /// How often everything is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only the contender of this name, or those whose names contain it.
    #[arg(long, default_value = "")]
    only: String,
    /// Only these parts. Defaults to all.
    #[arg(long = "part", value_name = "PART", num_args = 1.., value_delimiter = ',')]
    parts: Vec<Part>,
    /// How long commits come in, in the part `latency`; the first second does not count.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// How long the target is away while its backlog is watched, in the part `outage`.
    #[arg(long, default_value_t = 1)]
    minutes: u32,
    /// Where the figures are written as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Prints the section "The last run" of bench/README.md instead of a table.
    #[arg(long)]
    markdown: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Draining a backlog on PostgreSQL, against raw loops.
    Backlog,
    /// The same against other libraries.
    Peers,
    /// The same while a snapshot is open elsewhere.
    Snapshot,
    /// Raw loops on other schemas and with other statements.
    Schema,
    /// From commit to handler.
    Latency,
    /// What an append costs its transaction.
    Append,
    /// Resident memory by the size of the backlog.
    Memory,
    /// Draining a backlog on MariaDB or MySQL.
    Mariadb,
    /// Draining a backlog on SQLite.
    Sqlite,
    /// From PostgreSQL to Kafka, against claiming and producing by hand.
    Kafka,
    /// From PostgreSQL to a web server, against a client alone and a raw loop.
    Http,
    /// A backlog whose target is away, beside a route that flows, and what happens when the target is back.
    Outage,
}

/// Events that were delivered and written down, and how long it took.
struct Drained {
    events: u32,
    took: Duration,
}

impl Drained {
    fn rate(&self) -> f64 {
        f64::from(self.events) / self.took.as_secs_f64()
    }
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    ensure!(options.events >= 1_000, "fewer than 1000 events tell nothing");
    ensure!(
        options.rounds >= 1 && options.seconds >= 2 && options.minutes >= 1,
        "there is nothing to measure"
    );
    let mut report = Report {
        command: options.command(),
        events: options.events,
        rounds: options.rounds,
        machine: Machine::look(),
        series: Vec::new(),
        claims: Vec::new(),
    };
    look_at_servers(options, &mut report.machine).await?;
    for round in 1..=options.rounds {
        drain_all(options, round, &mut report).await?;
    }
    for round in 1..=options.rounds {
        measure_the_rest(options, round, &mut report).await?;
    }
    report.claims = claims::of(&report);
    match options.markdown {
        true => println!("{}", Markdown(&report)),
        false => println!("{report}"),
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

/// One round: each contender once, on a fresh database, one after the other.
async fn drain_all(options: &Options, round: usize, report: &mut Report) -> Result<()> {
    let mut used = Vec::new();
    for contender in contenders::ALL.iter().filter(|contender| options.wants(contender)) {
        let used_before = processor::used();
        let drained = (contender.run)(options.events).await?;
        let rate = drained.rate();
        eprintln!("round {round}: {}: {} events/s", contender.name, thousands(rate));
        report.add(contender.group, contender.name, Unit::EventsPerSecond, contender.against, rate);
        if let (contenders::HTTP, Some(before), Some(after)) =
            (contender.group, used_before, processor::used())
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

/// The database's own time is not in it.
const PROCESSOR: &str = "processor time of the client for each event";

async fn measure_the_rest(options: &Options, round: usize, report: &mut Report) -> Result<()> {
    if options.has(Part::Latency) {
        latency::measure(options.seconds, &options.only, round, report).await?;
    }
    if options.has(Part::Append) {
        append::measure(round, report).await?;
    }
    if options.has(Part::Outage) {
        outage::measure(options, round, report).await?;
    }
    if options.has(Part::Memory) {
        memory::measure(options.events, round, report).await?;
    }
    Ok(())
}

async fn look_at_servers(options: &Options, machine: &mut Machine) -> Result<()> {
    use Part::{Mariadb, Sqlite};
    let on_postgres = Part::value_variants().iter().filter(|part| !matches!(part, Mariadb | Sqlite));
    if on_postgres.into_iter().any(|part| options.has(*part)) {
        let database = postgres::Fresh::create().await?;
        machine.ask_postgres(&database.pool).await?;
        database.drop().await?;
    }
    if options.has(Mariadb) {
        machine.servers.insert("MariaDB", mariadb::version().await?);
    }
    if options.has(Sqlite) {
        machine.servers.insert("SQLite", sqlite::version().await?);
    }
    Ok(())
}

impl Options {
    fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    fn wants(&self, contender: &contenders::Contender) -> bool {
        contender.parts.iter().any(|part| self.has(*part)) && self.names(contender.name)
    }

    /// The name of one contender may be a part of another's.
    fn names(&self, contender: &str) -> bool {
        match contenders::ALL.iter().any(|one| one.name == self.only) {
            true => contender == self.only,
            false => contender.contains(&self.only),
        }
    }

    /// How to measure the same again.
    fn command(&self) -> String {
        let mut command =
            format!("cargo xtask bench outbox --events {} --rounds {}", self.events, self.rounds);
        let names = self.parts.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|part| part.get_name().to_owned()).collect();
        if !names.is_empty() {
            command += &format!(" --part {}", names.join(","));
        }
        if self.has(Part::Latency) {
            command += &format!(" --seconds {}", self.seconds);
        }
        if self.has(Part::Outage) {
            command += &format!(" --minutes {}", self.minutes);
        }
        if !self.only.is_empty() {
            command += &format!(" --only '{}'", self.only);
        }
        command
    }
}
