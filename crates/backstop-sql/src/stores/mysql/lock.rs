//! Named locks: the right to deliver from a table, alone or with others that claim.
//!
//! A named lock has one holder. So each node that claims has its own lock, one of a table's seats, and a node in a
//! single-process mode has the table's. Each takes its own first and then looks for the other kind: if two start at
//! once, at least one sees the other.

use sqlx::query::QueryScalar;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, raw_sql};

use crate::TableName;
use crate::database::lock::Share;
use crate::database::lock::session::{SILENCE, Session, detached};

/// This many nodes that claim can share a table.
const SEATS: usize = 256;

/// Whether the server accepts no changes. A replica has its own locks. Newer servers of MariaDB have words for how
/// read-only they are.
const ONLY_READS: &str = "select concat(@@global.read_only) not in ('0', 'OFF') or @@global.innodb_read_only";

const TAKE: &str = "select get_lock(?, 0)";
const LET_GO: &str = "select release_lock(?)";
const IS_MINE: &str = "select is_used_lock(?) = connection_id()";

/// The name of a table's locks. MySQL keeps them for the whole server, under at most 64 characters.
const NAME: &str = "select left(sha2(concat(database(), '.', ?), 256), 32)";

/// The lock of a node that is alone.
fn alone(name: &str) -> String {
    format!("backstop.alone.{name}")
}

/// The lock of a node that claims.
fn seat(name: &str, number: usize) -> String {
    format!("backstop.node.{name}.{number}")
}

/// A second lock, which only this session ever takes: numbers of sessions come again after a restart, its name does
/// not.
const SIGN: &str = "select get_lock(?, 0)";

/// The number of the session that has a lock. MySQL calls it unsigned, MariaDB does not.
const WHOSE: &str = "select cast(is_used_lock(?) as signed)";

pub(super) struct Locked {
    connection: MySqlConnection,
    sign: String,
    /// The name of the lock that it has.
    lock: Option<String>,
}

impl Locked {
    async fn take(&mut self, lock: String) -> Result<bool, sqlx::Error> {
        let taken: Option<i64> = sqlx::query_scalar(TAKE).bind(&lock).fetch_one(&mut self.connection).await?;
        if taken == Some(1) {
            self.lock = Some(lock);
        }
        Ok(taken == Some(1))
    }

    /// Whether anybody has one of these locks.
    async fn is_any_taken(&mut self, locks: &[String]) -> Result<bool, sqlx::Error> {
        let each = vec!["is_used_lock(?)"; locks.len()].join(", ");
        let ask = format!("select coalesce({each}, null) is not null");
        let ask = locks.iter().fold(sqlx::query_scalar(AssertSqlSafe(ask)), QueryScalar::bind);
        let taken: i64 = ask.fetch_one(&mut self.connection).await?;
        Ok(taken == 1)
    }

    /// Takes the first seat that is free.
    async fn take_a_seat(&mut self, seats: &[String]) -> Result<bool, sqlx::Error> {
        let each: Vec<_> =
            (0..seats.len()).map(|number| format!("when get_lock(?, 0) = 1 then {number}")).collect();
        let ask = format!("select case {} end", each.join(" "));
        let ask = seats.iter().fold(sqlx::query_scalar(AssertSqlSafe(ask)), QueryScalar::bind);
        let taken: Option<i64> = ask.fetch_one(&mut self.connection).await?;
        let number = taken.and_then(|number| usize::try_from(number).ok());
        self.lock = number.and_then(|number| seats.get(number).cloned());
        Ok(self.lock.is_some())
    }

    async fn let_go(&mut self) -> Result<(), sqlx::Error> {
        if let Some(lock) = self.lock.take() {
            sqlx::query(LET_GO).bind(lock).execute(&mut self.connection).await?;
        }
        Ok(())
    }
}

impl Session for Locked {
    type Pool = MySqlPool;

    async fn open(pool: &MySqlPool) -> Result<Self, sqlx::Error> {
        let sign = format!("backstop.session.{}", backstop_core::event::next_id());
        let mut connection = detached(pool).await?;
        let quiet = format!("set session wait_timeout = {}", SILENCE.as_secs());
        raw_sql(AssertSqlSafe(quiet)).execute(&mut connection).await?;
        sqlx::query(SIGN).bind(&sign).execute(&mut connection).await?;
        Ok(Self { connection, sign, lock: None })
    }

    async fn try_lock(&mut self, table: &TableName, share: Share) -> Result<Option<bool>, sqlx::Error> {
        let only_reads: i64 = sqlx::query_scalar(ONLY_READS).fetch_one(&mut self.connection).await?;
        if only_reads == 1 {
            return Ok(None);
        }
        let name: String =
            sqlx::query_scalar(NAME).bind(table.as_str()).fetch_one(&mut self.connection).await?;
        let seats: Vec<_> = (0..SEATS).map(|number| seat(&name, number)).collect();
        let (taken, others) = match share {
            Share::Alone => (self.take(alone(&name)).await?, seats),
            Share::Claiming => (self.take_a_seat(&seats).await?, vec![alone(&name)]),
        };
        if !taken {
            return Ok(Some(false));
        }
        if self.is_any_taken(&others).await? {
            self.let_go().await?;
            return Ok(Some(false));
        }
        Ok(Some(true))
    }

    async fn has_lock(&mut self, _: &TableName) -> Result<bool, sqlx::Error> {
        let only_reads: i64 = sqlx::query_scalar(ONLY_READS).fetch_one(&mut self.connection).await?;
        let Some(lock) = &self.lock else { return Ok(false) };
        let mine: Option<i64> =
            sqlx::query_scalar(IS_MINE).bind(lock).fetch_one(&mut self.connection).await?;
        Ok(only_reads == 0 && mine == Some(1))
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
