//! A PostgreSQL schema of its own for each test, where a whole database would cost too much.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};

use super::database::{clean_up, connect};
use super::left_behind;
use super::name;
use super::postgres::SERVICE;

/// A fresh schema in the database of `BACKSTOP_TEST_POSTGRES_URL`. When this value is dropped, so is the schema, with
/// the sessions that still use it.
///
/// It is made and dropped in milliseconds, while a server writes all its buffers to disk when a
/// [database](super::postgres()) is dropped. Whatever is named without a schema is looked for in this one alone.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(schema) = backstop_testkit::servers::postgres_schema().await else { return };
/// let pool = sqlx::PgPool::connect(&schema.url()).await.unwrap();
/// sqlx::query("CREATE TABLE orders (id BIGINT PRIMARY KEY)").execute(&pool).await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct PostgresSchema {
    server_url: String,
    name: String,
}

/// Makes a fresh schema; `None` if there is no server, and then the test is marked as [skipped](crate::skip()).
///
/// The first call of a process also drops, as far as it can, the schemas that killed test runs have left behind more
/// than an hour ago.
///
/// # Panics
///
/// If the server answers but does not let us create a schema.
pub async fn postgres_schema() -> Option<PostgresSchema> {
    static TIDIED: AtomicBool = AtomicBool::new(false);
    let server_url = SERVICE.place()?;
    let mut connection = connect(&SERVICE, &server_url).await?;
    if !TIDIED.swap(true, Ordering::Relaxed) {
        drop_left_behind(&mut connection).await;
    }
    let name = name::fresh('_');
    if let Err(error) = create(&mut connection, &name).await {
        panic!("cannot create a schema on the server of {}: {error}", SERVICE.variable);
    }
    let _ = connection.close().await;
    Some(PostgresSchema { server_url, name })
}

impl PostgresSchema {
    /// The schema's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address for a driver. Its sessions are known by the schema's name.
    pub fn url(&self) -> String {
        let separator = if self.server_url.contains('?') { '&' } else { '?' };
        let (url, name) = (&self.server_url, &self.name);
        format!("{url}{separator}options[search_path]={name}&application_name={name}")
    }
}

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        clean_up(&self.name, || async move {
            let mut connection = PgConnection::connect(&server_url).await?;
            // A transaction that somebody holds open would keep `DROP SCHEMA` waiting.
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
            sqlx::query(end).bind(&name).execute(&mut connection).await?;
            raw_sql(AssertSqlSafe(format!("DROP SCHEMA IF EXISTS {name} CASCADE")))
                .execute(&mut connection)
                .await?;
            connection.close().await
        });
    }
}

async fn create(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(connection).await.map(drop)
}

/// Leaves alone what somebody works in: a long test that is still running.
async fn drop_left_behind(connection: &mut PgConnection) {
    let unused = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE $1 \
                  AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = nspname)";
    let names: Result<Vec<String>, _> =
        sqlx::query_scalar(unused).bind(left_behind::PATTERN).fetch_all(&mut *connection).await;
    for name in names.unwrap_or_default().iter().filter(|name| left_behind::is_old(name)) {
        let sql = format!("DROP SCHEMA IF EXISTS {name} CASCADE");
        // Best effort: another test run may be doing the same.
        let _ = raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await;
    }
}

#[cfg(test)]
mod tests {
    use sqlx::PgPool;

    use super::*;

    async fn exists(connection: &mut PgConnection, name: &str) -> bool {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_namespace WHERE nspname = $1")
            .bind(name)
            .fetch_one(connection)
            .await
            .unwrap();
        count == 1
    }

    #[tokio::test]
    async fn a_schema_is_fresh_and_goes_with_its_value_also_while_in_use() {
        let Some(schema) = postgres_schema().await else { return };
        let pool = PgPool::connect(&schema.url()).await.unwrap();
        let mut open = pool.begin().await.unwrap();
        sqlx::query("CREATE TABLE t (a INT)").execute(&mut *open).await.unwrap();
        let mut server = PgConnection::connect(&schema.server_url).await.unwrap();
        assert!(exists(&mut server, schema.name()).await);
        let name = schema.name().to_owned();
        drop(schema);
        assert!(!exists(&mut server, &name).await);
    }

    #[tokio::test]
    async fn two_schemas_know_nothing_of_each_other() {
        let (Some(one), Some(two)) = tokio::join!(postgres_schema(), postgres_schema()) else { return };
        for schema in [&one, &two] {
            let pool = PgPool::connect(&schema.url()).await.unwrap();
            sqlx::query("CREATE TABLE the_same (a INT)").execute(&pool).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_killed_run_left_behind_is_dropped_unless_in_use() {
        let Some(fresh) = postgres_schema().await else { return };
        let mut server = PgConnection::connect(&fresh.server_url).await.unwrap();
        let (old, used) = (left_behind::example(), left_behind::example());
        create(&mut server, &old).await.unwrap();
        create(&mut server, &used).await.unwrap();
        // Dropped at the end of the test, like any other.
        let used = PostgresSchema { server_url: fresh.server_url.clone(), name: used };
        let guest = PgConnection::connect(&used.url()).await.unwrap();

        drop_left_behind(&mut server).await;
        assert!(!exists(&mut server, &old).await);
        assert!(exists(&mut server, &used.name).await);
        assert!(exists(&mut server, &fresh.name).await);
        guest.close().await.unwrap();
    }
}
