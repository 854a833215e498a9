//! A connection as a component uses it: given up without harm, with a transaction or without, in the zone of a table,
//! behind a pooler or not.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::connection::{Column, Connection, Connections};
use super::statement::{Statement, Value};
use super::{Database, TimeZone, Via};
use crate::error::only_reads;
use crate::{BoxFuture, Error};

/// How long a rollback that nobody waits for may take.
const ROLLBACK: Duration = Duration::from_secs(5);

/// How long the pool is waited for before a connection beside it is taken.
const PATIENCE_WITH_POOL: Duration = Duration::from_secs(1);

/// How a transaction begins around a single statement. A simple statement: nothing is prepared for it.
const BEGIN: &str = "BEGIN";

/// How a database is reached.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setup {
    /// The zone of moments on the other side, where columns carry none. On this side they are in UTC.
    pub(crate) zone: TimeZone,
    /// Whether a pooler shares connections between transactions, as PgBouncer does: statements that belong together
    /// run in one transaction, and nothing is prepared, since the next transaction would not find it.
    pub(crate) pooled: bool,
}

/// A connection, set up.
///
/// One of our own that is dropped in the middle of a statement, or that leads to a read-only server, is closed and
/// not given back to its pool: a server that falls silent must not keep the pool waiting. One that is dropped within
/// a transaction of ours is rolled back first.
pub struct Session<'c> {
    reached: Reached<'c>,
    setup: Setup,
}

enum Reached<'c> {
    /// A connection of our own.
    Ours(Own),
    /// The caller's, in the caller's transaction.
    Callers(&'c mut dyn Connection),
    /// Behind a pooler: each statement is a transaction of its own, on whichever connection is free.
    Any(Database, Via),
}

/// A connection of our own.
struct Own {
    /// Taken out when it is dropped.
    connection: Option<Box<dyn Connection>>,
    is_running: bool,
    is_of_use: bool,
    /// Within a transaction that we have begun.
    has_begun: bool,
}

impl Session<'static> {
    /// A connection of our own.
    pub(crate) fn ours(connection: Box<dyn Connection>, setup: Setup) -> Self {
        let own = Own { connection: Some(connection), is_running: false, is_of_use: true, has_begun: false };
        Self { reached: Reached::Ours(own), setup }
    }

    /// Whichever connections a pooler gives.
    pub(super) fn any(database: Database, via: Via) -> Self {
        let setup = database.setup();
        Self { reached: Reached::Any(database, via), setup }
    }

    /// Begins a transaction. It is rolled back unless it is committed.
    pub(crate) async fn begin(mut self, begin: &str) -> Result<Self, Error> {
        let answer = self.execute(&Statement::plain(begin)).await;
        answer.map_err(|error| error.doing("beginning a transaction"))?;
        if let Reached::Ours(own) = &mut self.reached {
            own.has_begun = true;
        }
        Ok(self)
    }

    /// Commits the transaction.
    pub async fn commit(mut self) -> Result<(), Error> {
        let answer = self.execute(&Statement::plain("commit")).await;
        answer.map_err(|error| error.doing("committing a transaction"))?;
        if let Reached::Ours(own) = &mut self.reached {
            own.has_begun = false;
        }
        Ok(())
    }
}

impl<'c> Session<'c> {
    /// The caller's connection.
    pub(crate) fn callers(connection: &'c mut dyn Connection, setup: Setup) -> Self {
        Self { reached: Reached::Callers(connection), setup }
    }
}

impl Setup {
    /// A statement as the other side understands it.
    fn told(self, statement: &Statement) -> Cow<'_, Statement> {
        let mut told = Cow::Borrowed(statement);
        if !self.zone.is_utc() {
            told = Cow::Owned(told.with_values(|value| moved(value, self.zone.ahead())));
        }
        if self.pooled {
            told = Cow::Owned(told.unprepared());
        }
        told
    }

    /// Rows as this side understands them.
    fn understood(self, mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
        if !self.zone.is_utc() {
            for value in rows.iter_mut().flatten() {
                *value = moved(std::mem::replace(value, Value::Text(None)), -self.zone.ahead());
            }
        }
        rows
    }
}

