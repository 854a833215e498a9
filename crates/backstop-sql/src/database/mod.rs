//! A database, as every component uses it: statements with bound values, moments by its clock, rows that are kept from
//! others and changed, errors with words that help, locks and migrations. It knows no component's columns.

#[cfg(feature = "_any")]
pub(crate) mod acquire;
pub mod connection;
pub(crate) mod dialect;
pub(crate) mod lock;
pub(crate) mod migration;
#[cfg(feature = "_server")]
pub(crate) mod reserve;
pub(crate) mod rows;
pub(crate) mod session;
pub mod statement;
mod table;
pub(crate) mod text;
mod time_zone;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::Timestamp;
use chrono::TimeDelta;

use crate::Error;
use connection::{Column, Connection, Connections};
use dialect::{Dialect, Explanation};
use rows::{Change, Move, Rows};
use session::Setup;
use statement::{Parts, Statement, Value};

pub use table::TableName;
pub use time_zone::TimeZone;

/// How long reading, claiming and settling may take, by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a statement that lost against another one is tried.
const TRIES: u32 = 5;

/// A span longer than any table's life is as good as for ever.
pub(crate) fn delta(span: Duration) -> TimeDelta {
    const LONGEST: TimeDelta = TimeDelta::days(365 * 100);
    TimeDelta::from_std(span).map_or(LONGEST, |span| span.min(LONGEST))
}

/// By which clock a query is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum At {
    /// The database's own: the same for every node, however their clocks differ.
    #[default]
    Database,
    /// A moment given from outside, as tests do.
    Instant(Timestamp),
}

/// Which connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The pool's.
    Pool,
    /// Those beside the pool, for what must not wait for the application; the pool's where there are none.
    Reserve,
    /// The pool's, and those beside it while the application has all of the pool's.
    PoolOrReserve,
}

/// A database as one component reaches it. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    dialect: &'static dyn Dialect,
    pool: Arc<dyn Connections>,
    /// Connections that the application cannot take.
    reserve: Option<Arc<dyn Connections>>,
    setup: Setup,
    patience: Duration,
}

impl Database {
    pub(crate) fn new(dialect: &'static dyn Dialect, pool: Arc<dyn Connections>) -> Self {
        Self { dialect, pool, reserve: None, setup: Setup::default(), patience: PATIENCE }
    }

    pub(crate) fn reserve(mut self, reserve: Option<Arc<dyn Connections>>) -> Self {
        self.reserve = reserve;
        self
    }

    pub(crate) fn zone(mut self, zone: TimeZone) -> Self {
        self.setup.zone = zone;
        self
    }

    pub(crate) fn behind_pooler(mut self) -> Self {
        self.setup.pooled = true;
        self
    }

    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The same database on connections around its own, and with none beside them.
    pub(crate) fn through(
        mut self,
        around: impl FnOnce(Arc<dyn Connections>) -> Arc<dyn Connections>,
    ) -> Self {
        self.pool = around(self.pool);
        self.reserve = None;
        self
    }

    /// Whether there are connections beside the pool.
    pub(crate) fn has_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    pub(crate) fn dialect(&self) -> &'static dyn Dialect {
        self.dialect
    }

    pub(crate) fn setup(&self) -> Setup {
        self.setup
    }
}

/// Statements.
impl Database {
    /// A statement, written as a template.
    pub(crate) fn sql(&self, template: &str, parts: Parts<'_>) -> Statement {
        let mut statement = Statement::new(self.dialect.marks());
        statement.write(template, parts);
        statement
    }

    /// Adds the moment `at` plus `offset`, as the columns have it: the database's clock is asked in UTC, and moments that
    /// are bound are translated on their way.
    pub(crate) fn push_moment(&self, statement: &mut Statement, at: At, offset: TimeDelta) {
        self.dialect.moment(statement, at, self.setup.zone.ahead_of(at) + offset);
    }

    /// Adds the moment `at` plus, for each of the rows, an offset of its own.
    pub(crate) fn push_own_moment(
        &self,
        statement: &mut Statement,
        key: &str,
        at: At,
        ids: &[&str],
        offsets: &[TimeDelta],
    ) {
        let ahead = self.setup.zone.ahead_of(at);
        let offsets: Vec<_> = offsets.iter().map(|offset| ahead + *offset).collect();
        self.dialect.own_moment(statement, key, at, ids, &offsets);
    }

    /// Runs a statement that is a transaction of its own, again if it lost against another one.
    pub(crate) async fn execute_alone(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
    ) -> Result<u64, Error> {
        let mut tries = 1;
        loop {
            match connection.execute(statement).await {
                Err(error) if self.may_win(&mut tries, &error) => {}
                other => return other,
            }
        }
    }

