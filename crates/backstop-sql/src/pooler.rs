//! Connections that a pooler shares between transactions, as PgBouncer does in transaction mode: whatever must stay
//! together runs in one transaction, and nothing is prepared that the next one would miss.

use std::ops::DerefMut;
use std::sync::Arc;

use crate::connection::{Connection, Connections, Kind, Transaction};
use crate::statement::{Statement, Value};
use crate::{BoxFuture, Error};

/// Whether a statement that was prepared on one session came to another: PostgreSQL's words for one that is not there, is
/// there already, or is somebody else's.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn is_of_a_pooler(error: &sqlx::Error) -> bool {
    let Some(said) = error.as_database_error() else { return false };
    said.code().is_some_and(|code| match &*code {
        "26000" | "42P05" => true,
        "08P01" => said.message().contains("prepared statement"),
        _ => false,
    })
}

/// Runs every statement unprepared.
pub(crate) struct Unprepared<C>(pub(crate) C);

/// Connections behind a pooler.
pub(crate) struct Pooled(pub(crate) Arc<dyn Connections>);

/// A connection behind a pooler: each statement is a transaction of its own.
struct PooledConnection<'a>(&'a dyn Connections);

/// How such a transaction begins. A simple statement: nothing is prepared for it.
const BEGIN: &str = "BEGIN";

impl Connections for Pooled {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection + '_>, Error>> {
        Box::pin(async { Ok(Box::new(PooledConnection(&*self.0)) as Box<dyn Connection>) })
    }

    fn transaction(&self, begin: &'static str) -> BoxFuture<'_, Result<Box<dyn Transaction + '_>, Error>> {
        Box::pin(async move {
            let transaction = self.0.transaction(begin).await?;
            Ok(Box::new(Unprepared(transaction)) as Box<dyn Transaction>)
        })
    }
}

impl Connection for PooledConnection<'_> {
    fn in_transaction(&self) -> bool {
        false
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut transaction = self.0.transaction(BEGIN).await?;
            let changed = transaction.execute(&statement.unprepared()).await?;
            transaction.commit().await?;
            Ok(changed)
        })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Kind],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            let mut transaction = self.0.transaction(BEGIN).await?;
            let rows = transaction.fetch(&statement.unprepared(), columns).await?;
            transaction.commit().await?;
            Ok(rows)
        })
    }
}

impl<C> Connection for Unprepared<C>
where
    C: DerefMut<Target: Connection> + Send,
{
    fn in_transaction(&self) -> bool {
        self.0.in_transaction()
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move { self.0.execute(&statement.unprepared()).await })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Kind],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move { self.0.fetch(&statement.unprepared(), columns).await })
    }
}

impl Transaction for Unprepared<Box<dyn Transaction + '_>> {
    fn commit<'a>(self: Box<Self>) -> BoxFuture<'a, Result<(), Error>>
    where
        Self: 'a,
    {
        self.0.commit()
    }
}
