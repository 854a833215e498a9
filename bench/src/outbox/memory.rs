//! The most memory that a drain takes, in a fresh process for each size of the backlog.

use anyhow::{Context, Result, ensure};
use backstop_sql::store::Done;
use clap::Args;
use tokio::process::Command;

use super::ours;
use crate::contender::Drained;
use crate::machine::field_of;
use crate::postgres::{self, Fresh};
use crate::report::{Report, Unit, thousands};

const GROUP: &str = "most resident memory while draining, single_node";
pub(super) const SMALL: &str = "memory, a twentieth of the backlog (10 k of 200 k)";
pub(super) const LARGE: &str = "memory, five times the backlog (1 M of 200 k)";

pub(super) async fn measure(events: u32, round: usize, report: &mut Report) -> Result<()> {
    for (name, events) in [(SMALL, events / 20), (LARGE, events * 5)] {
        let most = in_a_process_of_its_own(events).await?;
        eprintln!("round {round}: memory, {} events: {most:.1} MiB", thousands(f64::from(events)));
        report.add(GROUP, name, Unit::Mebibytes, None, most);
    }
    Ok(())
}

async fn in_a_process_of_its_own(events: u32) -> Result<f64> {
    let database = Fresh::create().await?;
    database.fill_ours(events, &[]).await?;
    let answer = Command::new(std::env::current_exe()?)
        .args(["drain-alone", "--url", &database.url, "--events", &events.to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()
        .await?;
    ensure!(answer.status.success(), "the process that drains ended with {}", answer.status);
    database.drop().await?;
    let kibibytes: f64 = String::from_utf8(answer.stdout)?.trim().parse()?;
    Ok(kibibytes / 1024.0)
}

/// What the process of its own does.
#[derive(Args)]
pub(crate) struct DrainAlone {
    /// The database, with a backlog.
    #[arg(long)]
    url: String,
    /// How many events it has.
    #[arg(long)]
    events: u32,
}

impl DrainAlone {
    /// Drains, and prints the most that was resident, in KiB.
    pub(crate) async fn run(&self) -> Result<()> {
        let pool = postgres::open(&self.url).await?;
        let Drained { .. } = ours::single_node(pool, self.events, Some(500), Done::Keep).await?;
        let most = field_of("/proc/self/status", "VmHWM").context("only Linux tells its memory this way")?;
        println!("{}", most.trim_end_matches(" kB"));
        Ok(())
    }
}
