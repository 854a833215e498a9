//! A MySQL or MariaDB database of its own for each test.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, MySqlPool, raw_sql};

use super::database::{clean_up, connect};
use super::left_behind;
use super::name;
use super::service::Service;
use crate::url;

const SERVICE: Service =
    Service { label: "MySQL or MariaDB", folder: "mysql", variable: "BACKSTOP_TEST_MYSQL_URL" };

const ORACLE: Service =
    Service { label: "Oracle's MySQL", folder: "oracle-mysql", variable: "BACKSTOP_TEST_ORACLE_MYSQL_URL" };

/// A fresh MySQL database, dropped with whoever is still connected when this value is dropped.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(database) = backstop_testkit::servers::mysql().await else { return };
/// let pool = database.pool().await;
/// sqlx::query("CREATE TABLE orders (id BIGINT PRIMARY KEY)").execute(&pool).await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct MysqlDatabase {
    server_url: String,
    name: String,
}

/// Makes a fresh database on the server of `BACKSTOP_TEST_MYSQL_URL`, MySQL or MariaDB; `None` if there
/// is no such server, and then the test is marked as [skipped](crate::skip()).
///
/// The first call of a process also drops, as far as it can, the databases that killed test runs have
/// left behind more than an hour ago.
///
/// # Panics
///
/// If the server answers but does not let us create a database.
pub async fn mysql() -> Option<MysqlDatabase> {
    fresh(&SERVICE).await
}

/// Makes a fresh database on the server of `BACKSTOP_TEST_ORACLE_MYSQL_URL`, for what Oracle's MySQL and MariaDB do in
/// different ways; `None` if there is no such server, and then the test is marked as [skipped](crate::skip()).
///
/// # Panics
///
/// If the server answers but lets us make no database.
pub async fn oracle_mysql() -> Option<MysqlDatabase> {
    fresh(&ORACLE).await
}

async fn fresh(service: &Service) -> Option<MysqlDatabase> {
    static TIDIED: AtomicBool = AtomicBool::new(false);
    let server_url = service.place()?;
    let mut connection = connect(service, &server_url).await?;
    if !TIDIED.swap(true, Ordering::Relaxed) {
        drop_left_behind(&mut connection).await;
    }
    let name = name::fresh('_');
    if let Err(error) = create(&mut connection, &name).await {
        panic!("cannot create a database on the server of {}: {error}", service.variable);
    }
    Some(MysqlDatabase { server_url, name })
}

impl MysqlDatabase {
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
    pub async fn pool(&self) -> MySqlPool {
        let pool = MySqlPoolOptions::new().max_connections(5).connect(&self.url()).await;
        pool.unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.name))
    }
}

impl Drop for MysqlDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        clean_up(&self.name, || async move {
            let mut connection = MySqlConnection::connect(&server_url).await?;
            end_connections(&mut connection, &name).await?;
            let sql = format!("DROP DATABASE IF EXISTS {name}");
            raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
            connection.close().await
        });
    }
}

async fn create(connection: &mut MySqlConnection, name: &str) -> Result<(), sqlx::Error> {
    let sql = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
    raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// A transaction that somebody holds open would keep `DROP DATABASE` waiting.
async fn end_connections(connection: &mut MySqlConnection, name: &str) -> Result<(), sqlx::Error> {
    let users: Vec<String> =
        sqlx::query_scalar("SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = ?")
            .bind(name)
            .fetch_all(&mut *connection)
            .await?;
    for user in users {
        // One that has ended by itself in the meantime cannot be killed, and need not.
        let _ = raw_sql(AssertSqlSafe(format!("KILL {user}"))).execute(&mut *connection).await;
    }
    Ok(())
}

/// Leaves alone what somebody is connected to: a long test that is still running.
async fn drop_left_behind(connection: &mut MySqlConnection) {
    let unused = "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE schema_name LIKE ? \
                  AND schema_name NOT IN (SELECT db FROM information_schema.processlist WHERE db IS NOT NULL)";
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

    async fn exists(connection: &mut MySqlConnection, name: &str) -> bool {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?")
                .bind(name)
                .fetch_one(connection)
                .await
                .unwrap();
        count == 1
    }

    #[tokio::test]
    async fn a_database_is_fresh_and_goes_with_its_value_also_while_in_use() {
        let Some(database) = mysql().await else { return };
        let pool = database.pool().await;
        let tables: Vec<String> = sqlx::query_scalar("SHOW TABLES").fetch_all(&pool).await.unwrap();
        assert!(tables.is_empty());

        // A transaction that has read a table keeps the table from being dropped.
        sqlx::query("CREATE TABLE t (a INT)").execute(&pool).await.unwrap();
        let mut open = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO t VALUES (1)").execute(&mut *open).await.unwrap();
        let (server_url, name) = (database.server_url.clone(), database.name().to_owned());
        let mut server = MySqlConnection::connect(&server_url).await.unwrap();
        assert!(exists(&mut server, &name).await);
        drop(database);
        assert!(!exists(&mut server, &name).await);
    }

    #[tokio::test]
    async fn two_databases_know_nothing_of_each_other() {
        let (Some(one), Some(two)) = tokio::join!(mysql(), mysql()) else { return };
        assert_ne!(one.url(), two.url());
        for database in [&one, &two] {
            let pool = database.pool().await;
            sqlx::query("CREATE TABLE the_same (a INT)").execute(&pool).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_killed_run_left_behind_is_dropped_unless_in_use() {
        let Some(fresh) = mysql().await else { return };
        let mut server = MySqlConnection::connect(&fresh.server_url).await.unwrap();
        let (old, used) = (left_behind::example(), left_behind::example());
        create(&mut server, &old).await.unwrap();
        create(&mut server, &used).await.unwrap();
        // Dropped at the end of the test, like any other.
        let used = MysqlDatabase { server_url: fresh.server_url.clone(), name: used };
        let guest = MySqlConnection::connect(&used.url()).await.unwrap();

        drop_left_behind(&mut server).await;
        assert!(!exists(&mut server, &old).await);
        assert!(exists(&mut server, &used.name).await);
        assert!(exists(&mut server, &fresh.name).await);
        guest.close().await.unwrap();
    }
}
