//! A PostgreSQL database of its own for each test.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, raw_sql};

use super::database::{clean_up, connect};
use super::left_behind;
use super::name;
use super::service::Service;
use crate::url;

pub(super) const SERVICE: Service =
    Service { label: "PostgreSQL", folder: "postgres", variable: "BACKSTOP_TEST_POSTGRES_URL" };

/// A fresh PostgreSQL database. When this value is dropped, so is the database, with all its connections.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(database) = backstop_testkit::servers::postgres().await else { return };
/// let pool = database.pool().await;
/// sqlx::query("CREATE TABLE orders (id BIGINT PRIMARY KEY)").execute(&pool).await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct PostgresDatabase {
    server_url: String,
    name: String,
}

/// Makes a fresh database on the server of `BACKSTOP_TEST_POSTGRES_URL`; `None` if there is no such
/// server, and then the test is marked as [skipped](crate::skip()).
///
/// The first call of a process also drops, as far as it can, the databases that killed test runs have
/// left behind more than an hour ago.
///
/// # Panics
///
/// If the server answers but does not let us create a database.
pub async fn postgres() -> Option<PostgresDatabase> {
    static TIDIED: AtomicBool = AtomicBool::new(false);
    let server_url = SERVICE.place()?;
    let mut connection = connect(&SERVICE, &server_url).await?;
    if !TIDIED.swap(true, Ordering::Relaxed) {
        drop_left_behind(&mut connection).await;
    }
    let name = name::fresh('_');
    if let Err(error) = create(&mut connection, &name).await {
        panic!("cannot create a database on the server of {}: {error}", SERVICE.variable);
    }
    Some(PostgresDatabase { server_url, name })
}

impl PostgresDatabase {
    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address for a driver.
    pub fn url(&self) -> String {
        url::with_database(&self.server_url, &self.name)
    }

    /// A small pool of connections.
    ///
    /// # Panics
    ///
    /// If the server does not let us in.
    pub async fn pool(&self) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(5).connect(&self.url()).await;
        pool.unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.name))
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        clean_up(&self.name, || async move {
            let mut connection = PgConnection::connect(&server_url).await?;
            let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
            connection.close().await
        });
    }
}

/// From `template0`, because nobody can be connected to it, which would forbid copying it; in UTF-8,
/// because a server set up without a locale would choose ASCII.
async fn create(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    let sql = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'");
    raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// Leaves alone what somebody is connected to: a long test that is still running.
async fn drop_left_behind(connection: &mut PgConnection) {
    let unused = "SELECT datname FROM pg_database d WHERE datname LIKE $1 \
                  AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.datname = d.datname)";
    let names: Result<Vec<String>, _> =
        sqlx::query_scalar(unused).bind(left_behind::PATTERN).fetch_all(&mut *connection).await;
    for name in names.unwrap_or_default().iter().filter(|name| left_behind::is_old(name)) {
        let sql = format!("DROP DATABASE IF EXISTS {name}");
        // Best effort: another test run may be doing the same.
        let _ = raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exists(connection: &mut PgConnection, name: &str) -> bool {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_database WHERE datname = $1")
            .bind(name)
            .fetch_one(connection)
            .await
            .unwrap();
        count == 1
    }

    #[tokio::test]
    async fn a_database_is_fresh_and_goes_with_its_value_also_while_in_use() {
        let Some(database) = postgres().await else { return };
        let pool = database.pool().await;
        let tables: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'",
        )
        .fetch_one(&pool)
        .await
        .unwrap();
        assert_eq!(tables, 0);
        let encoding: String = sqlx::query_scalar("SHOW server_encoding").fetch_one(&pool).await.unwrap();
        assert_eq!(encoding, "UTF8");

        let mut open = pool.begin().await.unwrap();
        sqlx::query("CREATE TABLE t (a INT)").execute(&mut *open).await.unwrap();
        let (server_url, name) = (database.server_url.clone(), database.name().to_owned());
        let mut server = PgConnection::connect(&server_url).await.unwrap();
        assert!(exists(&mut server, &name).await);
        drop(database);
        assert!(!exists(&mut server, &name).await);
    }

    #[tokio::test]
    async fn two_databases_know_nothing_of_each_other() {
        let (Some(one), Some(two)) = tokio::join!(postgres(), postgres()) else { return };
        assert_ne!(one.url(), two.url());
        for database in [&one, &two] {
            let pool = database.pool().await;
            sqlx::query("CREATE TABLE the_same (a INT)").execute(&pool).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_killed_run_left_behind_is_dropped_unless_in_use() {
        let Some(fresh) = postgres().await else { return };
        let mut server = PgConnection::connect(&fresh.server_url).await.unwrap();
        let (old, used) = (left_behind::example(), left_behind::example());
        create(&mut server, &old).await.unwrap();
        create(&mut server, &used).await.unwrap();
        // Dropped at the end of the test, like any other.
        let used = PostgresDatabase { server_url: fresh.server_url.clone(), name: used };
        let guest = PgConnection::connect(&used.url()).await.unwrap();

        drop_left_behind(&mut server).await;
        assert!(!exists(&mut server, &old).await);
        assert!(exists(&mut server, &used.name).await);
        assert!(exists(&mut server, &fresh.name).await);
        guest.close().await.unwrap();
    }
}
