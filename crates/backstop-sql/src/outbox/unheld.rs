//! Rows that this node claimed and will not deliver: the poller gives them back.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::store::{Claim, Store};

/// How often giving a row back is tried: its transaction may not have committed yet at the first time.
/// After that the claim runs out by itself.
const TRIES: u8 = 20;

/// Claims that nobody in this process stands for any more.
#[derive(Debug, Default)]
pub(super) struct Unheld {
    rows: Mutex<Vec<(String, Claim, u8)>>,
    added: Notify,
}

impl Unheld {
    pub(super) fn add(&self, id: String, claim: Claim) {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).push((id, claim, TRIES));
        self.added.notify_one();
    }

    /// Waits until a row was added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Gives the rows back; those that are not there yet are tried again the next time.
    pub(super) async fn release(&self, store: &dyn Store) -> Result<(), crate::Error> {
        let rows = std::mem::take(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, claim, tries) in rows {
            let row = [(id, claim)];
            let released = store.release(&row).await;
            let [(id, claim)] = row;
            if !matches!(released, Ok(1..)) && tries > 1 {
                self.rows.lock().unwrap_or_else(PoisonError::into_inner).push((id, claim, tries - 1));
            }
            released?;
        }
        Ok(())
    }
}
