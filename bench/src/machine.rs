//! What the figures were measured on.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use sqlx::{AssertSqlSafe, PgPool};

/// Settings of PostgreSQL that move the figures.
const POSTGRES_SETTINGS: &str = "'autovacuum', 'fsync', 'full_page_writes', 'max_wal_size', 'shared_buffers', \
     'synchronous_commit', 'wal_level'";

#[derive(Serialize, Default)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: Option<String>,
    pub(crate) memory: Option<String>,
    pub(crate) rustc: Option<String>,
    /// Databases by name, with what each says of its version.
    pub(crate) servers: BTreeMap<&'static str, String>,
    pub(crate) postgres_settings: BTreeMap<String, String>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field_of("/proc/cpuinfo", "model name"),
            memory: field_of("/proc/meminfo", "MemTotal"),
            rustc: rustc(),
            ..Self::default()
        }
    }

    pub(crate) async fn ask_postgres(&mut self, pool: &PgPool) -> Result<()> {
        let version = sqlx::query_scalar("select version()").fetch_one(pool).await?;
        self.servers.insert("PostgreSQL", version);
        let settings = format!(
            "select name, current_setting(name) from pg_settings where name in ({POSTGRES_SETTINGS})
             union all select 'collation', datcollate from pg_database where datname = current_database()"
        );
        let settings: Vec<(String, String)> = sqlx::query_as(AssertSqlSafe(settings)).fetch_all(pool).await?;
        self.postgres_settings = settings.into_iter().collect();
        Ok(())
    }
}

/// The value behind `name:` in a file of `/proc`; none on other systems.
pub(crate) fn field_of(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn rustc() -> Option<String> {
    let said = std::process::Command::new("rustc").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
