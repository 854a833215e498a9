//! An advisory lock: the right to be the only node on a table.

use sqlx::{Connection, PgConnection, PgPool};

use super::super::session::Session;
use crate::TableName;

/// A server may be set to end sessions that do nothing, and the lock with them; where it knows that
/// setting, this session is exempt.
const STAY: &str = "select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'";

/// The lock of a table, wherever the search path finds it. PostgreSQL keeps such locks per database.
const LOCK: &str = "select pg_try_advisory_lock(hashtextextended('backstop.alone.' || coalesce(
    (select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.oid = to_regclass($1)), $1), 0))";

/// Who this session is. Numbers of processes come again, so the moment of its beginning belongs to it.
const WHO: &str = "select pid, extract(epoch from backend_start)::text from pg_stat_activity
    where pid = pg_backend_pid()";

const END: &str = "select pg_terminate_backend(pid) from pg_stat_activity
    where pid = $1 and extract(epoch from backend_start)::text = $2";

pub(super) struct Locked {
    connection: PgConnection,
    who: (i32, String),
}

impl Session for Locked {
    type Pool = PgPool;

    async fn open(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let mut connection = pool.acquire().await?.detach();
        sqlx::query(STAY).execute(&mut connection).await?;
        let who = sqlx::query_as(WHO).fetch_one(&mut connection).await?;
        Ok(Self { connection, who })
    }

    async fn try_lock(&mut self, table: &TableName) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar(LOCK).bind(table.as_str()).fetch_one(&mut self.connection).await
    }

    async fn end(&mut self, other: &Self) -> Result<bool, sqlx::Error> {
        let (number, begun) = &other.who;
        let end = sqlx::query_scalar(END).bind(number).bind(begun);
        Ok(end.fetch_optional(&mut self.connection).await? == Some(true))
    }

    async fn is_alive(&mut self) -> bool {
        self.connection.ping().await.is_ok()
    }

    async fn leave(mut self) {
        // A connection that is broken has lost its locks already.
        let _ = sqlx::query("select pg_advisory_unlock_all()").execute(&mut self.connection).await;
        let _ = self.connection.close().await;
    }
}
