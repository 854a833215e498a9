//! Wake-ups: how nodes learn that another has written rows, without asking the table.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use crate::{BoxFuture, Error};

/// A bell that the nodes of one table ring for each other, where the database has one.
pub trait WakeUps: Send + Sync + 'static {
    /// Wakes every node that listens, on a connection of its own: no business transaction waits for it.
    fn ring(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Listens until that breaks, and returns why. Calls `heard` when it begins to hear and at each wake-up.
    fn listen<'a>(&'a self, heard: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, Error>;
}
