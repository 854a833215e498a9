//! The outbox: which parts are measured, and in what order.

mod append;
mod backlog;
mod claims;
mod contenders;
mod http;
mod kafka;
mod latency;
mod mariadb;
pub(crate) mod memory;
mod ours;
mod outage;
mod raw;
mod raw_tokio_postgres;
mod schema;
mod snapshot;
mod sqlite;

use anyhow::Result;
use clap::ValueEnum;

use crate::contender::drain_all;
use crate::machine::Machine;
use crate::options::Options;
use crate::report::Report;
use crate::{mariadb as mariadb_server, postgres, sqlite as sqlite_file};

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
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

pub(crate) async fn run(options: &Options<Part>) -> Result<()> {
    options.check()?;
    let mut report = options.report("outbox");
    look_at_servers(options, &mut report.machine).await?;
    for round in 1..=options.rounds {
        drain_all(contenders::ALL, options, Some(contenders::HTTP), round, &mut report).await?;
    }
    for round in 1..=options.rounds {
        measure_the_rest(options, round, &mut report).await?;
    }
    report.claims = claims::of(&report);
    options.show(&report)
}

async fn measure_the_rest(options: &Options<Part>, round: usize, report: &mut Report) -> Result<()> {
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

async fn look_at_servers(options: &Options<Part>, machine: &mut Machine) -> Result<()> {
    use Part::{Mariadb, Sqlite};
    let on_postgres = Part::value_variants().iter().filter(|part| !matches!(part, Mariadb | Sqlite));
    if on_postgres.into_iter().any(|part| options.has(*part)) {
        let database = postgres::Fresh::create().await?;
        machine.ask_postgres(&database.pool).await?;
        database.drop().await?;
    }
    if options.has(Mariadb) {
        machine.servers.insert("MariaDB", mariadb_server::version().await?);
    }
    if options.has(Sqlite) {
        machine.servers.insert("SQLite", sqlite_file::version().await?);
    }
    Ok(())
}
