//! The queues of a settings file, from their settings to ones that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_core::inspect::Inspect;
use backstop_sql::{Queue, Supported};
use sqlx::Pool;

use super::component::{BoxFuture, Component};
use super::letters::Opened;
use super::pools::{self, Starts};
use super::slot::Slot;
use super::wiring::Wiring;
use crate::commands::queue_told;
use crate::config::settings::Queue as Settings;
use crate::handlers::Shared;

/// A queue of a settings file.
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
        let wiring = Wiring::of_queue(&settings, letters, shared)?;
        let slot = Arc::new(Slot::new("queue", &settings.name));
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
        Some(format!("queue {}: {}", self.settings.name, queue_told(&self.settings)))
    }

    fn start(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async {
            let Self { settings, wiring, slot, running } = self;
            let started = pools::start_on(&settings.database, Start { settings, wiring }).await?;
            slot.fill(started.inspect.clone());
            *running = Some(started);
            tracing::info!(queue = settings.name, "started: {}", queue_told(settings));
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

/// A queue that runs.
struct Running {
    inspect: Arc<dyn Inspect>,
    close: BoxFuture<'static, Result<(), backstop_sql::Error>>,
}

/// A queue that is to be started.
struct Start<'a> {
    settings: &'a Settings,
    wiring: &'a Wiring,
}

impl Starts for Start<'_> {
    type Running = Running;

    async fn on<DB: Supported>(self, pool: Pool<DB>) -> anyhow::Result<Running> {
        let mut builder = Queue::new(pool.clone()).config(self.settings.config());
        if let Some(worker) = self.wiring.worker() {
            builder = builder.handlers(worker);
        }
        let queue = builder.start().await?;
        let inspect = queue.inspect();
        let close = Box::pin(async move {
            let drained = queue.close().await;
            pool.close().await;
            drained
        });
        Ok(Running { inspect, close })
    }
}
