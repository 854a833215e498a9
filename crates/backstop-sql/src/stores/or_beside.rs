//! The way around a pool whose connections the application keeps.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::connection::{Connection, Connections, Transaction};
use crate::{BoxFuture, Error};

/// How long the pool is waited for before one beside it is taken.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connections of a pool, and those beside it while the pool has none.
pub(super) struct OrBeside {
    pub(super) pool: Arc<dyn Connections>,
    pub(super) beside: Arc<dyn Connections>,
}

impl Connections for OrBeside {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection + '_>, Error>> {
        Box::pin(first(self.pool.connection(), || self.beside.connection()))
    }

    fn transaction(&self, begin: &'static str) -> BoxFuture<'_, Result<Box<dyn Transaction + '_>, Error>> {
        Box::pin(first(self.pool.transaction(begin), move || self.beside.transaction(begin)))
    }
}

/// What the pool gives in time, or what is found beside it. The pool's error is the one that counts: the other only tells
/// that there was no way around it.
async fn first<'a, T>(
    pool: BoxFuture<'a, Result<T, Error>>,
    beside: impl FnOnce() -> BoxFuture<'a, Result<T, Error>>,
) -> Result<T, Error> {
    let busy = || Error::database("taking a connection from the pool")(sqlx::Error::PoolTimedOut);
    match timeout(PATIENCE, pool).await.unwrap_or_else(|_| Err(busy())) {
        Err(error) if error.is_busy_pool() => beside().await.map_err(|_| error),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn giving(one: u8) -> BoxFuture<'static, Result<u8, Error>> {
        Box::pin(async move { Ok(one) })
    }

    fn failing(source: sqlx::Error) -> BoxFuture<'static, Result<u8, Error>> {
        Box::pin(async { Err(Error::database("testing")(source)) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_beside_the_pool_is_taken_only_where_the_pool_has_none_in_time() {
        let silent = || Box::pin(std::future::pending());
        assert_eq!(first(giving(1), || giving(2)).await.unwrap(), 1);
        assert_eq!(first(silent(), || giving(2)).await.unwrap(), 2);
        assert_eq!(first(failing(sqlx::Error::PoolTimedOut), || giving(2)).await.unwrap(), 2);
        let refused = first(failing(sqlx::Error::PoolClosed), || giving(2)).await.unwrap_err();
        assert!(matches!(refused, Error::Database { source: sqlx::Error::PoolClosed, .. }), "{refused}");
        let neither = first(silent(), || failing(sqlx::Error::PoolClosed)).await;
        assert!(neither.unwrap_err().is_outage(), "it is tried again");
    }
}
