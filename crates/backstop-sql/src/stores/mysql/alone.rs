//! A named lock: the right to be the only node on a table.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, raw_sql};

use super::super::session::{SILENCE, Session, detached};
use crate::TableName;

/// The lock of a table. MySQL keeps such locks for the whole server, under names of at most 64 characters, and a
/// replica has its own. Newer servers of MariaDB have words for how read-only they are.
const LOCK: &str =
    "select if(concat(@@global.read_only) not in ('0', 'OFF') or @@global.innodb_read_only, null,
    get_lock(concat('backstop.alone.', md5(concat(database(), '.', ?))), 0))";

const HAS_LOCK: &str =
    "select concat(@@global.read_only) in ('0', 'OFF') and not @@global.innodb_read_only and
    is_used_lock(concat('backstop.alone.', md5(concat(database(), '.', ?)))) = connection_id()";

/// A second lock, which only this session ever takes: numbers of sessions come again after a restart, its name does
/// not.
const SIGN: &str = "select get_lock(?, 0)";

/// The number of the session that has a lock. MySQL calls it unsigned, MariaDB does not.
const WHOSE: &str = "select cast(is_used_lock(?) as signed)";

pub(super) struct Locked {
    connection: MySqlConnection,
    sign: String,
}

impl Session for Locked {
    type Pool = MySqlPool;

    async fn open(pool: &MySqlPool) -> Result<Self, sqlx::Error> {
        let sign = format!("backstop.session.{}", backstop_core::event::next_id());
        let mut connection = detached(pool).await?;
        let quiet = format!("set session wait_timeout = {}", SILENCE.as_secs());
        raw_sql(AssertSqlSafe(quiet)).execute(&mut connection).await?;
        sqlx::query(SIGN).bind(&sign).execute(&mut connection).await?;
        Ok(Self { connection, sign })
    }

    async fn try_lock(&mut self, table: &TableName) -> Result<Option<bool>, sqlx::Error> {
        let taken: Option<i64> =
            sqlx::query_scalar(LOCK).bind(table.as_str()).fetch_one(&mut self.connection).await?;
        Ok(taken.map(|taken| taken == 1))
    }

    async fn has_lock(&mut self, table: &TableName) -> Result<bool, sqlx::Error> {
        let has: Option<i64> =
            sqlx::query_scalar(HAS_LOCK).bind(table.as_str()).fetch_one(&mut self.connection).await?;
        Ok(has == Some(1))
    }

    fn sign(&self) -> &str {
        &self.sign
    }

    async fn end(&mut self, sign: &str) -> Result<bool, sqlx::Error> {
        let whose = sqlx::query_scalar::<_, Option<i64>>(WHOSE).bind(sign);
        let Some(number) = whose.fetch_one(&mut self.connection).await? else { return Ok(false) };
        raw_sql(AssertSqlSafe(format!("kill {number}"))).execute(&mut self.connection).await?;
        Ok(true)
    }

    async fn leave(mut self) {
        // A connection that is broken has lost its locks already.
        let _ = sqlx::query("select release_all_locks()").execute(&mut self.connection).await;
        let _ = self.connection.close().await;
    }
}
