//! Raw loops: a batch is claimed on one connection while the one before is moved to the log on another.

use std::time::Instant;

use anyhow::{Result, ensure};
use tokio::sync::mpsc;

use crate::contender::Drained;

/// How many events are claimed at once.
pub(super) const BATCH: i64 = 500;

/// Claims until nothing is left, and moves what was claimed meanwhile.
pub(super) async fn run(
    events: u32,
    mut claim: impl AsyncFnMut() -> Result<Vec<i64>>,
    mut finish: impl AsyncFnMut(Vec<i64>) -> Result<u64>,
) -> Result<Drained> {
    let start = Instant::now();
    let (claimed, mut to_finish) = mpsc::channel(1);
    let claiming = async move {
        loop {
            let ids = claim().await?;
            if ids.is_empty() || claimed.send(ids).await.is_err() {
                return anyhow::Ok(());
            }
        }
    };
    let finishing = async {
        let mut moved = 0;
        while let Some(ids) = to_finish.recv().await {
            moved += finish(ids).await?;
        }
        anyhow::Ok(moved)
    };
    let ((), moved) = tokio::try_join!(claiming, finishing)?;
    ensure!(moved == u64::from(events), "{moved} of {events} are in the log");
    Ok(Drained { events, took: start.elapsed() })
}
