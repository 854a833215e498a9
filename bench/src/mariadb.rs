//! A fresh database for each run on MariaDB or MySQL.

use anyhow::{Context, Result, bail};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, MySqlPool};

/// A database of its own, on the server that the tests use.
pub(crate) struct Fresh {
    pub(crate) pool: MySqlPool,
    name: String,
    admin: MySqlConnection,
}

impl Fresh {
    pub(crate) async fn create() -> Result<Self> {
        let server = server()?;
        let name = format!("bench_{}", std::process::id());
        let Some((address, _)) = server.rsplit_once('/') else {
            bail!("no database in the server's address")
        };
        let mut admin = MySqlConnection::connect(&server).await?;
        admin.execute(AssertSqlSafe(format!("drop database if exists {name}"))).await?;
        admin.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        let pool = backstop_sql::mysql::open(&format!("{address}/{name}")).await?;
        Ok(Self { pool, name, admin })
    }

    pub(crate) async fn drop(mut self) -> Result<()> {
        self.pool.close().await;
        self.admin.execute(AssertSqlSafe(format!("drop database {}", self.name))).await?;
        Ok(())
    }
}

pub(crate) async fn version() -> Result<String> {
    let mut connection = MySqlConnection::connect(&server()?).await?;
    Ok(sqlx::query_scalar("select version()").fetch_one(&mut connection).await?)
}

fn server() -> Result<String> {
    std::env::var("BACKSTOP_TEST_MYSQL_URL").context("run this as `cargo xtask bench`, which starts MariaDB")
}
