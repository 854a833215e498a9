//! A fresh database for each run, with a backlog of due events.

use anyhow::{Context, Result};
use backstop_sql::TableName;
use backstop_sql::store::{SqlStore, Store};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};

pub(crate) struct Fresh {
    pub(crate) pool: PgPool,
    name: String,
}

fn server() -> Result<String> {
    std::env::var("BACKSTOP_TEST_POSTGRES_URL")
        .context("run this as `cargo xtask bench`, which starts PostgreSQL")
}

pub(crate) async fn fresh() -> Result<Fresh> {
    let url = server()?;
    let name = format!("bench_{}", std::process::id());
    let mut admin = PgConnection::connect(&url).await?;
    admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
    admin.execute(AssertSqlSafe(format!("create database {name}"))).await?;
    let own = match url.rsplit_once('/') {
        Some((server, _)) => format!("{server}/{name}"),
        None => anyhow::bail!("no database in the server's address"),
    };
    let pool = PgPoolOptions::new().max_connections(8).connect(&own).await?;
    Ok(Fresh { pool, name })
}

impl Fresh {
    pub(crate) async fn drop(self) -> Result<()> {
        self.pool.close().await;
        let mut admin = PgConnection::connect(&server()?).await?;
        admin.execute(AssertSqlSafe(format!("drop database {} with (force)", self.name))).await?;
        Ok(())
    }
}

/// Our table with `events` NEW rows of about 200 bytes of payload.
pub(crate) async fn fill(pool: &PgPool, events: u32) -> Result<()> {
    SqlStore::on(pool.clone(), TableName::default()).migrate().await?;
    sqlx::query(
        "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, attempts,
             available_at, created_at)
         select lpad(n::text, 26, '0'), 'OrderPlaced', 'Order', n::text,
                json_build_object('order', n, 'text', repeat('x', 170)), 0, 0,
                now() - interval '1 hour' + n * interval '1 microsecond',
                now() - interval '1 hour' + n * interval '1 microsecond'
         from generate_series(1, $1) as n",
    )
    .bind(i32::try_from(events)?)
    .execute(pool)
    .await?;
    pool.execute("vacuum analyze outbox_event").await?;
    pool.execute("checkpoint").await?;
    Ok(())
}
