//! Migrations: embedded, rendered for the table name in use, each run once.

use super::connection::{Column, Connection};
use super::dialect::{Dialect, Explanation};
use super::statement::{Statement, Value};
use super::{Database, TableName, Via};
use crate::Error;

/// One step of a table's schema. `{table}` in it stands for the table's name and `{idx}` for the beginning
/// of its indexes' names, which some databases keep in one space for all tables.
#[derive(Debug)]
pub(crate) struct Migration {
    /// Its place in the order, from 1.
    pub(crate) version: i64,
    /// Its statements, each ended by a semicolon at the end of a line.
    pub(crate) sql: &'static str,
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

    /// The statement that records that it ran, for those who run the text by hand; it may be run twice.
    fn note(&self, table: &TableName) -> String {
        let Self { version, .. } = self;
        format!(
            "INSERT INTO backstop_migration (table_name, version)\nSELECT '{table}', {version} WHERE NOT EXISTS\n  \
             (SELECT 1 FROM backstop_migration WHERE table_name = '{table}' AND version = {version})"
        )
    }
}

/// The table of a component, and how it came to be what it is.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) table: TableName,
    /// The column that holds its key: a table without it is somebody else's, and is not touched.
    pub(crate) key: &'static str,
    /// All columns that the component reads or writes.
    pub(crate) columns: &'static [&'static str],
    /// In order.
    pub(crate) migrations: &'static [Migration],
}

/// Which versions each table has. Its own table, because other tools keep one of theirs.
const HISTORY: &str = "CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
)";

impl Schema {
    /// All migrations as one text, for those who run them with another tool.
    pub(crate) fn script(&self) -> String {
        let mut parts = vec![format!("{HISTORY};\n")];
        for migration in self.migrations {
            parts.push(migration.rendered(&self.table));
            parts.push(format!("{};\n", migration.note(&self.table)));
        }
        parts.join("\n")
    }

    /// Brings the table up to date, one node at a time.
    pub(crate) async fn migrate(&self, database: &Database) -> Result<(), Error> {
        // A task of its own, which goes on when the caller gives up: a lock that belongs to the session
        // would go back to the pool with the connection.
        let (schema, of) = (self.clone(), database.clone());
        let migrating = tokio::spawn(async move { schema.migrate_if_old(&of).await });
        let migrated = migrating.await.unwrap_or(Err(Error::State("the migration was interrupted")));
        migrated.map_err(|error| database.explain(&self.table, error))
    }

    async fn migrate_if_old(&self, database: &Database) -> Result<(), Error> {
        match self.check_on(database).await {
            // Whoever may not create tables can still be told that there is nothing to create.
            Ok(()) => return Ok(()),
            // No migration of ours is open, so none would mend it.
            Err(error @ Error::ChangedTable { .. }) => return Err(error),
            Err(_) => {}
        }
        let dialect = database.dialect();
        let mut transaction = database.transaction(Via::Pool, dialect.migration_begin()).await?;
        dialect.lock_migrations(&mut transaction).await?;
        let migrated = self.migrate_locked(dialect, &mut transaction).await;
        // Also after a failure, since the lock may outlive the transaction; the first error is the one that helps.
        let unlocked = dialect.unlock_migrations(&mut transaction).await;
        let ran = migrated.and_then(|ran| unlocked.map(|()| ran))?;
        transaction.commit().await?;
        // A table that was there before may lack more than our migrations add.
        if ran { self.check_columns(dialect, &mut database.session(Via::Pool).await?).await } else { Ok(()) }
    }

    /// Runs what did not run yet, and tells whether there was anything.
    async fn migrate_locked(
        &self,
        dialect: &dyn Dialect,
        connection: &mut dyn Connection,
    ) -> Result<bool, Error> {
        // Now that nobody else migrates: whoever had the lock before may have made the table.
        let is_missing = self.is_missing(dialect, connection).await?;
        run(connection, HISTORY).await?;
        let noted = self.version(dialect, connection).await?;
        self.not_newer(noted)?;
        // A table that somebody dropped is made again from the beginning, whatever was noted of it.
        let current = if is_missing { 0 } else { noted };
        let mut ran = false;
        for migration in self.migrations.iter().filter(|migration| migration.version > current) {
            tracing::info!(table = %self.table, version = migration.version, "migrating");
            for statement in migration.statements(&self.table) {
                match run(connection, &statement).await {
                    Err(Error::Database { source, .. }) if dialect.is_there_already(&source) => {}
                    other => other?,
                }
            }
            run(connection, &migration.note(&self.table)).await?;
            ran = true;
        }
        Ok(ran)
    }

