//! A store that notes how it is asked, and can be held up in the middle of a look at the table.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_sql::store::{Due, Row, Store};
use backstop_sql::{BoxFuture, Error};
use tokio::sync::Semaphore;

/// How due rows were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Poll(Due<'static>),
    Claim { owner: String, timeout: Duration, due: Due<'static> },
}

impl Asked {
    /// Which rows were wanted, either way, wherever the look began.
    pub(crate) fn due(&self) -> Due<'static> {
        match self {
            Self::Poll(due) | Self::Claim { due, .. } => *due,
        }
    }

    /// Who claimed, if it was a claim.
    pub(crate) fn owner(&self) -> Option<&str> {
        match self {
            Self::Poll(_) => None,
            Self::Claim { owner, .. } => Some(owner),
        }
    }
}

/// The store.
pub(crate) struct Watched {
    inner: Arc<dyn Store>,
    asked: Mutex<Vec<Asked>>,
    answered: AtomicUsize,
    gate: Semaphore,
    gate_after: Semaphore,
}

impl Watched {
    pub(crate) fn around(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            asked: Mutex::default(),
            answered: AtomicUsize::new(0),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            gate_after: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    /// Every look at the table until now.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until the table was looked at for the first time, and tells how.
    pub(crate) async fn first_asked(&self) -> Asked {
        backstop_testkit::eventually("a look at the table", async || !self.asked().is_empty()).await;
        self.asked()[0].clone()
    }

    /// Waits until the table was read for the first time: what comes into it now is for the next look.
    pub(crate) async fn first_answered(&self) {
        let answered = async || self.answered.load(Ordering::SeqCst) > 0;
        backstop_testkit::eventually("the end of a look at the table", answered).await;
    }

    /// Holds up every look from now on, after it was noted and before the rows are read.
    pub(crate) fn hold_up(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets so many looks go on, those that are held up or those to come.
    pub(crate) fn let_go(&self, looks: usize) {
        self.gate.add_permits(looks);
    }

    /// Holds up every look from now on, after the rows were read.
    pub(crate) fn hold_up_after(&self) {
        self.gate_after.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets looks that are held up after their reading go on, and those to come.
    pub(crate) fn let_go_after(&self) {
        self.gate_after.add_permits(1_000);
    }

    async fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
        self.gate.acquire().await.unwrap().forget();
    }
}

impl Store for Watched {
    forward!(
        migrate,
        check,
        insert,
        release,
        settle,
        census,
        troubled,
        query_dead,
        count_dead,
        replay_dead,
        purge
    );

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            self.note(Asked::Poll(Due { after: None, pair: None, ..due })).await;
            let rows = self.inner.poll(due).await;
            self.answered.fetch_add(1, Ordering::SeqCst);
            self.gate_after.acquire().await.unwrap().forget();
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
            let asked = Due { after: None, pair: None, ..due };
            self.note(Asked::Claim { owner: owner.to_string(), timeout, due: asked }).await;
            let rows = self.inner.claim(owner, timeout, due).await;
            self.answered.fetch_add(1, Ordering::SeqCst);
            rows
        })
    }
}
