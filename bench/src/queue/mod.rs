//! The queue: which parts are measured, and in what order.

mod backlog;
mod claims;
mod contenders;
mod latency;
mod mariadb;
mod ours;
mod overlapped;
mod postgres;
mod publish;
mod sqlite;
mod sqlxmq;

use anyhow::Result;
use clap::ValueEnum;

use crate::contender::drain_all;
use crate::machine::Machine;
use crate::options::Options;

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Burning down a backlog on PostgreSQL, against raw loops.
    Backlog,
    /// The same against other libraries.
    Peers,
    /// From publishing to the handler.
    Latency,
    /// What publishing costs.
    Publish,
    /// Burning down a backlog on MariaDB or MySQL.
    Mariadb,
    /// Burning down a backlog on SQLite.
    Sqlite,
}

pub(crate) async fn run(options: &Options<Part>) -> Result<()> {
    options.check()?;
    let mut report = options.report("queue");
    look_at_servers(&mut report.machine).await?;
    for round in 1..=options.rounds {
        drain_all(contenders::ALL, options, None, round, &mut report).await?;
    }
    for round in 1..=options.rounds {
        if options.has(Part::Latency) {
            latency::measure(options.seconds, &options.only, round, &mut report).await?;
        }
        if options.has(Part::Publish) {
            publish::measure(round, &mut report).await?;
        }
    }
    report.claims = claims::of(&report);
    options.show(&report)
}

async fn look_at_servers(machine: &mut Machine) -> Result<()> {
    let database = crate::postgres::Fresh::create().await?;
    machine.ask_postgres(&database.pool).await?;
    database.drop().await?;
    machine.servers.insert("MariaDB", crate::mariadb::version().await?);
    machine.servers.insert("SQLite", crate::sqlite::version().await?);
    Ok(())
}