    /// Whether there is no such table. Asked behind a savepoint, since a statement that fails may end its transaction.
    async fn is_missing(
        &self,
        dialect: &dyn Dialect,
        connection: &mut dyn Connection,
    ) -> Result<bool, Error> {
        run(connection, "savepoint backstop_look").await?;
        let found = self.find(connection).await;
        run(connection, "rollback to savepoint backstop_look").await?;
        match found {
            Ok(()) => Ok(false),
            Err(error) if is_no_table(dialect, &error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn find(&self, connection: &mut dyn Connection) -> Result<(), Error> {
        let question = Statement::plain(&format!("select {} from {} where 1 = 0", self.key, self.table));
        connection.fetch(&question, &[Column::Text]).await.map(drop)
    }

    /// Checks that the table is there and up to date.
    pub(crate) async fn check(&self, database: &Database) -> Result<(), Error> {
        self.check_on(database).await.map_err(|error| database.explain(&self.table, error))
    }

    async fn check_on(&self, database: &Database) -> Result<(), Error> {
        let (dialect, mut session) = (database.dialect(), database.session(Via::Pool).await?);
        self.find(&mut session).await?;
        let found = match self.version(dialect, &mut session).await {
            // Nobody has migrated anything here: the table is somebody else's work.
            Err(error) if is_no_table(dialect, &error) => 0,
            other => other?,
        };
        self.not_newer(found)?;
        let wanted = self.latest();
        if found < wanted {
            return Err(Error::OldSchema { table: self.table.to_string(), found, wanted });
        }
        self.check_columns(dialect, &mut session).await
    }

    /// Checks that all columns are there: a migration of another program may have taken one away or renamed it. One that
    /// was added changes nothing for us.
    async fn check_columns(
        &self,
        dialect: &dyn Dialect,
        connection: &mut dyn Connection,
    ) -> Result<(), Error> {
        let question = format!("select {} from {} where 1 = 0", self.columns.join(", "), self.table);
        let asked = connection.execute(&Statement::plain(&question)).await;
        asked.map(drop).map_err(|error| match &error {
            Error::Database { source, .. } if dialect.explain(source).is_none() && !error.is_outage() => {
                Error::ChangedTable { table: self.table.to_string(), said: source.to_string() }
            }
            _ => error,
        })
    }

    async fn version(&self, dialect: &dyn Dialect, connection: &mut dyn Connection) -> Result<i64, Error> {
        let mut question = Statement::new(dialect.marks());
        question.push("select max(version) from backstop_migration where table_name = ");
        question.bind(self.table.as_str());
        let answer = connection.fetch(&question, &[Column::Int]).await?;
        Ok(answer.first().and_then(|row| row.first()).and_then(Value::int).unwrap_or_default())
    }

    /// A table that a newer Backstop migrated may mean things that this one does not know.
    fn not_newer(&self, found: i64) -> Result<(), Error> {
        let known = self.latest();
        if found > known {
            return Err(Error::NewSchema { table: self.table.to_string(), found, known });
        }
        Ok(())
    }

    fn latest(&self) -> i64 {
        self.migrations.iter().map(|migration| migration.version).max().unwrap_or_default()
    }
}

fn is_no_table(dialect: &dyn Dialect, error: &Error) -> bool {
    matches!(error, Error::Database { source, .. } if dialect.explain(source) == Some(Explanation::NoTable))
}

async fn run(connection: &mut dyn Connection, text: &str) -> Result<(), Error> {
    connection.execute(&Statement::plain(text)).await.map(drop)
}
