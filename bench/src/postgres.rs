//! A fresh PostgreSQL database for each run.

use anyhow::{Context, Result, bail};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};

/// A database of its own, on the server that the tests use.
pub(crate) struct Fresh {
    pub(crate) pool: PgPool,
    pub(crate) url: String,
    name: String,
}

impl Fresh {
    pub(crate) async fn create() -> Result<Self> {
        let server = server()?;
        let name = format!("bench_{}", std::process::id());
        let mut admin = PgConnection::connect(&server).await?;
        admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
        admin.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        admin.close().await?;
        let Some((server, _)) = server.rsplit_once('/') else { bail!("no database in the server's address") };
        let url = format!("{server}/{name}");
        let pool = open(&url).await?;
        Ok(Self { pool, url, name })
    }

    pub(crate) async fn drop(self) -> Result<()> {
        self.pool.close().await;
        let mut admin = PgConnection::connect(&server()?).await?;
        admin.execute(AssertSqlSafe(format!("drop database {} with (force)", self.name))).await?;
        admin.close().await?;
        Ok(())
    }

    /// The work that the filling left behind is done before anybody is measured.
    pub(crate) async fn settle_down(&self) -> Result<()> {
        self.pool.execute("vacuum analyze").await?;
        self.pool.execute("checkpoint").await?;
        Ok(())
    }
}

fn server() -> Result<String> {
    std::env::var("BACKSTOP_TEST_POSTGRES_URL")
        .context("run this as `cargo xtask bench`, which starts PostgreSQL")
}

pub(crate) async fn open(url: &str) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(16).connect(url).await?)
}
