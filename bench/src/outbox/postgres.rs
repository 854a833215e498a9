//! A fresh PostgreSQL database for each run, with a backlog of due events.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use backstop_sql::TableName;
use backstop_sql::store::{SqlStore, Store};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};

/// A database of its own, on the server that the tests use.
pub(super) struct Fresh {
    pub(super) pool: PgPool,
    pub(super) url: String,
    name: String,
}

impl Fresh {
    pub(super) async fn create() -> Result<Self> {
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

    pub(super) async fn drop(self) -> Result<()> {
        self.pool.close().await;
        let mut admin = PgConnection::connect(&server()?).await?;
        admin.execute(AssertSqlSafe(format!("drop database {} with (force)", self.name))).await?;
        admin.close().await?;
        Ok(())
    }

    /// Our table, changed by statements before it has rows, with a backlog.
    pub(super) async fn fill_ours(&self, events: u32, changes: &[&'static str]) -> Result<()> {
        SqlStore::on(self.pool.clone(), TableName::default()).migrate().await?;
        for change in changes {
            self.pool.execute(*change).await?;
        }
        self.fill(events).await
    }

    /// `events` NEW rows of about 200 bytes of payload, due since an hour.
    pub(super) async fn fill(&self, events: u32) -> Result<()> {
        sqlx::query(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status,
                 attempts, available_at, created_at)
             select lpad(n::text, 26, '0'), 'OrderPlaced', 'Order', n::text,
                    json_build_object('order', n, 'text', repeat('x', 170)), 0, 0,
                    now() - interval '1 hour' + n * interval '1 microsecond',
                    now() - interval '1 hour' + n * interval '1 microsecond'
             from generate_series(1, $1) as n",
        )
        .bind(i32::try_from(events)?)
        .execute(&self.pool)
        .await?;
        self.settle_down().await
    }

    /// `events` rows of another pair of types that become due together, in a while.
    pub(super) async fn fill_second_route(&self, events: u32, due_in: Duration) -> Result<()> {
        sqlx::query(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status,
                 attempts, available_at, created_at)
             select 'i' || lpad(n::text, 25, '0'), 'InvoiceSent', 'Invoice', n::text,
                    json_build_object('order', n, 'text', repeat('x', 170)), 0, 0,
                    now() + $2 * interval '1 second', now() + n * interval '1 microsecond'
             from generate_series(1, $1) as n",
        )
        .bind(i32::try_from(events)?)
        .bind(due_in.as_secs_f64())
        .execute(&self.pool)
        .await?;
        self.settle_down().await
    }

    /// The work that the filling left behind is done before anybody is measured.
    pub(super) async fn settle_down(&self) -> Result<()> {
        self.pool.execute("vacuum analyze").await?;
        self.pool.execute("checkpoint").await?;
        Ok(())
    }
}

fn server() -> Result<String> {
    std::env::var("BACKSTOP_TEST_POSTGRES_URL")
        .context("run this as `cargo xtask bench`, which starts PostgreSQL")
}

pub(super) async fn open(url: &str) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(16).connect(url).await?)
}
