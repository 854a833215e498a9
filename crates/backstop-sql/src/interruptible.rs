//! A pool's connections for statements that may be given up: a server that falls silent must not keep the pool waiting.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::connection::{Connection, Kind, Transaction};
use crate::error::only_reads;
use crate::statement::{Statement, Value};
use crate::{BoxFuture, Error};

/// How long a rollback may take that nobody waits for.
const ROLLBACK: Duration = Duration::from_secs(5);

/// A pool's connection that is closed, and not given back, if it is dropped in the middle of a statement, or if it
/// leads to a server that only reads.
pub(crate) struct Interruptible<DB: sqlx::Database> {
    connection: PoolConnection<DB>,
    running: bool,
    is_of_use: bool,
}

impl<DB: sqlx::Database> Interruptible<DB> {
    pub(crate) fn new(connection: PoolConnection<DB>) -> Self {
        Self { connection, running: false, is_of_use: true }
    }

    /// Closes it when it is dropped, unless it is of use.
    fn keep_if(&mut self, of_use: bool) {
        self.is_of_use &= of_use;
    }

    fn ran<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.running = false;
        let reader = matches!(&result, Err(Error::Database { source, .. }) if only_reads(source));
        self.keep_if(!reader);
        result
    }
}

impl<DB: sqlx::Database> Connection for Interruptible<DB>
where
    PoolConnection<DB>: Connection,
{
    fn in_transaction(&self) -> bool {
        Connection::in_transaction(&self.connection)
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.running = true;
            let changed = Connection::execute(&mut self.connection, statement).await;
            self.ran(changed)
        })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Kind],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            self.running = true;
            let rows = Connection::fetch(&mut self.connection, statement, columns).await;
            self.ran(rows)
        })
    }
}

impl<DB: sqlx::Database> Drop for Interruptible<DB> {
    fn drop(&mut self) {
        if self.running || !self.is_of_use {
            self.connection.close_on_drop();
        }
    }
}

/// A transaction of the outbox's own. Given up in the middle of a statement it ends with its connection; given up
/// between two it is rolled back, and its connection goes back to the pool.
pub(crate) struct Begun<DB>
where
    DB: sqlx::Database,
    PoolConnection<DB>: Connection,
{
    /// Absent once it was committed.
    connection: Option<Interruptible<DB>>,
}

impl<DB> Begun<DB>
where
    DB: sqlx::Database,
    PoolConnection<DB>: Connection,
{
    pub(crate) async fn begin(connection: PoolConnection<DB>, begin: &'static str) -> Result<Self, Error> {
        let mut connection = Interruptible::new(connection);
        let answer = connection.execute(&Statement::plain(begin)).await;
        answer.map_err(|error| error.doing("beginning a transaction"))?;
        Ok(Self { connection: Some(connection) })
    }

    fn open(&mut self) -> Result<&mut Interruptible<DB>, Error> {
        self.connection.as_mut().ok_or(Error::NoTransaction)
    }
}

impl<DB> Connection for Begun<DB>
where
    DB: sqlx::Database,
    PoolConnection<DB>: Connection,
{
    fn in_transaction(&self) -> bool {
        self.connection.is_some()
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move { self.open()?.execute(statement).await })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Kind],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move { self.open()?.fetch(statement, columns).await })
    }
}

impl<DB> Transaction for Begun<DB>
where
    DB: sqlx::Database,
    PoolConnection<DB>: Connection,
{
    fn commit<'a>(mut self: Box<Self>) -> BoxFuture<'a, Result<(), Error>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let answer = self.open()?.execute(&Statement::plain("commit")).await;
            answer.map_err(|error| error.doing("committing a transaction"))?;
            self.connection = None;
            Ok(())
        })
    }
}

impl<DB> Drop for Begun<DB>
where
    DB: sqlx::Database,
    PoolConnection<DB>: Connection,
{
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !connection.running => {
                runtime.spawn(roll_back(connection));
            }
            // The server ends it when it notices that the connection is gone.
            _ => connection.keep_if(false),
        }
    }
}

/// Gives a connection back to its pool once its transaction is rolled back, and closes it otherwise.
async fn roll_back<DB>(mut connection: Interruptible<DB>)
where
    DB: sqlx::Database,
    PoolConnection<DB>: Connection,
{
    let rollback = Statement::plain("rollback");
    let rolled_back = timeout(ROLLBACK, connection.execute(&rollback)).await;
    connection.keep_if(matches!(rolled_back, Ok(Ok(_))));
}
