//! The signals that ask the process to end.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn asked_to_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
