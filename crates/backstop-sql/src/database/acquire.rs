//! A connection of a pool, or why there is none.

use std::io;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{ConnectOptions as _, Connection, Database, Pool};
use tokio::time::timeout;

/// How long it may take to learn what a pool has waited for.
const ASKING: Duration = Duration::from_secs(1);

/// Takes a connection.
pub(crate) async fn acquire<DB: Database>(pool: &Pool<DB>) -> Result<PoolConnection<DB>, sqlx::Error> {
    told(pool, pool.acquire().await).await
}

/// An answer of a pool, with the cause where the pool only says that it has waited: it tries again for as long as a
/// server refuses connections.
pub(crate) async fn told<DB: Database, T>(
    pool: &Pool<DB>,
    answer: Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    // With all of its connections in use it has waited for one of them.
    let is_full = pool.size() >= pool.options().get_max_connections();
    match answer {
        Err(sqlx::Error::PoolTimedOut) if !is_full => Err(cause::<DB>(&pool.connect_options()).await),
        other => other,
    }
}

/// Why no connection can be made; that a pool has waited, if one can.
pub(crate) async fn cause<DB: Database>(options: &<DB::Connection as Connection>::Options) -> sqlx::Error {
    match timeout(ASKING, options.connect()).await {
        Ok(Err(cause)) => cause,
        Ok(Ok(connection)) => {
            let _ = timeout(ASKING, connection.close()).await;
            sqlx::Error::PoolTimedOut
        }
        Err(_) => sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
    }
}