fn moved(value: Value, by: TimeDelta) -> Value {
    match value {
        // A moment at the end of the calendar stays there.
        Value::Time(Some(moment)) => Value::Time(Some(moment.checked_add_signed(by).unwrap_or(moment))),
        other => other,
    }
}

impl Connection for Session<'_> {
    fn in_transaction(&self) -> bool {
        match &self.reached {
            Reached::Ours(own) => {
                own.has_begun || own.connection.as_ref().is_some_and(|it| it.in_transaction())
            }
            Reached::Callers(connection) => connection.in_transaction(),
            Reached::Any(..) => false,
        }
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let setup = self.setup;
            match &mut self.reached {
                Reached::Ours(own) => {
                    let answer = own.running()?.execute(&setup.told(statement)).await;
                    own.ran(answer)
                }
                Reached::Callers(connection) => connection.execute(&setup.told(statement)).await,
                Reached::Any(database, via) => {
                    let mut transaction = database.transaction(*via, BEGIN).await?;
                    let changed = transaction.execute(statement).await?;
                    transaction.commit().await?;
                    Ok(changed)
                }
            }
        })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let setup = self.setup;
            let rows = match &mut self.reached {
                Reached::Ours(own) => {
                    let answer = own.running()?.fetch(&setup.told(statement), columns).await;
                    own.ran(answer)?
                }
                Reached::Callers(connection) => connection.fetch(&setup.told(statement), columns).await?,
                Reached::Any(database, via) => {
                    let mut transaction = database.transaction(*via, BEGIN).await?;
                    let rows = transaction.fetch(statement, columns).await?;
                    transaction.commit().await?;
                    return Ok(rows);
                }
            };
            Ok(setup.understood(rows))
        })
    }

    fn give_up(&mut self) {
        match &mut self.reached {
            Reached::Ours(own) => own.is_of_use = false,
            Reached::Callers(connection) => connection.give_up(),
            Reached::Any(..) => {}
        }
    }
}

impl Own {
    fn running(&mut self) -> Result<&mut dyn Connection, Error> {
        let connection = self.connection.as_deref_mut().ok_or(Error::NoTransaction)?;
        self.is_running = true;
        Ok(connection)
    }

    fn ran<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        self.is_running = false;
        let reader = matches!(&answer, Err(Error::Database { source, .. }) if only_reads(source));
        self.is_of_use &= !reader;
        answer
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if self.has_begun && !self.is_running && self.is_of_use => {
                runtime.spawn(roll_back(connection));
            }
            // The server ends a transaction when it notices that the connection is gone.
            _ if self.has_begun || self.is_running || !self.is_of_use => connection.give_up(),
            _ => {}
        }
    }
}

/// Gives a connection back to its pool once its transaction is rolled back, and closes it otherwise.
async fn roll_back(connection: Box<dyn Connection>) {
    let mut session = Session::ours(connection, Setup::default());
    // Dropped in the middle, as when the runtime ends, it is closed.
    let rolled_back = timeout(ROLLBACK, session.execute(&Statement::plain("rollback"))).await;
    if !matches!(rolled_back, Ok(Ok(_))) {
        session.give_up();
    }
}

/// Where sessions come from.
impl Database {
    pub(crate) async fn session(&self, via: Via) -> Result<Session<'static>, Error> {
        if self.setup.pooled {
            return Ok(Session::any(self.clone(), via));
        }
        Ok(Session::ours(self.connect(via).await?, self.setup))
    }

    /// Begins a transaction of our own.
    pub(crate) async fn transaction(&self, via: Via, begin: &str) -> Result<Session<'static>, Error> {
        Session::ours(self.connect(via).await?, self.setup).begin(begin).await
    }

    /// The caller's connection, in the caller's transaction.
    pub(crate) fn within<'c>(&self, connection: &'c mut dyn Connection) -> Session<'c> {
        Session::callers(connection, self.setup)
    }

    async fn connect(&self, via: Via) -> Result<Box<dyn Connection>, Error> {
        match (via, &self.reserve) {
            (Via::Reserve, Some(reserve)) => reserve.connection().await,
            (Via::PoolOrReserve, Some(reserve)) => {
                in_time_or(self.pool.connection(), || reserve.connection()).await
            }
            _ => self.pool.connection().await,
        }
    }

    /// Gives up work that takes too long: if a network swallows everything, no error would ever come.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let given_up = |_| Err(Error::database("waiting for the database")(late()));
        timeout(self.patience, work).await.unwrap_or_else(given_up)
    }
}

