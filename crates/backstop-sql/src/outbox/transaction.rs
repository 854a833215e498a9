//! A transaction that can append events, and starts their delivery when it commits.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use backstop_core::Event;

use super::Inner;
use crate::{Error, Supported};

/// A database transaction with an outbox. Derefs to the connection, so business statements run on it.
///
/// Dropped without [`commit`](Transaction::commit) it rolls back, and its events are gone with it.
pub struct Transaction<DB: Supported> {
    transaction: sqlx::Transaction<'static, DB>,
    outbox: Arc<Inner>,
    appended: Vec<Event>,
}

impl<DB: Supported> Transaction<DB> {
    pub(super) fn new(transaction: sqlx::Transaction<'static, DB>, outbox: Arc<Inner>) -> Self {
        Self { transaction, outbox, appended: Vec::new() }
    }

    /// Appends an event and gives back its id. It exists from the commit on, or never.
    pub async fn append(&mut self, event: Event) -> Result<String, Error> {
        let id = event.id().to_owned();
        self.append_all(vec![event]).await?;
        Ok(id)
    }

    /// Appends events in one statement and gives back their ids.
    pub async fn append_all(&mut self, events: Vec<Event>) -> Result<Vec<String>, Error> {
        self.outbox.store.insert(DB::seam(&mut self.transaction), &events, None).await?;
        let ids = events.iter().map(|event| event.id().to_owned()).collect();
        self.appended.extend(events);
        Ok(ids)
    }

    /// Commits, and hands the appended events to their handlers. An event that finds the hot queue full is
    /// delivered by the poller: a commit never waits for it and never fails for it.
    pub async fn commit(self) -> Result<(), Error> {
        self.transaction.commit().await.map_err(Error::database("committing a transaction"))?;
        let feed = self.outbox.dispatcher.feed();
        for event in &self.appended {
            feed.offer_hot(event);
        }
        Ok(())
    }

    /// Rolls back: the business change and the events are gone.
    pub async fn rollback(self) -> Result<(), Error> {
        self.transaction.rollback().await.map_err(Error::database("rolling a transaction back"))
    }
}

impl<DB: Supported> Deref for Transaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &Self::Target {
        &self.transaction
    }
}

impl<DB: Supported> DerefMut for Transaction<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.transaction
    }
}

impl<DB: Supported> fmt::Debug for Transaction<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("appended", &self.appended.len()).finish_non_exhaustive()
    }
}
