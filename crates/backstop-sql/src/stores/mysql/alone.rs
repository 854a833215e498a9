//! The right to be the only node on a table: a lock that belongs to a session of its own.

use sqlx::{MySqlConnection, MySqlPool};

use super::super::Alone;
use crate::{Error, TableName};

/// The server ends sessions that do nothing for eight hours, and the lock with them; a year is the longest
/// it allows.
const STAY: &str = "set session wait_timeout = 31536000";

/// The lock of a table. MySQL keeps such locks for the whole server, under names of at most 64 characters.
const LOCK: &str = "select get_lock(concat('backstop.alone.', md5(concat(database(), '.', ?))), 0)";

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
