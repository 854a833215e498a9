//! The outboxes of a settings file, from their settings to ones that run, on whichever databases their URLs name.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_core::inspect::Inspect;
use backstop_core::retry::Exponential;
use backstop_sql::outbox::{Builder, Delivering, Mode, Tunable, purge};
use backstop_sql::store::{DatabaseKind, Done};
use backstop_sql::{Outbox, Supported, mysql, postgres, sqlite};
use sqlx::{MySql, Pool, Postgres, Sqlite};

use super::component::{BoxFuture, Component};
use super::letters::Opened;
use super::slot::Slot;
use super::wiring::Wiring;
use crate::commands::told;
use crate::config::settings::{self, Outbox as Settings};
use crate::handlers::Shared;

/// An outbox of a settings file.
pub(super) struct Served {
    settings: Settings,
    /// Whether there are others, so that metrics carry its name.
    several: bool,
    wiring: Wiring,
    slot: Arc<Slot>,
    running: Option<Running>,
}

/// Makes all of them and their handlers. Nothing is connected yet.
pub(super) fn make(
    settings: Vec<Settings>,
    letters: &BTreeMap<String, Opened>,
    shared: &Shared,
) -> anyhow::Result<Vec<Served>> {
    let several = settings.len() > 1;
    let make = |settings| {
        let wiring = Wiring::of(&settings, letters, shared)?;
        let slot = Arc::new(Slot::new("outbox", &settings.name));
        Ok(Served { settings, several, wiring, slot, running: None })
    };
    settings.into_iter().map(make).collect()
}

impl Component for Served {
    fn path(&self) -> &str {
        &self.settings.path
    }

    /// Itself, and where it sends to.
    fn shown(&self) -> Vec<Arc<dyn Inspect>> {
        let mut shown: Vec<Arc<dyn Inspect>> = vec![self.slot.clone()];
        shown.extend(self.wiring.targets().iter().cloned());
        shown
    }

    fn greeting(&self) -> Option<String> {
        Some(format!("outbox {}: {}", self.settings.name, told(&self.settings)))
    }

    fn start(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async {
            let Self { settings, several, wiring, slot, running } = self;
            let started = start(settings, wiring, *several).await?;
            slot.fill(started.inspect.clone());
            *running = Some(started);
            tracing::info!(outbox = settings.name, "started: {}", told(settings));
            Ok(())
        })
    }

    /// Lets handlers finish, then lets go of the database.
    fn close(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(async {
            match self.running {
                Some(running) => Ok(running.close.await?),
                None => Ok(()),
            }
        })
    }
}

/// An outbox that runs.
struct Running {
    inspect: Arc<dyn Inspect>,
    close: BoxFuture<'static, Result<(), backstop_sql::Error>>,
}

/// Connects and starts.
async fn start(settings: &Settings, wiring: &Wiring, several: bool) -> anyhow::Result<Running> {
    let (url, size) = (settings.database.url.reveal(), settings.database.pool_size);
    match DatabaseKind::of(url)? {
        DatabaseKind::Mysql => start_on(mysql::open_sized(url, size).await?, settings, wiring, several).await,
        DatabaseKind::Postgres => {
            start_on(postgres::open_sized(url, size).await?, settings, wiring, several).await
        }
        DatabaseKind::Sqlite => {
            start_on(sqlite::open_sized(url, size).await?, settings, wiring, several).await
        }
    }
}

/// A database that the daemon knows how to reach.
trait Reached: Supported {
    /// Says whether a pooler is in between, where the database has such poolers.
    fn through<M: Mode>(builder: Builder<Self, M>, _pooler: bool) -> Builder<Self, M>
    where
        Self: Sized,
    {
        builder
    }
}

impl Reached for MySql {}
impl Reached for Sqlite {}
impl Reached for Postgres {
    fn through<M: Mode>(builder: Builder<Self, M>, pooler: bool) -> Builder<Self, M> {
        builder.behind_pooler(pooler)
    }
}

