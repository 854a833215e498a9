//! The right to be the only node, where it is a lock that belongs to a session of its own.

use std::time::Duration;

use super::{Alone, Holder};
use crate::{BoxFuture, Error, TableName};

/// How long a session that was ended may take to let go of its lock.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// A connection that has left its pool. The server lets go of its lock when it ends, however it ends.
pub(super) trait Session: Sized + Send + Sync + 'static {
    type Pool: Clone + Send + Sync + 'static;

    fn open(pool: &Self::Pool) -> impl Future<Output = Result<Self, sqlx::Error>> + Send;

    /// Takes the lock of a table, unless somebody has it.
    fn try_lock(&mut self, table: &TableName) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Ends another session, if the server still knows it.
    fn end(&mut self, other: &Self) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Whether the server still knows this one.
    fn is_alive(&mut self) -> impl Future<Output = bool> + Send;

    /// Unlocks and leaves: a server notices the end of a session a moment after the client, and this leaves no gap.
    fn leave(self) -> impl Future<Output = ()> + Send;
}

struct Held<S: Session> {
    session: S,
    pool: S::Pool,
    table: TableName,
}

/// Takes the lock of a table in a session of its own.
pub(super) async fn take<S: Session>(pool: &S::Pool, table: &TableName) -> Result<Alone, Error> {
    let mut session = S::open(pool).await.map_err(taking())?;
    if session.try_lock(table).await.map_err(taking())? {
        return Ok(Alone::held_by(Held { session, pool: pool.clone(), table: table.clone() }));
    }
    Err(Error::NotAlone { table: table.to_string() })
}

fn taking() -> impl FnOnce(sqlx::Error) -> Error {
    Error::database("taking the lock of a single node")
}

impl<S: Session> Holder for Held<S> {
    fn is_held(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(self.session.is_alive())
    }

    fn retake(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            match self.lock_anew().await.map_err(taking())? {
                Some(session) => {
                    self.session = session;
                    Ok(())
                }
                None => Err(Error::NotAlone { table: self.table.to_string() }),
            }
        })
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(self.session.leave())
    }
}

impl<S: Session> Held<S> {
    /// Takes the lock in a new session. Behind a network that swallows packets the server may still know the old
    /// one, which would be in our own way for hours: it is ended.
    async fn lock_anew(&self) -> Result<Option<S>, sqlx::Error> {
        let mut session = S::open(&self.pool).await?;
        let mut taken = session.try_lock(&self.table).await?;
        let tries = if !taken && session.end(&self.session).await? { TRIES } else { 0 };
        for _ in 0..tries {
            tokio::time::sleep(BETWEEN_TRIES).await;
            taken = session.try_lock(&self.table).await?;
            if taken {
                break;
            }
        }
        Ok(taken.then_some(session))
    }
}
