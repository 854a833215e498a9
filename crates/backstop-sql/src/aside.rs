//! A separate thread, for work that must go on while handlers block the threads of the application's runtime.

use std::sync::LazyLock;
use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tracing::instrument::WithSubscriber as _;

/// It is started when it is first needed and lasts as long as the process: a connection that was opened there is
/// driven there, whichever thread uses it.
static ASIDE: LazyLock<io::Result<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("backstop-aside".to_owned()).spawn(drive)?;
    Ok(handle)
});

/// Runs something there. If the thread cannot be started, it runs on the application's runtime.
pub(crate) fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let work = work.with_current_subscriber();
    match &*ASIDE {
        Ok(aside) => aside.spawn(work),
        Err(error) => {
            tracing::warn!(%error, "cannot start a thread for the renewal of claims; handlers that block delay it");
            tokio::spawn(work)
        }
    }
}
