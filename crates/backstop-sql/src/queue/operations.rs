//! What operators ask of a queue and do to it, whether or not a worker runs.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::inspect::Count;
use backstop_core::operate::AUDIT;
use backstop_core::telemetry;

use super::table::{Filter, Found, Listed, Requeued, Status, Tables};
use super::whereabouts::Whereabouts;
use crate::database::{At, Database, Via};
use crate::statement::Statement;
use crate::stores::DatabaseKind;
use crate::wake_up::{WakeOthers, WakeUps};
use crate::{Error, Supported, TableName, Tls};

/// Counting stops here: beyond it "100,000+" says enough, and a scan of millions would cost too much.
pub(super) const COUNT_CAP: u32 = 100_000;

/// How many events are where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Those that wait.
    pub pending: Count,
    /// Those that are being handled.
    pub processing: Count,
    /// Those of them that were taken longer ago than the time-out: their worker died, or stands still.
    pub stuck: Count,
    /// Those that were handled.
    pub completed: Count,
    /// Those that were given up.
    pub failed: Count,
    /// How long ago the oldest was published that could be taken.
    pub oldest: Option<Duration>,
}

/// The tables of a queue in an operator's hands: counts, lists, single events, requeues and purges.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::Queue;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("doc.db")).await?;
/// let queue = Queue::new(pool).start().await?;
/// let id = queue.publish(Event::of("InvoiceRequested").json(&42)?).await?;
///
/// let operations = queue.operations();
/// assert_eq!(operations.counts().await?.pending.events, 1);
/// let found = operations.find(id).await?.expect("it was published");
/// assert_eq!(found.listed.attempts, 0);
/// # queue.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Operations {
    tables: Tables,
    timeout: Duration,
    metrics: Option<Arc<telemetry::Queue>>,
    /// Wakes workers of this process.
    wakes: Option<Arc<tokio::sync::Notify>>,
    wake_others: WakeOthers,
    /// Where no queue runs in this process.
    wake_ups: Option<Arc<dyn WakeUps>>,
}

impl Operations {
    pub(super) fn assembled(
        tables: Tables,
        timeout: Duration,
        metrics: Arc<telemetry::Queue>,
        wakes: Arc<tokio::sync::Notify>,
        wake_others: WakeOthers,
    ) -> Self {
        Self { tables, timeout, metrics: Some(metrics), wakes: Some(wakes), wake_others, wake_ups: None }
    }

    /// The tables of these names on the pool's database, where no queue runs.
    pub fn on<DB: Supported>(pool: sqlx::Pool<DB>, events: TableName, log: TableName) -> Self {
        let wake_ups = DB::wake_ups(&pool, &events);
        let database = Database::new(DB::dialect(), DB::connections(pool));
        Self {
            tables: Tables::new(database, DB::queue(), events, log),
            timeout: super::Config::default().abandoned_timeout,
            metrics: None,
            wakes: None,
            wake_others: WakeOthers::default(),
            wake_ups,
        }
    }

    /// The tables of these names on the database of a URL.
    pub async fn connect(url: &str, tls: &Tls, events: TableName, log: TableName) -> Result<Self, Error> {
        DatabaseKind::of(url)?.connect_queue(url, tls, events, log).await
    }

    /// The database is reached through a pooler that shares connections between transactions, such as PgBouncer.
    pub fn behind_pooler(mut self) -> Self {
        self.tables = self.tables.behind_pooler();
        self
    }

    /// After how long an event that somebody has taken counts as abandoned. Defaults to 5 minutes.
    pub fn abandoned_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Creates the tables, or brings them up to date.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.tables.migrate().await
    }

    /// Checks that the tables are there and up to date.
    pub async fn check(&self) -> Result<(), Error> {
        self.tables.check().await
    }

    /// How many events are where, counted up to 100,000 of each.
    pub async fn counts(&self) -> Result<Counts, Error> {
        let census = self.tables.census(At::Database, self.timeout, COUNT_CAP).await?;
        let super::table::Census { pending, processing, stuck, completed, failed, oldest } = census;
        Ok(Counts { pending, processing, stuck, completed, failed, oldest })
    }

    /// Events of a status that match, by id, at most `limit`. Go on behind the last one with [`Filter::after`].
    pub async fn list(&self, status: Status, filter: &Filter, limit: u32) -> Result<Vec<Listed>, Error> {
        self.tables.list(status, filter, limit).await
    }

    /// Events that were taken longer ago than the time-out and not finished: their worker died, or stands still.
    pub async fn stuck(&self, limit: u32) -> Result<Vec<Listed>, Error> {
        self.tables.stuck(At::Database, self.timeout, limit).await
    }

    /// The event of that id, in whichever table it is.
    pub async fn find(&self, id: i64) -> Result<Option<Found>, Error> {
        self.tables.find(At::Database, id).await
    }

    /// Where the event of that id is, in a sentence.
    pub async fn why(&self, id: i64) -> Result<Option<Whereabouts>, Error> {
        Ok(self.find(id).await?.map(|found| Whereabouts::of(&found, self.timeout)))
    }

    /// Has events handled again: those that are stuck are set back to PENDING at once, and those that FAILED come back from
    /// the log with no attempts used. An event that is being handled is not changed unless `force` is given: it would be
    /// handled twice, and the first result is ignored. Normal recovery needs none of this.
    pub async fn requeue(&self, ids: &[i64], force: bool) -> Result<Requeued, Error> {
        let requeued = self.tables.requeue(At::Database, self.timeout, force, ids).await?;
        let changed = requeued.processing + requeued.failed;
        if changed > 0 {
            tracing::info!(target: AUDIT, operation = "requeue", force, changed, "events are set back to PENDING");
            if let Some(metrics) = &self.metrics {
                metrics.requeued.add(changed);
            }
            self.wake().await;
        }
        Ok(requeued)
    }

    /// Deletes events from the log that ended longer ago than `age`, at most `limit`, and returns how many.
    pub async fn purge(&self, age: Duration, limit: u32) -> Result<u64, Error> {
        let mut session = self.tables.database().session(Via::Pool).await?;
        let purged = self.tables.purge(&mut session, At::Database, age, limit).await?;
        if let Some(metrics) = &self.metrics {
            metrics.purge.add(purged);
        }
        Ok(purged)
    }

    /// The statements that a worker runs, for reading their plans.
    #[doc(hidden)]
    pub fn planned(&self, at: At, limit: u32) -> Vec<(&'static str, &'static str, Statement)> {
        self.tables.planned(at, self.timeout, limit)
    }

    async fn wake(&self) {
        if let Some(wakes) = &self.wakes {
            wakes.notify_one();
        }
        self.wake_others.ask();
        if let Some(wake_ups) = &self.wake_ups
            && let Err(error) = wake_ups.send().await
        {
            tracing::debug!(%error, "cannot wake workers; they look at the table at their own interval");
        }
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations")
            .field("tables", &self.tables)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
