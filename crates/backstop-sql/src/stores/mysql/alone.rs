//! A named lock: the right to be the only node on a table.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, raw_sql};

use super::super::session::Session;
use crate::TableName;

/// The server ends sessions that do nothing for eight hours, and the lock with them; a year is the longest
/// it allows.
const STAY: &str = "set session wait_timeout = 31536000";

/// The lock of a table. MySQL keeps such locks for the whole server, under names of at most 64 characters.
const LOCK: &str = "select get_lock(concat('backstop.alone.', md5(concat(database(), '.', ?))), 0)";

/// A second lock, which only this session ever takes: numbers of sessions come again after a restart, its name does
/// not.
const SIGN: &str = "select get_lock(?, 0)";

/// The number of the session that has a lock.
const WHOSE: &str = "select is_used_lock(?)";

pub(super) struct Locked {
    connection: MySqlConnection,
    sign: String,
}

impl Locked {
    async fn lock(&mut self, lock: &'static str, name: &str) -> Result<bool, sqlx::Error> {
        let taken: Option<i64> = sqlx::query_scalar(lock).bind(name).fetch_one(&mut self.connection).await?;
        Ok(taken == Some(1))
    }
}

impl Session for Locked {
    type Pool = MySqlPool;

    async fn open(pool: &MySqlPool) -> Result<Self, sqlx::Error> {
        let sign = format!("backstop.session.{}", backstop_core::event::next_id());
        let mut session = Self { connection: pool.acquire().await?.detach(), sign: sign.clone() };
        sqlx::query(STAY).execute(&mut session.connection).await?;
        session.lock(SIGN, &sign).await?;
        Ok(session)
    }

    async fn try_lock(&mut self, table: &TableName) -> Result<bool, sqlx::Error> {
        self.lock(LOCK, table.as_str()).await
    }

    async fn end(&mut self, other: &Self) -> Result<bool, sqlx::Error> {
        let whose = sqlx::query_scalar::<_, Option<i64>>(WHOSE).bind(&other.sign);
        let Some(number) = whose.fetch_one(&mut self.connection).await? else { return Ok(false) };
        raw_sql(AssertSqlSafe(format!("kill {number}"))).execute(&mut self.connection).await?;
        Ok(true)
    }

    async fn is_alive(&mut self) -> bool {
        self.connection.ping().await.is_ok()
    }

    async fn leave(mut self) {
        // A connection that is broken has lost its locks already.
        let _ = sqlx::query("select release_all_locks()").execute(&mut self.connection).await;
        let _ = self.connection.close().await;
    }
}
