//! A fresh SQLite database for each run, opened as Backstop opens it.

use anyhow::{Context, Result};
use sqlx::SqlitePool;
use tempfile::TempDir;

/// A database in a directory that vanishes with it.
pub(crate) struct Fresh {
    pub(crate) pool: SqlitePool,
    /// Kept for as long as the file is needed.
    _directory: TempDir,
}

impl Fresh {
    /// The file lies beside the program: a directory for temporary files may be kept in memory.
    pub(crate) async fn create() -> Result<Self> {
        let program = std::env::current_exe()?;
        let directory = tempfile::tempdir_in(program.parent().context("the program lies in no directory")?)?;
        let pool = backstop_sql::sqlite::open(directory.path().join("bench.db")).await?;
        Ok(Self { pool, _directory: directory })
    }

    pub(crate) async fn drop(self) {
        self.pool.close().await;
    }
}

pub(crate) async fn version() -> Result<String> {
    let pool = SqlitePool::connect("sqlite::memory:").await?;
    Ok(sqlx::query_scalar("select sqlite_version()").fetch_one(&pool).await?)
}
