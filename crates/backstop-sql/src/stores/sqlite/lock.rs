//! The right to deliver from a table, alone or with others that claim: a lock on a file beside the database's.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use sqlx::SqlitePool;

use crate::database::lock::{Holder, Right, Share};
use crate::{BoxFuture, Error, TableName};

/// The locked file; none for a database in memory.
impl Holder for Option<File> {
    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        drop(self); // closing the file lets go of its lock
        Box::pin(async {})
    }
}

/// Locks `<database>.<table>.lock`, with the table's name in lower case: SQLite knows a table by its name in any.
/// The system releases it when the process ends, however it ends.
pub(super) async fn take(pool: &SqlitePool, table: &TableName, share: Share) -> Result<Right, Error> {
    let Some(database) = database_file(pool).await? else {
        return Ok(Right::held_by(None)); // in memory: nobody else can reach it
    };
    let path = PathBuf::from(format!("{database}.{}.lock", table.as_str().to_ascii_lowercase()));
    let unusable = |source| Error::LockFile { path: path.clone(), source };
    let file = File::options().create(true).append(true).open(&path).map_err(unusable)?;
    let locked = match share {
        Share::Alone => file.try_lock(),
        Share::Claiming => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(Right::held_by(Some(file))),
        Err(TryLockError::WouldBlock) => Err(Error::NotAlone { table: table.to_string() }),
        Err(TryLockError::Error(source)) => Err(Error::LockFile { path, source }),
    }
}

async fn database_file(pool: &SqlitePool) -> Result<Option<String>, Error> {
    let file: Option<String> =
        sqlx::query_scalar("select file from pragma_database_list where name = 'main'")
            .fetch_one(pool)
            .await
            .map_err(Error::database("asking for the database's file"))?;
    Ok(file.filter(|file| !file.is_empty()))
}
