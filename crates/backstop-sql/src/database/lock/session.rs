//! A lock that belongs to its own database session, which is watched, and taken again if it is lost.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::timeout;

use super::{Holder, Right, Share};
use crate::database::TableName;
use crate::database::acquire::acquire;
use crate::error::is_of_a_pooler;
use crate::{BoxFuture, Error};

/// How long a session that was ended may take to release its lock.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// A connection that has left its pool. The server releases its lock when the connection ends, however it ends, and
/// ends the connection itself if it hears nothing from it for [`SILENCE`].
pub(crate) trait Session: Sized + Send + Sync + 'static {
    type Pool: Clone + Send + Sync + 'static;

    fn open(pool: &Self::Pool) -> impl Future<Output = Result<Self, sqlx::Error>> + Send;

    /// Takes the lock of a table, unless somebody has it. `None` on a read-only server, where the same lock is a
    /// different one.
    fn try_lock(
        &mut self,
        table: &TableName,
        share: Share,
    ) -> impl Future<Output = Result<Option<bool>, sqlx::Error>> + Send;

    /// Whether it still has the lock of a table, on a server that writes.
    fn has_lock(&mut self, table: &TableName) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Whether it turned out not to be a session of its own: a pooler shares its connection with others, and its lock
    /// is in their hands.
    fn is_shared_by_a_pooler(&self) -> bool {
        false
    }

    /// Its sign, which no other session ever has.
    fn sign(&self) -> &str;

    /// Ends another session of ours, and says whether the server still knew it: then its locks were not somebody
    /// else's, even if we may not end it.
    fn end(&mut self, sign: &str) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Unlocks and leaves: a server notices the end of a session a moment after the client, and this leaves no gap.
    fn leave(self) -> impl Future<Output = ()> + Send;
}

/// A session that is silent for this long is gone, and must not keep the lock for hours. A living one is asked every
/// few seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

/// How often a pool is asked, and how long each time: it tries whether a connection still answers before it gives it
/// away, and one that fell silent is dropped with the question.
const ASKED: u32 = 9;
const EACH_TIME: Duration = Duration::from_secs(1);

/// A connection of a pool, for good.
pub(crate) async fn detached<DB: sqlx::Database>(
    pool: &sqlx::Pool<DB>,
) -> Result<DB::Connection, sqlx::Error> {
    for _ in 1..ASKED {
        if let Ok(connection) = timeout(EACH_TIME, pool.acquire()).await {
            return Ok(connection?.detach());
        }
    }
    Ok(acquire(pool).await?.detach())
}

/// This many abandoned sessions are remembered; the server has ended older ones by then, or soon will.
const MOST_GIVEN_UP: usize = 8;

struct Held<S: Session> {
    session: S,
    /// One that waits for the lock, after the other was lost.
    next: Option<S>,
    /// The signs of those that were given up, and may have got the lock without our knowing.
    given_up: VecDeque<String>,
    pool: S::Pool,
    table: TableName,
    share: Share,
}

/// Takes the lock of a table in a session of its own.
pub(crate) async fn take<S: Session>(
    pool: &S::Pool,
    table: &TableName,
    share: Share,
) -> Result<Right, Error> {
    let mut session = S::open(pool).await.map_err(taking())?;
    if try_lock(&mut session, table, share).await? {
        let (pool, table) = (pool.clone(), table.clone());
        return Ok(Right::held_by(Held {
            session,
            next: None,
            given_up: VecDeque::new(),
            pool,
            table,
            share,
        }));
    }
    Err(Error::NotAlone { table: table.to_string() })
}

async fn try_lock<S: Session>(session: &mut S, table: &TableName, share: Share) -> Result<bool, Error> {
    let taken = session.try_lock(table, share).await.map_err(taking())?;
    let said = || "it would not share its locks with the one that writes".to_owned();
    taken.ok_or_else(|| Error::OnlyReads { table: table.to_string(), said: said() })
}

fn taking() -> impl FnOnce(sqlx::Error) -> Error {
    |error| {
        if is_of_a_pooler(&error) {
            Error::Pooler
        } else {
            Error::database("taking the lock of a table")(error)
        }
    }
}

impl<S: Session> Holder for Held<S> {
    fn is_held(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.session.has_lock(&self.table).await.unwrap_or(false) })
    }

    fn retake(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            if self.session.is_shared_by_a_pooler() {
                return Err(Error::Pooler);
            }
            // Taken out, so that one that fails or is given up is not tried again.
            let mut next = match self.next.take() {
                Some(next) => next,
                None => S::open(&self.pool).await.map_err(taking())?,
            };
            let own: Vec<_> =
                [self.session.sign().to_owned()].into_iter().chain(self.given_up.clone()).collect();
            self.remember(next.sign().to_owned());
            if lock_in(&mut next, &self.table, self.share, &own).await? {
                (self.session, self.given_up) = (next, VecDeque::new());
                return Ok(());
            }
            self.given_up.pop_back();
            self.next = Some(next);
            Err(Error::NotAlone { table: self.table.to_string() })
        })
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(self.session.leave())
    }
}

impl<S: Session> Held<S> {
    /// Until it is known whether a session that asks for the lock got it.
    fn remember(&mut self, sign: String) {
        self.given_up.push_back(sign);
        if self.given_up.len() > MOST_GIVEN_UP {
            self.given_up.pop_front();
        }
    }
}

/// Takes the lock in another session. If the network swallows packets, the server may still keep our own old
/// sessions, which would be in our way: they are ended.
async fn lock_in<S: Session>(
    next: &mut S,
    table: &TableName,
    share: Share,
    own: &[String],
) -> Result<bool, Error> {
    if try_lock(next, table, share).await? {
        return Ok(true);
    }
    let mut is_ours = false;
    for sign in own {
        is_ours |= next.end(sign).await.map_err(taking())?;
    }
    if !is_ours {
        return Ok(false);
    }
    for _ in 0..TRIES {
        tokio::time::sleep(BETWEEN_TRIES).await;
        if try_lock(next, table, share).await? {
            return Ok(true);
        }
    }
    // Nobody else has it, so there is nobody to stand down for.
    Err(Error::State(
        "an old database connection of this node still has its lock on the table; the server releases it within a \
         minute or so, or you can end that connection there",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session whose lock is in strangers' hands.
    struct Shared;

    impl Session for Shared {
        type Pool = ();

        async fn open((): &()) -> Result<Self, sqlx::Error> {
            Ok(Self)
        }

        async fn try_lock(&mut self, _: &TableName, _: Share) -> Result<Option<bool>, sqlx::Error> {
            Ok(Some(true))
        }

        async fn has_lock(&mut self, _: &TableName) -> Result<bool, sqlx::Error> {
            Ok(false)
        }

        fn is_shared_by_a_pooler(&self) -> bool {
            true
        }

        fn sign(&self) -> &'static str {
            "shared"
        }

        async fn end(&mut self, _: &str) -> Result<bool, sqlx::Error> {
            Ok(true)
        }

        async fn leave(self) {}
    }

    #[tokio::test]
    async fn behind_a_pooler_a_lock_is_not_taken_again_and_the_pooler_is_told_of() {
        let mut right = take::<Shared>(&(), &TableName::default(), Share::Alone).await.unwrap();
        assert!(!right.is_held().await);
        let error = right.retake().await.unwrap_err();
        assert!(matches!(error, Error::Pooler), "{error}");
    }
}
