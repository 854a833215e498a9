//! The right to be the only node on a table: a lock that belongs to a session of its own.

use sqlx::{Connection, PgConnection, PgPool};

use super::super::{Alone, Holder};
use crate::{BoxFuture, Error, TableName};

/// A server may be set to end sessions that do nothing, and the lock with them; where it knows that
/// setting, this session is exempt.
const STAY: &str = "select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'";

/// The lock of a table, wherever the search path finds it. PostgreSQL keeps such locks per database.
const LOCK: &str = "select pg_try_advisory_lock(hashtextextended('backstop.alone.' || coalesce(
    (select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.oid = to_regclass($1)), $1), 0))";

/// A server notices the end of a session a moment after the client; unlocking first leaves no gap.
impl Holder for PgConnection {
    fn release(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // A connection that is broken has lost its locks already.
            let _ = sqlx::query("select pg_advisory_unlock_all()").execute(&mut *self).await;
            let _ = self.close().await;
        })
    }
}

/// Takes an advisory lock on a connection that leaves the pool. The server lets go of it when the
/// connection ends, however it ends.
pub(super) async fn take(pool: &PgPool, table: &TableName) -> Result<Alone, Error> {
    let taking = Error::database("taking the lock of a single node");
    match try_lock(pool, table).await {
        Ok(Some(holder)) => Ok(Alone::held_by(holder)),
        Ok(None) => Err(Error::NotAlone { table: table.to_string() }),
        Err(error) => Err(taking(error)),
    }
}

async fn try_lock(pool: &PgPool, table: &TableName) -> Result<Option<PgConnection>, sqlx::Error> {
    let mut holder = pool.acquire().await?.detach();
    sqlx::query(STAY).execute(&mut holder).await?;
    let taken: bool = sqlx::query_scalar(LOCK).bind(table.as_str()).fetch_one(&mut holder).await?;
    Ok(taken.then_some(holder))
}
