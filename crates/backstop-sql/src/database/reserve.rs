//! Connections beside the application's pool, for what must not wait for the application: claims are renewed on them,
//! and results are written on them while the pool has none.

use std::time::Duration;

use sqlx::pool::PoolConnection;

use super::acquire::acquire;
use super::connection::{Connection, Connections};
use crate::{BoxFuture, Error, aside};

/// One for renewals and one for settlements, so that neither waits for the other.
const CONNECTIONS: u32 = 2;

/// How long one of them may take to open, and is kept without use.
const OPENING: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);

/// Connections to the database of a pool, beside it, opened when they are needed. They are driven on a thread of their own,
/// so that they answer while handlers block all others.
pub(crate) struct Reserve<DB: sqlx::Database>(sqlx::Pool<DB>);

impl<DB: sqlx::Database> Reserve<DB> {
    pub(crate) fn of(pool: &sqlx::Pool<DB>) -> Self {
        // What the application does to a connection, such as choosing a schema, is done to these too.
        let few = pool.options().clone().min_connections(0).max_connections(CONNECTIONS);
        let few = few.acquire_timeout(OPENING).idle_timeout(IDLE);
        Self(few.connect_lazy_with((*pool.connect_options()).clone()))
    }

    async fn acquire(&self) -> Result<PoolConnection<DB>, Error> {
        let pool = self.0.clone();
        let acquired = aside::spawn(async move { acquire(&pool).await }).await;
        let acquired = acquired.unwrap_or(Err(sqlx::Error::WorkerCrashed));
        acquired.map_err(Error::database("taking a connection beside the pool"))
    }
}

impl<DB: sqlx::Database> Connections for Reserve<DB>
where
    PoolConnection<DB>: Connection,
{
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async { Ok(Box::new(self.acquire().await?) as Box<dyn Connection>) })
    }
}
