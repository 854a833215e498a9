//! Rows that this node claimed and will not deliver: the poller gives them back.

use std::collections::HashMap;
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

/// An event and its claim.
type Row = (String, Claim);

/// Claims that nobody in this process stands for any more.
#[derive(Debug, Default)]
pub(super) struct Unheld {
    /// By the events' ids, each with how many tries are left.
    rows: Mutex<HashMap<String, (Claim, u8)>>,
    added: Notify,
    /// Held while rows are given back.
    releasing: tokio::sync::Mutex<()>,
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
        self.lock().insert(id, (claim, TRIES));
    }

    /// All rows, which are then no longer kept here.
    pub(super) fn take_all(&self) -> Vec<Row> {
        std::mem::take(&mut *self.lock()).into_iter().map(|(id, (claim, _))| (id, claim)).collect()
    }

    /// Forgets a row: somebody in this process stands for it again, under the same claim. Tells whether there was one.
    pub(super) fn forget(&self, id: &str) -> bool {
        self.lock().remove(id).is_some()
    }

    /// Forgets rows, and returns when none of them is being given back any more.
    pub(super) async fn forget_all(&self, ids: impl Iterator<Item = &str>) {
        if ids.filter(|id| self.forget(id)).count() > 0 {
            drop(self.releasing.lock().await);
        }
    }

    /// Waits until a row was added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Gives the rows back, as far as the database is there; those that it refuses, and those that are not there
    /// yet, are tried again the next time. Tells whether any was given back.
    pub(super) async fn release(&self, store: &dyn Store) -> bool {
        let _releasing = self.releasing.lock().await;
        let all: Vec<Row> = self.lock().iter().map(|(id, (claim, _))| (id.clone(), claim.clone())).collect();
        let mut any = false;
        for part in all.chunks(TOGETHER) {
            match self.release_together(store, part).await {
                Ok(released) => any |= released,
                Err(error) if error.is_outage() => {
                    tracing::warn!(%error, claims = all.len(), "claims cannot be given back yet");
                    self.tried(part);
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
        let released = store.release(rows).await?;
        if released < rows.len() as u64 {
            self.tried(rows);
        } else {
            self.remove(rows);
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
                    self.tried(row);
                }
            }
        }
        any
    }

    fn remove(&self, rows: &[Row]) {
        let mut kept = self.lock();
        for (id, claim) in rows {
            if kept.get(id).is_some_and(|(other, _)| other == claim) {
                kept.remove(id);
            }
        }
    }

    /// Counts a try; those that have none left are given up.
    fn tried(&self, rows: &[Row]) {
        let mut kept = self.lock();
        for (id, claim) in rows {
            if let Some((other, tries)) = kept.get_mut(id)
                && other == claim
            {
                *tries -= 1;
                if *tries == 0 {
                    kept.remove(id);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Claim, u8)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
