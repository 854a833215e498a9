//! Keeps the right to deliver from the table: a server that restarts or loses the session gives it to the first node
//! that asks.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Shutdown;
use backstop_core::lifecycle::Lifecycle;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::lease::Leases;
use crate::Error;
use crate::database::lock::Right;

/// How often the right is checked. Until then two nodes may deliver the same events.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// How long a database may take to answer, and to give the right again.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_TO_RETAKE: Duration = Duration::from_secs(10);

/// How long closing waits for the right to be given back.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) struct Guard {
    lifecycle: Lifecycle,
    right: Arc<Mutex<Option<Right>>>,
}

impl Guard {
    /// Looks after the right in the background: the dispatcher stands down while another node has it.
    pub(super) fn start(right: Right, leases: Leases, nudged: Arc<Notify>) -> Self {
        let right = Arc::new(Mutex::new(Some(right)));
        let kept = right.clone();
        let lifecycle = Lifecycle::started(move |shutdown| keep_until(shutdown, kept, leases, nudged));
        Self { lifecycle, right }
    }

    /// Gives the right back.
    pub(super) async fn close(&self) {
        self.lifecycle.close("guard").await;
        let right = self.right.lock().await.take();
        if let Some(right) = right {
            // A server that does not answer releases it when it notices that the session is gone.
            let _ = timeout(LAST_WORDS, right.release()).await;
        }
    }
}

async fn keep_until(
    shutdown: Shutdown,
    right: Arc<Mutex<Option<Right>>>,
    leases: Leases,
    nudged: Arc<Notify>,
) {
    while shutdown.interrupts(tokio::time::sleep(BETWEEN_LOOKS)).await.is_some() {
        let mut right = right.lock().await;
        let Some(right) = right.as_mut() else { return };
        if shutdown.interrupts(look(right, &leases, &nudged)).await.is_none() {
            return;
        }
    }
}

async fn look(right: &mut Right, leases: &Leases, nudged: &Notify) {
    if !leases.ledger().is_down() && timeout(PATIENCE, right.is_held()).await == Ok(true) {
        return;
    }
    match timeout(PATIENCE_TO_RETAKE, right.retake()).await {
        Ok(Ok(())) if leases.ledger().stand(true) => {
            tracing::info!("the other node has released the table: this node delivers again");
            nudged.notify_one();
        }
        Ok(Ok(())) => {
            tracing::warn!(
                "the database connection that held this node's lock on the table was lost; a new one holds the lock now, \
                 and deliveries go on; nothing has to be done"
            );
        }
        Ok(Err(Error::NotAlone { table })) => {
            if leases.ledger().stand(false) {
                tracing::error!(
                    table,
                    "the database connection that held this node's lock on the table was lost, and another node took \
                     the table meanwhile: this node delivers nothing until that one stops; stop one of the two, or run \
                     both in mode multi-node"
                );
            }
        }
        // While the database is unavailable nobody delivers from it; which node has the right is checked when it is
        // back.
        Ok(Err(error)) => tracing::warn!(
            %error,
            "cannot tell whether this node still has its lock on the table; the node goes on as before and asks again in \
             a moment"
        ),
        Err(_) => tracing::warn!(
            "cannot tell whether this node still has its lock on the table: the database does not answer; the \
             node goes on as before and asks again in a moment"
        ),
    }
}
