//! `cargo xtask bench`: the benchmarks, built for speed and run against our own servers.

use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::program;
use crate::services::{self, EnvFile};
use crate::workspace::Workspace;

/// What is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// The benchmark, such as `outbox`
    name: String,
    /// Arguments for the benchmark, such as `--rounds 5` or `--only single_node`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    services::up(workspace, false)?;
    if options.name == "queue" {
        build_sqlxmq(workspace)?;
    }
    let status = program::cargo()
        .args(["run", "--quiet", "--release", "--manifest-path"])
        .arg(workspace.path("bench/Cargo.toml"))
        .arg("--target-dir")
        .arg(workspace.path("target/bench"))
        .arg("--")
        .arg(&options.name)
        .args(&options.arguments)
        .envs(EnvFile::load(workspace).unset_variables().cloned())
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo; check that it is installed")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A peer of the queue that is a program of its own, because it needs another version of sqlx. It lies beside ours.
fn build_sqlxmq(workspace: &Workspace) -> Result<()> {
    let status = program::cargo()
        .args(["build", "--quiet", "--release", "--manifest-path"])
        .arg(workspace.path("bench/sqlxmq/Cargo.toml"))
        .arg("--target-dir")
        .arg(workspace.path("target/bench"))
        .status()
        .context("cannot start cargo; check that it is installed")?;
    ensure!(status.success(), "sqlxmq cannot be built");
    Ok(())
}
