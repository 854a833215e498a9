//! What the database servers share: connecting with patience, and cleaning up when a value is dropped.

use std::thread;
use std::time::Duration;

use sqlx::Connection;
use sqlx::error::DatabaseError;
use tokio::time::{Instant, sleep, timeout};

use super::service::Service;
use crate::PATIENCE;

/// SQLSTATEs of a server that will let us in soon: no connection left in PostgreSQL and in MySQL, and a
/// PostgreSQL that is starting up.
const BUSY: [&str; 3] = ["53300", "08004", "57P03"];

/// Connects to a server. Many tests do so at once, so a busy server is asked again; one that is not
/// there marks the test as skipped.
///
/// # Panics
///
/// If the server answers but does not let us in: that is a mistake in the settings, not a reason to skip.
pub(super) async fn connect<C: Connection>(service: &Service, url: &str) -> Option<C> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match timeout(PATIENCE, C::connect(url)).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(sqlx::Error::Io(error))) => return service.skip_unanswered(&error),
            Err(elapsed) => return service.skip_unanswered(&elapsed.into()),
            Ok(Err(error)) if is_busy(&error) && Instant::now() < deadline => {
                sleep(Duration::from_millis(50)).await;
            }
            Ok(Err(error)) => panic!("cannot connect to the server of {}: {error}", service.variable),
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| BUSY.contains(&code.as_ref()))
}

/// Runs the clean-up of a dropped value to its end, on a thread with a runtime of its own: the test's
/// may be gone, or be the very thread that drops. What fails is told and left to a later run.
pub(super) fn clean_up<F: Future<Output = Result<(), sqlx::Error>>>(
    what: &str,
    work: impl FnOnce() -> F + Send + 'static,
) {
    let run = move || -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let ended = runtime.block_on(async { timeout(PATIENCE, work()).await });
        ended.map_err(|elapsed| elapsed.to_string())?.map_err(|error| error.to_string())
    };
    // Waited for, since the process may end right after its last test.
    let ended = thread::Builder::new().spawn(run).map(thread::JoinHandle::join);
    if let Ok(Ok(Err(error))) = ended {
        eprintln!("{what} is left behind, and removed by a later run: {error}");
    }
}
