//! Rows that this node claimed and will not deliver: the poller gives them back.

use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// Adds a row and wakes the poller, to give it back at once.
    pub(super) fn add(&self, id: String, claim: Claim) {
        self.add_for_later(id, claim);
        self.added.notify_one();
    }

    /// Adds a row to be given back whenever the poller comes by. Waking it for a row that it would take again
    /// right away would keep it running in circles.
    pub(super) fn add_for_later(&self, id: String, claim: Claim) {
        self.lock().push((id, claim, TRIES));
    }

    /// All rows, which are then no longer kept here.
    pub(super) fn take_all(&self) -> Vec<(String, Claim)> {
        std::mem::take(&mut *self.lock()).into_iter().map(|(id, claim, _)| (id, claim)).collect()
    }

    /// Waits until a row was added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Gives the rows back, up to the first that cannot be; it and those that are not there yet are tried
    /// again the next time. Tells whether any was given back.
    pub(super) async fn release(&self, store: &dyn Store) -> bool {
        let mut any = false;
        let mut rows = std::mem::take(&mut *self.lock()).into_iter();
        while let Some((id, claim, tries)) = rows.next() {
            let row = [(id, claim)];
            let released = store.release(&row).await;
            if let Err(error) = &released {
                tracing::warn!(%error, event_id = row[0].0, "a claim cannot be given back yet");
                self.lock().extend(rows.by_ref());
            }
            let [(id, claim)] = row;
            if matches!(released, Ok(1..)) {
                any = true;
            } else if tries > 1 {
                self.lock().push((id, claim, tries - 1));
            }
        }
        any
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Claim, u8)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
