//! The pool of a component, on whichever database its URL names.

use backstop_sql::store::DatabaseKind;
use backstop_sql::{Supported, mysql, postgres, sqlite};
use sqlx::Pool;

use crate::config::settings::Database;

/// What is started on a pool, once it is known of which database.
pub(super) trait Starts {
    type Running;

    fn on<DB: Supported>(self, pool: Pool<DB>) -> impl Future<Output = anyhow::Result<Self::Running>> + Send;
}

/// Connects and starts. What cannot be started leaves no connection behind.
pub(super) async fn start_on<T, S: Starts>(database: &Database<T>, work: S) -> anyhow::Result<S::Running> {
    let Database { url, pool_size: size, tls, .. } = database;
    let (url, size) = (url.reveal(), *size);
    match DatabaseKind::of(url)? {
        DatabaseKind::Mysql => start(mysql::open_with(url, size, tls).await?, work).await,
        DatabaseKind::Postgres => start(postgres::open_with(url, size, tls).await?, work).await,
        DatabaseKind::Sqlite => start(sqlite::open_with(url, size, tls).await?, work).await,
    }
}

async fn start<DB: Supported, S: Starts>(pool: Pool<DB>, work: S) -> anyhow::Result<S::Running> {
    let started = work.on(pool.clone()).await;
    if started.is_err() {
        pool.close().await;
    }
    started
}
