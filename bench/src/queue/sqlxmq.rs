//! sqlxmq, a program of its own beside this one, because it needs another version of sqlx.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::contender::Drained;
use crate::postgres::Fresh;

/// With so many jobs at once; it fetches more when half of them are done.
pub(super) async fn drain(events: u32, jobs: u32) -> Result<Drained> {
    let database = Fresh::create().await?;
    let program = std::env::current_exe()?.with_file_name("backstop-bench-sqlxmq");
    let answer = Command::new(program)
        .args([&database.url, &events.to_string(), &jobs.to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()
        .await
        .context("cannot start sqlxmq; run this as `cargo xtask bench`, which builds it")?;
    ensure!(answer.status.success(), "sqlxmq ended with {}", answer.status);
    database.drop().await?;
    let seconds: f64 = String::from_utf8(answer.stdout)?.trim().parse()?;
    Ok(Drained { events, took: Duration::from_secs_f64(seconds) })
}
