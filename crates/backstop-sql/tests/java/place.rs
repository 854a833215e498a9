//! A fresh database with the Java framework's table on it.

use std::any::Any;
use std::time::Duration;

use backstop_sql::outbox::{Builder, MultiNode};
use backstop_sql::store::{DatabaseKind, SqlStore};
use backstop_sql::{Outbox, Supported, TableName};
use sqlx::{MySql, Pool, Postgres};

use crate::framework::{Framework, ddl};

/// The database, and the framework's first node on it.
pub(crate) struct Place<DB: Supported> {
    pub(crate) pool: Pool<DB>,
    pub(crate) java: Framework,
    /// Goes last: the database goes with it.
    _guard: Box<dyn Any + Send + Sync>,
}

pub(crate) async fn java_on_mysql() -> Option<Place<MySql>> {
    let guard = backstop_testkit::servers::mysql().await?;
    let pool = backstop_sql::mysql::open(&guard.url()).await.unwrap();
    Some(Place::new(DatabaseKind::Mysql, pool, guard.pool().await, "DATETIME(6)", Box::new(guard)).await)
}

/// With columns that carry no time zone.
pub(crate) async fn java_on_postgres() -> Option<Place<Postgres>> {
    on_postgres("TIMESTAMP(6)").await
}

/// With columns that carry one.
pub(crate) async fn java_on_postgres_zoned() -> Option<Place<Postgres>> {
    on_postgres("TIMESTAMPTZ(6)").await
}

async fn on_postgres(moment: &str) -> Option<Place<Postgres>> {
    let guard = backstop_testkit::servers::postgres().await?;
    let pool = backstop_sql::postgres::open(&guard.url()).await.unwrap();
    Some(Place::new(DatabaseKind::Postgres, pool, guard.pool().await, moment, Box::new(guard)).await)
}

impl<DB: Supported> Place<DB> {
    /// The framework has connections of its own.
    async fn new(
        kind: DatabaseKind,
        pool: Pool<DB>,
        javas: Pool<DB>,
        moment: &str,
        guard: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let java = Framework::new(kind, DB::connections(javas));
        java.run_text(&ddl(kind, moment)).await;
        Self { pool, java, _guard: guard }
    }

    pub(crate) fn store(&self) -> SqlStore {
        SqlStore::on(self.pool.clone(), TableName::default())
    }

    /// A node beside the framework that looks often and retries soon.
    pub(crate) fn node(&self) -> Builder<DB, MultiNode> {
        Outbox::multi_node(self.pool.clone())
            .beside_java(true)
            .claim_locking(Duration::from_secs(300))
            .skip_recent(Duration::from_secs(5))
            .interval(Duration::from_millis(50))
            .max_attempts(3)
            .retry_policy(|_, _| Duration::from_millis(20))
    }
}
