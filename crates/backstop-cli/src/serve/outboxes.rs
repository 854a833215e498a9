//! The outboxes of a settings file, from their settings to ones that run, on whichever databases their URLs name.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_core::inspect::Inspect;
use backstop_sql::store::DatabaseKind;
use backstop_sql::{Outbox, Supported, mysql, postgres, sqlite};
use sqlx::Pool;

use super::component::{BoxFuture, Component};
use super::letters::Opened;
use super::slot::Slot;
use super::wiring::Wiring;
use crate::commands::told;
use crate::config::settings::{Mode, Outbox as Settings};
use crate::handlers::Shared;

/// An outbox of a settings file.
pub(super) struct Served {
    settings: Settings,
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
    let make = |settings| {
        let wiring = Wiring::of(&settings, letters, shared)?;
        let slot = Arc::new(Slot::new("outbox", &settings.name));
        Ok(Served { settings, wiring, slot, running: None })
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
            let Self { settings, wiring, slot, running } = self;
            let started = start(settings, wiring).await?;
            slot.fill(started.inspect.clone());
            *running = Some(started);
            tracing::info!(outbox = settings.name, "started: {}", told(settings));
            Ok(())
        })
    }

    /// Lets handlers finish, then closes the database.
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
async fn start(settings: &Settings, wiring: &Wiring) -> anyhow::Result<Running> {
    let (url, size) = (settings.database.url.reveal(), settings.database.pool_size);
    match DatabaseKind::of(url)? {
        DatabaseKind::Mysql => start_on(mysql::open_sized(url, size).await?, settings, wiring).await,
        DatabaseKind::Postgres => start_on(postgres::open_sized(url, size).await?, settings, wiring).await,
        DatabaseKind::Sqlite => start_on(sqlite::open_sized(url, size).await?, settings, wiring).await,
    }
}

async fn start_on<DB: Supported>(
    pool: Pool<DB>,
    settings: &Settings,
    wiring: &Wiring,
) -> anyhow::Result<Running> {
    let started = build_and_start(pool.clone(), settings, wiring).await;
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

async fn build_and_start<DB: Supported>(
    pool: Pool<DB>,
    settings: &Settings,
    wiring: &Wiring,
) -> anyhow::Result<Outbox<DB>> {
    let config = settings.config();
    let started = match settings.mode {
        Mode::SingleNode => wiring.connect(Outbox::single_node(pool).config(config)).start().await,
        Mode::MultiNode => wiring.connect(Outbox::multi_node(pool).config(config)).start().await,
        Mode::Ordered => wiring.connect(Outbox::ordered(pool).config(config)).start().await,
        Mode::WriterOnly => Outbox::writer_only(pool).config(config).start().await,
    };
    Ok(started?)
}
