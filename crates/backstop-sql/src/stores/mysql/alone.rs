//! The right to be the only node on a table: a lock that belongs to a session of its own.

use sqlx::{Connection, MySqlConnection, MySqlPool};

use super::super::{Alone, Holder};
use crate::{BoxFuture, Error, TableName};

/// The server ends sessions that do nothing for eight hours, and the lock with them; a year is the longest
/// it allows.
const STAY: &str = "set session wait_timeout = 31536000";

/// The lock of a table. MySQL keeps such locks for the whole server, under names of at most 64 characters.
const LOCK: &str = "select get_lock(concat('backstop.alone.', md5(concat(database(), '.', ?))), 0)";

/// A server notices the end of a session a moment after the client; unlocking first leaves no gap.
impl Holder for MySqlConnection {
    fn release(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // A connection that is broken has lost its locks already.
            let _ = sqlx::query("select release_all_locks()").execute(&mut *self).await;
            let _ = self.close().await;
        })
    }
}

/// Takes a named lock on a connection that leaves the pool. The server lets go of it when the connection
/// ends, however it ends.
pub(super) async fn take(pool: &MySqlPool, table: &TableName) -> Result<Alone, Error> {
    let taking = Error::database("taking the lock of a single node");
    match try_lock(pool, table).await {
        Ok(Some(holder)) => Ok(Alone::held_by(holder)),
        Ok(None) => Err(Error::NotAlone { table: table.to_string() }),
        Err(error) => Err(taking(error)),
    }
}

async fn try_lock(pool: &MySqlPool, table: &TableName) -> Result<Option<MySqlConnection>, sqlx::Error> {
    let mut holder = pool.acquire().await?.detach();
    sqlx::query(STAY).execute(&mut holder).await?;
    let taken: Option<i64> = sqlx::query_scalar(LOCK).bind(table.as_str()).fetch_one(&mut holder).await?;
    Ok((taken == Some(1)).then_some(holder))
}
