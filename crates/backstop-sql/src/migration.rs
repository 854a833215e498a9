//! Migrations: embedded, rendered for the table name in use, each run once.

use crate::connection::{Connection, Connections, Kind};
use crate::statement::{Statement, Value};
use crate::stores::{Dialect, Explanation};
use crate::{Error, TableName};

/// One step of a table's schema. `{table}` in it stands for the table's name and `{idx}` for the beginning
/// of its indexes' names, which some databases keep in one space for all tables.
#[derive(Debug)]
pub struct Migration {
    /// Its place in the order, from 1.
    pub version: i64,
    /// Its statements, each ended by a semicolon at the end of a line.
    pub sql: &'static str,
}

impl Migration {
    /// The text for a table of that name.
    fn rendered(&self, table: &TableName) -> String {
        self.sql.replace("{table}", table.as_str()).replace("{idx}", &table.index_prefix())
    }

    /// Its statements for a table of that name.
    fn statements(&self, table: &TableName) -> Vec<String> {
        let rendered = self.rendered(table);
        rendered.split(";\n").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    }

    /// The statement that writes down that it ran, for whoever runs the text by hand; it may be run twice.
    fn note(&self, table: &TableName) -> String {
        let Self { version, .. } = self;
        format!(
            "INSERT INTO backstop_migration (table_name, version)\nSELECT '{table}', {version} WHERE NOT EXISTS\n  \
             (SELECT 1 FROM backstop_migration WHERE table_name = '{table}' AND version = {version})"
        )
    }
}

/// Which versions each table has. Its own table, because other tools keep one of theirs.
const HISTORY: &str = "CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
)";

/// All migrations as one text, for whoever runs them with another tool.
pub(crate) fn script(dialect: &dyn Dialect, table: &TableName) -> String {
    let mut parts = vec![format!("{HISTORY};\n")];
    for migration in dialect.migrations() {
        parts.push(migration.rendered(table));
        parts.push(format!("{};\n", migration.note(table)));
    }
    parts.join("\n")
}

/// Brings a table up to date, one node at a time.
pub(crate) async fn migrate(
    dialect: &dyn Dialect,
    connections: &dyn Connections,
    table: &TableName,
) -> Result<(), Error> {
    // Whoever may not create tables can still be told that there is nothing to create.
    if check(dialect, &mut *connections.connection().await?, table).await.is_ok() {
        return Ok(());
    }
    let mut transaction = connections.transaction(dialect.migration_begin()).await?;
    dialect.lock_migrations(&mut *transaction).await?;
    let migrated = migrate_locked(dialect, &mut *transaction, table).await;
    // Also after a failure, since the lock may outlive the transaction; the first error is the one that helps.
    let unlocked = dialect.unlock_migrations(&mut *transaction).await;
    migrated.and(unlocked)?;
    transaction.commit().await
}

async fn migrate_locked(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<(), Error> {
    // Now that nobody else migrates: whoever had the lock before may have made the table.
    let is_missing = is_missing(dialect, connection, table).await?;
    run(dialect, connection, HISTORY).await?;
    let noted = version_of(dialect, connection, table).await?;
    not_newer(dialect, table, noted)?;
    // A table that somebody dropped is made again from the beginning, whatever was noted of it.
    let current = if is_missing { 0 } else { noted };
    for migration in dialect.migrations().iter().filter(|migration| migration.version > current) {
        tracing::info!(table = %table, version = migration.version, "migrating");
        for statement in migration.statements(table) {
            match run(dialect, connection, &statement).await {
                Err(Error::Database { source, .. }) if dialect.is_there_already(&source) => {}
                other => other?,
            }
        }
        run(dialect, connection, &migration.note(table)).await?;
    }
    Ok(())
}

/// Whether there is no such table. Asked behind a savepoint, since a statement that fails may end its transaction.
async fn is_missing(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<bool, Error> {
    run(dialect, connection, "savepoint backstop_look").await?;
    let found = find(dialect, connection, table).await;
    run(dialect, connection, "rollback to savepoint backstop_look").await?;
    match found {
        Ok(()) => Ok(false),
        Err(Error::Database { source, .. }) if dialect.explain(&source) == Some(Explanation::NoTable) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

async fn find(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<(), Error> {
    let mut question = Statement::new(dialect.marks());
    question.push(&format!("select event_id from {table} where 1 = 0"));
    connection.fetch(&question, &[Kind::Text]).await.map(drop)
}

/// Checks that a table is there and up to date.
pub(crate) async fn check(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<(), Error> {
    find(dialect, connection, table).await?;
    let current = match version_of(dialect, connection, table).await {
        // Nobody has migrated anything here: the table is somebody else's work.
        Err(Error::Database { source, .. }) if dialect.explain(&source) == Some(Explanation::NoTable) => 0,
        other => other?,
    };
    not_newer(dialect, table, current)?;
    if current < latest(dialect) {
        return Err(Error::OldSchema { table: table.to_string(), found: current, wanted: latest(dialect) });
    }
    Ok(())
}

async fn version_of(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<i64, Error> {
    let mut question = Statement::new(dialect.marks());
    question.push("select max(version) from backstop_migration where table_name = ").bind(table.as_str());
    let answer = connection.fetch(&question, &[Kind::Int]).await?;
    Ok(match answer.first().map(Vec::as_slice) {
        Some([Value::Int(Some(version))]) => *version,
        _ => 0,
    })
}

/// A table that a newer Backstop migrated may mean things that this one does not know.
fn not_newer(dialect: &dyn Dialect, table: &TableName, found: i64) -> Result<(), Error> {
    let known = latest(dialect);
    if found > known {
        return Err(Error::NewSchema { table: table.to_string(), found, known });
    }
    Ok(())
}

fn latest(dialect: &dyn Dialect) -> i64 {
    dialect.migrations().iter().map(|migration| migration.version).max().unwrap_or_default()
}

async fn run(dialect: &dyn Dialect, connection: &mut dyn Connection, text: &str) -> Result<(), Error> {
    let mut statement = Statement::new(dialect.marks());
    statement.push(text);
    connection.execute(&statement).await.map(drop)
}
