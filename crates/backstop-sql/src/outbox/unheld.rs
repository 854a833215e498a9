//! Rows that this node claimed and will not deliver: the poller gives them back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Error;
use crate::store::{Claim, Store};

/// How often giving a row back is tried: its transaction may not have committed yet at the first time.
/// After that the claim runs out by itself.
const TRIES: u8 = 20;

/// So many are given back in one statement: a burst that found the hot queue full must not keep the poller from
/// its next look for a statement each.
const TOGETHER: usize = 500;

/// An event, its claim, and how many tries it has left.
type Row = (String, Claim, u8);

/// Claims that nobody in this process stands for any more.
#[derive(Debug, Default)]
pub(super) struct Unheld {
    rows: Mutex<Vec<Row>>,
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

    /// Forgets a row: somebody in this process stands for it again, under the same claim.
    pub(super) fn forget(&self, id: &str) {
        self.lock().retain(|(unheld, ..)| unheld != id);
    }

    /// Waits until a row was added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Gives the rows back, as far as the database is there; those that it refuses, and those that are not there
    /// yet, are tried again the next time. Tells whether any was given back.
    pub(super) async fn release(&self, store: &dyn Store) -> bool {
        let mut any = false;
        let all = std::mem::take(&mut *self.lock());
        let mut parts = all.chunks(TOGETHER);
        while let Some(part) = parts.next() {
            match self.release_together(store, part).await {
                Ok(released) => any |= released,
                Err(error) if error.is_outage() => {
                    tracing::warn!(%error, claims = all.len(), "claims cannot be given back yet");
                    self.keep(part);
                    self.lock().extend(parts.flatten().cloned());
                    break;
                }
                // One that is refused must not keep the others.
                Err(_) => any |= self.release_each(store, part).await,
            }
        }
        any
    }

    /// Gives rows back in one statement. If some are not there yet all of them are kept, since giving back twice
    /// changes nothing.
    async fn release_together(&self, store: &dyn Store, rows: &[Row]) -> Result<bool, Error> {
        let claims: Vec<_> = rows.iter().map(|(id, claim, _)| (id.clone(), claim.clone())).collect();
        let released = store.release(&claims).await?;
        if released < rows.len() as u64 {
            self.keep(rows);
        }
        Ok(released > 0)
    }

    async fn release_each(&self, store: &dyn Store, rows: &[Row]) -> bool {
        let mut any = false;
        for row in rows.chunks(1) {
            match self.release_together(store, row).await {
                Ok(released) => any |= released,
                Err(error) => {
                    tracing::warn!(%error, event_id = row[0].0, "a claim cannot be given back yet");
                    self.keep(row);
                }
            }
        }
        any
    }

    /// Keeps rows for another try, if they have one left.
    fn keep(&self, rows: &[Row]) {
        let again = rows.iter().filter(|(.., tries)| *tries > 1);
        self.lock().extend(again.map(|(id, claim, tries)| (id.clone(), claim.clone(), tries - 1)));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
