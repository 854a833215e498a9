//! A store that lets a test step in: before a settlement is written, and when due rows have been read.

use std::sync::Arc;
use std::time::Duration;

use backstop_sql::store::{At, Due, Row, Settle, Store};
use backstop_sql::{BoxFuture, Error};

type Step = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The store.
pub(crate) struct Spied {
    inner: Arc<dyn Store>,
    before_settle: Option<Step>,
    after_read: Option<Step>,
}

impl Spied {
    pub(crate) fn of(inner: &Arc<dyn Store>) -> Self {
        Self { inner: inner.clone(), before_settle: None, after_read: None }
    }

    /// Runs before settlements are written.
    pub(crate) fn before_settle<F: Future<Output = ()> + Send + 'static>(
        mut self,
        step: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.before_settle = Some(Box::new(move || Box::pin(step())));
        self
    }

    /// Runs when due rows have been read or claimed, and before the poller gets them.
    pub(crate) fn after_read<F: Future<Output = ()> + Send + 'static>(
        mut self,
        step: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.after_read = Some(Box::new(move || Box::pin(step())));
        self
    }

    pub(crate) fn shared(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

async fn run(step: Option<&Step>) {
    if let Some(step) = step {
        step().await;
    }
}

impl Store for Spied {
    forward!(migrate, check, insert, release, census, troubled, query_dead, count_dead, replay_dead, purge);

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let rows = self.inner.poll(due).await;
            run(self.after_read.as_ref()).await;
            rows
        })
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due<'a>,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let rows = self.inner.claim(owner, timeout, due).await;
            run(self.after_read.as_ref()).await;
            rows
        })
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            run(self.before_settle.as_ref()).await;
            self.inner.settle(at, settles).await
        })
    }
}