    /// Locks rows and changes them, passing over those that somebody else holds, and reads the columns that the
    /// change asks for. Tried again if it lost against another statement.
    pub(crate) async fn change(
        &self,
        via: Via,
        rows: &Rows<'_>,
        change: &Change<'_>,
    ) -> Result<Vec<Vec<Value>>, Error> {
        let mut tries = 1;
        loop {
            match self.dialect.change(self, via, rows, change).await {
                Err(error) if self.may_win(&mut tries, &error) => {}
                other => return other,
            }
        }
    }

    /// Moves rows into another table, and returns the keys of those that were moved. Tried again if it lost against another
    /// statement.
    pub(crate) async fn move_rows(
        &self,
        via: Via,
        rows: &Rows<'_>,
        moving: &Move<'_>,
    ) -> Result<Vec<i64>, Error> {
        let mut tries = 1;
        loop {
            match self.dialect.move_rows(self, via, rows, moving).await {
                Err(error) if self.may_win(&mut tries, &error) => {}
                other => return other,
            }
        }
    }

    /// Whether what lost against another statement is worth another attempt.
    fn may_win(&self, tries: &mut u32, error: &Error) -> bool {
        let again = *tries < TRIES && self.means(error, Explanation::Lost);
        if again {
            *tries += 1;
            tracing::debug!(%error, "trying again");
        }
        again
    }

    /// Fails if the caller's transaction was ended by the database, or by a statement that commits: drivers do not notice.
    pub(crate) async fn check_within(&self, connection: &mut dyn Connection) -> Result<(), Error> {
        let Some(text) = self.dialect.refused_within().filter(|_| connection.in_transaction()) else {
            return Ok(());
        };
        match connection.execute(&Statement::plain(text)).await {
            Err(error) if self.means(&error, Explanation::Within) => Ok(()),
            // A foreign driver: nobody here knows how it reports that.
            Err(Error::Driver { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::RolledBack {
                said: format!("the database accepts `{text}`, which it refuses inside a transaction"),
            }),
        }
    }

    /// A whole number, which a query returns.
    pub(crate) async fn fetch_count(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
    ) -> Result<u64, Error> {
        let rows = connection.fetch(statement, &[Column::Int]).await?;
        let number = rows.first().and_then(|row| row.first()).and_then(Value::int);
        Ok(number.unwrap_or_default().unsigned_abs())
    }
}

/// What the database says.
impl Database {
    /// Whether an error says this.
    pub(crate) fn means(&self, error: &Error, explanation: Explanation) -> bool {
        matches!(error, Error::Database { source, .. } if self.dialect.explain(source) == Some(explanation))
    }

    /// Gives an error about a table the words that help.
    pub(crate) fn explain(&self, table: &TableName, error: Error) -> Error {
        let Error::Database { source, .. } = &error else { return error };
        let (table, said) = (table.to_string(), source.to_string());
        match self.dialect.explain(source) {
            Some(Explanation::NoTable) => Error::NoTable { table },
            Some(Explanation::NotPermitted) => Error::NotPermitted { table, said },
            Some(Explanation::OnlyReads) => Error::OnlyReads { table, said },
            Some(Explanation::Pooler) => Error::Pooler,
            Some(Explanation::Lost | Explanation::Aborted | Explanation::Within) | None => error,
        }
    }

    /// Checks that a zone that was given means something: where columns carry theirs, it would make moments wrong. And
    /// where they carry none, that the session does not shift moments on their way.
    pub(crate) async fn check_zone(
        &self,
        connection: &mut dyn Connection,
        table: &TableName,
        moments: &[&str],
    ) -> Result<(), Error> {
        let (zone, shifting) = (self.setup.zone, self.dialect.shifting_zone());
        if zone.is_utc() && shifting.is_none() {
            return Ok(());
        }
        let zoneless = match self.dialect.zoneless(table, moments) {
            Some(statement) => self.fetch_count(connection, &statement).await?,
            None => 0,
        };
        if !zone.is_utc() && zoneless != moments.len() as u64 {
            return Err(Error::TimeZoneKnown { table: table.to_string() });
        }
        let Some(question) = shifting.filter(|_| zoneless > 0) else { return Ok(()) };
        let rows = connection.fetch(&Statement::plain(question), &[Column::Text]).await?;
        match Value::texts(rows).pop() {
            Some(zone) => Err(Error::SessionTimeZone { table: table.to_string(), zone }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}
