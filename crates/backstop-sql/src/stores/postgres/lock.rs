//! An advisory lock: the right to deliver from a table, alone or with others that claim.

use sqlx::{Connection, PgConnection, PgPool};

use crate::TableName;
use crate::database::lock::Share;
use crate::database::lock::session::{SILENCE, Session, detached};
use crate::error::is_of_a_pooler;

/// Ends the session when it falls silent, where the server knows that setting.
const QUIET: &str = "select set_config(name, $1, false) from pg_settings where name = 'idle_session_timeout'";

/// The lock of a table, wherever the search path finds it. PostgreSQL keeps such locks per database, and a standby has
/// its own.
macro_rules! lock {
    ($function:literal) => {
        concat!(
            "select case when current_setting('transaction_read_only') = 'off' then ",
            $function,
            "(hashtextextended('backstop.alone.' || coalesce(
            (select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where c.oid = to_regclass($1)), $1), 0)) end"
        )
    };
}

const LOCK_ALONE: &str = lock!("pg_try_advisory_lock");
const LOCK_SHARED: &str = lock!("pg_try_advisory_lock_shared");

/// A second lock, which only this session ever takes, so that others can tell who it is.
const SIGN: &str = "select pg_try_advisory_lock(hashtextextended($1, 0))";

/// Which session this is, and whether it has both locks. Nothing but its end takes one away.
const HAS_LOCKS: &str = "select pg_backend_pid(), current_setting('transaction_read_only') = 'off' and 2 <=
    (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' and granted)";

const END: &str =
    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objsubid = 1
    and (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)
    and database = (select oid from pg_database where datname = current_database())";

pub(super) struct Locked {
    connection: PgConnection,
    sign: String,
    /// The number of the session. It changes where a pooler hands the connection's statements to whichever is free.
    number: i32,
    shared_by_a_pooler: bool,
}

impl Session for Locked {
    type Pool = PgPool;

    async fn open(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let mut connection = detached(pool).await?;
        sqlx::query(QUIET).bind(SILENCE.as_millis().to_string()).execute(&mut connection).await?;
        let sign = format!("backstop.session.{}", backstop_core::event::next_id());
        sqlx::query(SIGN).bind(&sign).execute(&mut connection).await?;
        let number = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await?;
        Ok(Self { connection, sign, number, shared_by_a_pooler: false })
    }

    async fn try_lock(&mut self, table: &TableName, share: Share) -> Result<Option<bool>, sqlx::Error> {
        let lock = match share {
            Share::Alone => LOCK_ALONE,
            Share::Claiming => LOCK_SHARED,
        };
        sqlx::query_scalar(lock).bind(table.as_str()).fetch_one(&mut self.connection).await
    }

    async fn has_lock(&mut self, _: &TableName) -> Result<bool, sqlx::Error> {
        let asked = sqlx::query_as(HAS_LOCKS).fetch_one(&mut self.connection).await;
        self.shared_by_a_pooler |= asked.as_ref().is_err_and(is_of_a_pooler);
        let (number, has): (i32, bool) = asked?;
        self.shared_by_a_pooler |= number != self.number;
        Ok(has && number == self.number)
    }

    fn is_shared_by_a_pooler(&self) -> bool {
        self.shared_by_a_pooler
    }

    fn sign(&self) -> &str {
        &self.sign
    }

    async fn end(&mut self, sign: &str) -> Result<bool, sqlx::Error> {
        let known = sqlx::query(END).bind(sign).fetch_optional(&mut self.connection).await;
        match known {
            // A user who logs in under one role and works under another may not end its own sessions.
            Err(sqlx::Error::Database(said)) if said.code().is_some_and(|code| code == "42501") => Ok(true),
            known => Ok(known?.is_some()),
        }
    }

    async fn leave(mut self) {
        // A connection that is broken has lost its locks already.
        let _ = sqlx::query("select pg_advisory_unlock_all()").execute(&mut self.connection).await;
        let _ = self.connection.close().await;
    }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers::postgres;
    use sqlx::postgres::PgPoolOptions;

    use super::*;

    #[tokio::test]
    async fn a_session_that_a_pooler_shares_with_others_is_known_as_such() {
        let Some(database) = postgres().await else { return };
        let Some(url) = database.pooled_url().await else { return };
        let pool = PgPoolOptions::new().connect(&url).await.unwrap();
        let table = TableName::default();
        let mut locked = Locked::open(&pool).await.unwrap();
        assert_eq!(locked.try_lock(&table, Share::Alone).await.unwrap(), Some(true));
        assert!(locked.has_lock(&table).await.unwrap() && !locked.is_shared_by_a_pooler());
        // Whoever keeps a transaction open has the only session that the pooler has opened so far.
        let stranger = pool.begin().await.unwrap();
        assert!(!locked.has_lock(&table).await.unwrap_or(false), "that is another session");
        assert!(locked.is_shared_by_a_pooler());
        drop(stranger);
    }
}