/// What the pool gives in time, or what is found beside it. Where neither gives any, the cause counts if one of them knows
/// it; otherwise the pool's error: the other only tells that there was no way around it.
async fn in_time_or<'a, T>(
    pool: BoxFuture<'a, Result<T, Error>>,
    reserve: impl FnOnce() -> BoxFuture<'a, Result<T, Error>>,
) -> Result<T, Error> {
    let busy = || Error::database("taking a connection from the pool")(sqlx::Error::PoolTimedOut);
    match timeout(PATIENCE_WITH_POOL, pool).await.unwrap_or_else(|_| Err(busy())) {
        Err(error) if error.is_busy_pool() => reserve().await.map_err(|beside| {
            let knows = beside.is_outage() && !beside.is_busy_pool();
            if knows { beside } else { error }
        }),
        other => other,
    }
}

impl dyn Connections {
    /// Begins a transaction with the statement given. It is rolled back unless it is committed.
    #[doc(hidden)]
    pub async fn transaction(&self, begin: &str) -> Result<Session<'static>, Error> {
        Session::ours(self.connection().await?, Setup::default()).begin(begin).await
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// Where a component's connections come from, for code that runs its own statements.
impl Connections for Database {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async {
            let session = self.session(Via::Pool).await?;
            Ok(Box::new(session) as Box<dyn Connection>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_moved_and_everything_else_stays() {
        let hours = TimeDelta::hours(2);
        let moment = |text: &str| Value::Time(Some(text.parse().unwrap()));
        assert_eq!(moved(moment("2030-01-31T23:00:00Z"), hours), moment("2030-02-01T01:00:00Z"));
        for same in [
            Value::Time(None),
            Value::Int(Some(7)),
            "7".into(),
            Value::Time(Some(chrono::DateTime::<chrono::Utc>::MAX_UTC)),
        ] {
            assert_eq!(moved(same.clone(), hours), same);
        }
    }

    fn giving(one: u8) -> BoxFuture<'static, Result<u8, Error>> {
        Box::pin(async move { Ok(one) })
    }

    fn failing(source: sqlx::Error) -> BoxFuture<'static, Result<u8, Error>> {
        Box::pin(async { Err(Error::database("testing")(source)) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_beside_the_pool_is_taken_only_where_the_pool_has_none_in_time() {
        let silent = || Box::pin(std::future::pending());
        assert_eq!(in_time_or(giving(1), || giving(2)).await.unwrap(), 1);
        assert_eq!(in_time_or(silent(), || giving(2)).await.unwrap(), 2);
        assert_eq!(in_time_or(failing(sqlx::Error::PoolTimedOut), || giving(2)).await.unwrap(), 2);
        let refused = in_time_or(failing(sqlx::Error::PoolClosed), || giving(2)).await.unwrap_err();
        assert!(matches!(refused, Error::Database { source: sqlx::Error::PoolClosed, .. }), "{refused}");
        let neither = in_time_or(silent(), || failing(sqlx::Error::PoolClosed)).await;
        assert!(neither.unwrap_err().is_outage(), "it is tried again");
        let gone = || failing(sqlx::Error::Io(std::io::ErrorKind::ConnectionRefused.into()));
        let told = in_time_or(silent(), gone).await.unwrap_err().to_string();
        assert!(told.contains("connection refused"), "{told}");
    }
}
