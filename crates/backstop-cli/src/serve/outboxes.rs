//! The outboxes of a settings file, from their settings to ones that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_core::inspect::Inspect;
use backstop_sql::{Outbox, Supported};
use sqlx::Pool;

use super::component::{BoxFuture, Component};
use super::letters::Opened;
use super::pools::{self, Starts};
use super::slot::Slot;
use super::wiring::Wiring;
use crate::commands::outbox_told;
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
        let wiring = Wiring::of_outbox(&settings, letters, shared)?;
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
        Some(format!("outbox {}: {}", self.settings.name, outbox_told(&self.settings)))
    }

    fn start(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async {
            let Self { settings, wiring, slot, running } = self;
            let started = pools::start_on(&settings.database, Start { settings, wiring }).await?;
            slot.fill(started.inspect.clone());
            *running = Some(started);
            tracing::info!(outbox = settings.name, "started: {}", outbox_told(settings));
            Ok(())
        })
    }

    fn waits_for(&self, why: &str) {
        self.slot.wait_for(why);
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

/// An outbox that is to be started.
struct Start<'a> {
    settings: &'a Settings,
    wiring: &'a Wiring,
}

impl Starts for Start<'_> {
    type Running = Running;

    async fn on<DB: Supported>(self, pool: Pool<DB>) -> anyhow::Result<Running> {
        let outbox = self.build_and_start(pool.clone()).await?;
        let inspect = outbox.inspect();
        let close = Box::pin(async move {
            let drained = outbox.close().await;
            pool.close().await;
            drained
        });
        Ok(Running { inspect, close })
    }
}

impl Start<'_> {
    async fn build_and_start<DB: Supported>(self, pool: Pool<DB>) -> anyhow::Result<Outbox<DB>> {
        let Self { settings, wiring } = self;
        let config = settings.config();
        let started = match settings.mode {
            Mode::SingleNode => wiring.connect(Outbox::single_node(pool).config(config)).start().await,
            Mode::MultiNode => wiring.connect(Outbox::multi_node(pool).config(config)).start().await,
            Mode::Ordered => wiring.connect(Outbox::ordered(pool).config(config)).start().await,
            Mode::WriterOnly => Outbox::writer_only(pool).config(config).start().await,
        };
        Ok(started?)
    }
}
