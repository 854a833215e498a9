//! `cargo xtask`: the chores of this workspace.

mod bench;
mod conformance;
mod fault;
mod features;
mod manifest;
mod program;
mod say;
mod services;
mod source;
mod suite;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use say::complain;
use workspace::Workspace;

/// The chores of this workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Real servers for tests: PostgreSQL, PgBouncer, MariaDB and Kafka
    #[command(subcommand)]
    Services(services::Action),
    /// Run the whole suite on real servers; ends with `N passed, N failed, N skipped`
    Test(suite::Options),
    /// Show which rules of the books in docs/conformance are shown by tests, and which are open
    Conformance {
        /// One area only, such as `outbox`
        area: Option<String>,
    },
    /// Check the rules of the house that no compiler checks
    Tidy(tidy::Options),
    /// Build every feature of the facade alone
    Features,
    /// Measure Backstop against raw loops, as ratios in one run; see bench/README.md
    Bench(bench::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            complain!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    match cli.command {
        Command::Services(action) => services::run(&workspace, &action).map(|()| ExitCode::SUCCESS),
        Command::Test(options) => suite::run(&workspace, &options),
        Command::Conformance { area } => conformance::run(&workspace, area.as_deref()),
        Command::Tidy(options) => tidy::run(&workspace, &options),
        Command::Bench(options) => bench::run(&workspace, &options),
        Command::Features => features::run(&workspace).map(|()| ExitCode::SUCCESS),
    }
}
