//! Connections that ask the database how it would run each statement by id, before it does.

use std::sync::{Arc, Mutex};

use backstop_sql::connection::{Column, Connection, Connections};
use backstop_sql::statement::{Statement, Value};
use backstop_sql::{BoxFuture, Error};

use crate::harness::as_text;

/// Notes the plans of what runs on the connections behind it.
#[derive(Clone)]
pub(crate) struct Planned {
    inner: Arc<dyn Connections>,
    plans: Arc<Mutex<Vec<Plan>>>,
}

/// A statement, and how it is run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) statement: String,
    pub(crate) plan: String,
}

/// A connection of [`Planned`].
struct Asking {
    inner: Box<dyn Connection>,
    planned: Planned,
}

impl Planned {
    pub(crate) fn around(inner: Arc<dyn Connections>) -> Self {
        Self { inner, plans: Arc::default() }
    }

    /// What was noted so far.
    pub(crate) fn take(&self) -> Vec<Plan> {
        std::mem::take(&mut self.plans.lock().unwrap())
    }

    /// Notes the plan of a statement that changes rows, or locks rows that it names.
    async fn note(&self, statement: &Statement) -> Result<(), Error> {
        let text = statement.text();
        let changes = text.starts_with("update ") || text.starts_with("delete ");
        let locks_by_id = text.contains("event_id in (") && text.contains(" for update");
        if !changes && !locks_by_id {
            return Ok(());
        }
        let mut question = statement.clone();
        question.prefix("explain format=json ");
        let rows = self.inner.connection().await?.fetch(&question, &[Column::Text]).await?;
        let plan = as_text(&rows[0][0]).unwrap();
        self.plans.lock().unwrap().push(Plan { statement: text.to_owned(), plan });
        Ok(())
    }
}

impl Connections for Planned {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async {
            let inner = self.inner.connection().await?;
            Ok(Box::new(Asking { inner, planned: self.clone() }) as Box<dyn Connection>)
        })
    }
}

impl Connection for Asking {
    fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    fn execute<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.planned.note(statement).await?;
            self.inner.execute(statement).await
        })
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a Statement,
        columns: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async move {
            self.planned.note(statement).await?;
            self.inner.fetch(statement, columns).await
        })
    }

    fn give_up(&mut self) {
        self.inner.give_up();
    }
}
