//! A transaction that can append events, and starts their delivery when it commits.

use std::collections::HashSet;
use std::fmt;
use std::ops::{Deref, DerefMut};

use backstop_core::Event;
use backstop_core::event::EventType;

use super::writer::{Appended, Writer};
use crate::{Error, Supported};

/// A database transaction with an outbox. Derefs to the connection, so business statements run on it.
///
/// If it is dropped without [`commit`](Transaction::commit), it rolls back, and its events are gone.
pub struct Transaction<DB: Supported> {
    /// `None` once it has ended.
    open: Option<sqlx::Transaction<'static, DB>>,
    writer: Writer,
    /// Whether a statement ran whose effect on the transaction is not known here.
    unsure: bool,
    endings: Endings,
}

/// What happens when the transaction ends, one way or the other.
#[derive(Default)]
struct Endings {
    appended: Vec<Appended>,
    after_commit: Vec<Callback>,
    after_rollback: Vec<Callback>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl<DB: Supported> Transaction<DB> {
    pub(super) fn new(transaction: sqlx::Transaction<'static, DB>, writer: Writer) -> Self {
        Self { open: Some(transaction), writer, unsure: false, endings: Endings::default() }
    }

    /// Appends an event and returns its id, or `None` if a hook left it out. The event exists from the commit on, or
    /// never if there is none.
    pub async fn append(&mut self, event: Event) -> Result<Option<String>, Error> {
        Ok(self.append_all(vec![event]).await?.pop())
    }

    /// Appends an event given by its type and the JSON text of its payload.
    pub async fn append_json(
        &mut self,
        event_type: impl EventType,
        payload_json: impl Into<String>,
    ) -> Result<Option<String>, Error> {
        let event = Event::of_json(event_type, payload_json)?;
        self.append(event).await
    }

    /// Appends events as one batch and returns the ids of the rows inserted, in order.
    pub async fn append_all(&mut self, events: Vec<Event>) -> Result<Vec<String>, Error> {
        let transaction = self.open.as_mut().ok_or(Error::NoTransaction)?;
        let before = std::mem::replace(&mut self.unsure, true);
        let appended = self.writer.append_all(&mut **transaction, events).await?;
        let ids = appended.ids();
        // An insert shows that the transaction is open, and says nothing about events that were appended before.
        let tells = !ids.is_empty() && self.endings.appended.is_empty();
        self.unsure = before && !tells;
        if !ids.is_empty() {
            self.endings.appended.push(appended);
        }
        Ok(ids)
    }

    /// Runs `callback` once the transaction has committed, and never otherwise.
    pub fn after_commit(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.endings.after_commit.push(Box::new(callback));
    }

    /// Runs `callback` when the transaction rolls back, or when its commit fails.
    pub fn after_rollback(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.endings.after_rollback.push(Box::new(callback));
    }

    /// Commits, and hands the appended events to their handlers. An event that finds the hot queue full is
    /// delivered by the poller: a commit never waits for the queue and never fails because of it.
    ///
    /// If the transaction has ended already, because a statement in it failed and its error was ignored, or because one
    /// commits by itself as `CREATE TABLE` does on MySQL, this is [`Error::RolledBack`]: drivers would say `Ok`.
    /// Events that a rolled-back savepoint has undone are not delivered.
    ///
    /// If the database's answer is lost, nobody knows whether the commit happened. This call then returns an error;
    /// if the commit did happen, the poller delivers the events.
    pub async fn commit(mut self) -> Result<(), Error> {
        let mut transaction = self.open.take().ok_or(Error::NoTransaction)?;
        // If this future is dropped while it waits, the drop below tells the hooks of a rollback.
        if self.unsure {
            let present = self.writer.present(&mut *transaction, &self.endings.appended).await?;
            self.endings.keep_those(present);
        }
        transaction.commit().await.map_err(Error::database("committing a transaction"))?;
        std::mem::take(&mut self.endings).committed();
        Ok(())
    }

    /// Rolls back: the business change and the events are gone.
    pub async fn rollback(mut self) -> Result<(), Error> {
        let transaction = self.open.take().ok_or(Error::NoTransaction)?;
        transaction.rollback().await.map_err(Error::database("rolling a transaction back"))
    }
}

impl Endings {
    fn keep_those(&mut self, mut present: HashSet<String>) {
        // The last one of an id is the one in the table.
        self.appended.iter_mut().rev().for_each(|appended| appended.keep_those(&mut present));
    }

    fn committed(self) {
        self.appended.into_iter().for_each(Appended::surely_committed);
        run_all(self.after_commit);
    }

    fn rolled_back(self) {
        self.appended.into_iter().for_each(Appended::rolled_back);
        run_all(self.after_rollback);
    }
}

fn run_all(callbacks: Vec<Callback>) {
    for callback in callbacks {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(callback)).is_err() {
            tracing::warn!("a callback of a transaction panicked");
        }
    }
}

/// Whatever was not committed is rolled back: by sqlx in the database, and here for the hooks.
impl<DB: Supported> Drop for Transaction<DB> {
    fn drop(&mut self) {
        let events: usize = self.endings.appended.iter().map(Appended::len).sum();
        if self.open.is_some() && events > 0 {
            tracing::warn!(
                events,
                "a transaction with appended events was dropped without `commit`; it is rolled back, and its events with it"
            );
        }
        std::mem::take(&mut self.endings).rolled_back();
    }
}

const ENDED: &str = "a transaction is consumed by what ends it";

impl<DB: Supported> Deref for Transaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &Self::Target {
        self.open.as_ref().expect(ENDED)
    }
}

impl<DB: Supported> DerefMut for Transaction<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.unsure = true;
        self.open.as_mut().expect(ENDED)
    }
}

impl<DB: Supported> fmt::Debug for Transaction<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events: usize = self.endings.appended.iter().map(Appended::len).sum();
        f.debug_struct("Transaction").field("appended", &events).finish_non_exhaustive()
    }
}
