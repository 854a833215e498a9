//! Migrations: embedded, rendered for the table name in use, each run once.

use crate::connection::{Connection, Kind};
use crate::statement::{Statement, Value};
use crate::stores::Dialect;
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
    /// The statements for a table of that name.
    fn statements(&self, table: &TableName) -> impl Iterator<Item = String> {
        let idx = if *table == TableName::default() { "idx".to_owned() } else { format!("idx_{table}") };
        let rendered = self.sql.replace("{table}", table.as_str()).replace("{idx}", &idx);
        let statements: Vec<_> = rendered.split(";\n").map(str::trim).map(str::to_owned).collect();
        statements.into_iter().filter(|statement| !statement.is_empty())
    }
}

/// Which versions each table has. Its own table, because other tools keep one of theirs.
const HISTORY: &str = "create table if not exists backstop_migration (
  table_name varchar(63) not null,
  version    bigint      not null,
  primary key (table_name, version)
)";

/// Brings a table up to date, one node at a time.
pub(crate) async fn migrate(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<(), Error> {
    let (begin, commit, rollback) = dialect.migration_lock();
    run(dialect, connection, begin).await?;
    match migrate_locked(dialect, connection, table).await {
        Ok(()) => run(dialect, connection, commit).await,
        Err(error) => {
            // The first error is the one that helps; a rollback that fails too only follows from it.
            let _ = run(dialect, connection, rollback).await;
            Err(error)
        }
    }
}

async fn migrate_locked(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<(), Error> {
    run(dialect, connection, HISTORY).await?;
    let current = version_of(dialect, connection, table).await?;
    not_newer(dialect, table, current)?;
    for migration in dialect.migrations().iter().filter(|migration| migration.version > current) {
        tracing::info!(table = %table, version = migration.version, "migrating");
        for statement in migration.statements(table) {
            run(dialect, connection, &statement).await?;
        }
        let mut note = Statement::new(dialect.marks());
        note.push("insert into backstop_migration (table_name, version) values (")
            .bind(table.as_str())
            .push(", ")
            .bind(migration.version)
            .push(")");
        connection.execute(&note).await?;
    }
    Ok(())
}

/// Checks that a table is there and up to date.
pub(crate) async fn check(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
    table: &TableName,
) -> Result<(), Error> {
    let mut question = Statement::new(dialect.marks());
    question.push(&format!("select claim_seq from {table} where 1 = 0"));
    connection.fetch(&question, &[Kind::Int]).await?;
    let current = version_of(dialect, connection, table).await?;
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