async fn start_on<DB: Reached>(
    pool: Pool<DB>,
    settings: &Settings,
    wiring: &Wiring,
    several: bool,
) -> anyhow::Result<Running> {
    let started = build_and_start(pool.clone(), settings, wiring, several).await;
    let outbox = match started {
        Ok(outbox) => outbox,
        Err(error) => {
            pool.close().await;
            return Err(error);
        }
    };
    let inspect = outbox.inspect();
    let close = Box::pin(async move {
        let drained = outbox.close().await;
        pool.close().await;
        drained
    });
    Ok(Running { inspect, close })
}

async fn build_and_start<DB: Reached>(
    pool: Pool<DB>,
    settings: &Settings,
    wiring: &Wiring,
    several: bool,
) -> anyhow::Result<Outbox<DB>> {
    let started = match settings.mode {
        settings::Mode::SingleNode => {
            let builder = common(Outbox::single_node(pool), settings, several);
            tuned(delivering(builder, settings, wiring), settings).start().await
        }
        settings::Mode::MultiNode => {
            let builder = common(Outbox::multi_node(pool), settings, several);
            let builder = tuned(delivering(builder, settings, wiring), settings);
            let claims = &settings.claim_locking;
            let builder = match &claims.owner_id {
                Some(owner) => builder.claim_locking_as(owner, claims.lock_timeout),
                None => builder.claim_locking(claims.lock_timeout),
            };
            builder.hot_grace(claims.hot_grace).beside_java(settings.database.beside_java).start().await
        }
        settings::Mode::Ordered => {
            let builder = common(Outbox::ordered(pool), settings, several);
            delivering(builder, settings, wiring).start().await
        }
        settings::Mode::WriterOnly => common(Outbox::writer_only(pool), settings, several).start().await,
    };
    Ok(started?)
}

/// What every mode has.
fn common<DB: Reached, M: Mode>(
    builder: Builder<DB, M>,
    settings: &Settings,
    several: bool,
) -> Builder<DB, M> {
    let Settings { name, database, metrics, purge, .. } = settings;
    let prefix = match &metrics.name_prefix {
        Some(prefix) => prefix.clone(),
        None if several => format!("outbox.{name}"),
        None => "outbox".to_owned(),
    };
    let mut builder = DB::through(builder, database.behind_pooler)
        .name(name)
        .table(&database.table)
        .time_zone(&database.time_zone)
        .migrate(database.migrate)
        .wake_ups(database.wake_ups)
        .metrics_prefix(prefix);
    if !metrics.enabled {
        builder = builder.metrics_recorder(Arc::new(::metrics::NoopRecorder));
    }
    if purge.enabled {
        let often = purge::Settings::default().interval(purge.interval);
        builder = builder.purge(often.retention(purge.retention).batch_size(purge.batch_size));
    }
    builder
}

/// What every mode has that delivers.
fn delivering<DB: Supported, M: Delivering>(
    builder: Builder<DB, M>,
    settings: &Settings,
    wiring: &Wiring,
) -> Builder<DB, M> {
    let Settings { database, poller, dispatcher, .. } = settings;
    let builder = builder
        .guard(database.guard)
        .queue_bytes(dispatcher.queue_bytes)
        .interval(poller.interval)
        .batch_size(poller.batch_size)
        .skip_recent(poller.skip_recent)
        .drain_timeout(dispatcher.drain_timeout)
        .done(match dispatcher.done {
            settings::Done::Keep => Done::Keep,
            settings::Done::Delete => Done::Delete,
        });
    wiring.connect(builder)
}

/// What the modes have that can be tuned.
fn tuned<DB: Supported, M: Tunable>(builder: Builder<DB, M>, settings: &Settings) -> Builder<DB, M> {
    let Settings { dispatcher, retry, .. } = settings;
    builder
        .worker_count(dispatcher.worker_count)
        .hot_queue_capacity(dispatcher.hot_queue_capacity)
        .cold_queue_capacity(dispatcher.cold_queue_capacity)
        .max_attempts(dispatcher.max_attempts)
        .retry_policy(Exponential { base: retry.base_delay, max: retry.max_delay })
}
