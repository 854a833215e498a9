//! `backstop serve`: the components of a settings file and the dashboard, until somebody ends it.

mod auxiliary;
mod component;
mod letters;
mod outboxes;
mod slot;
mod wiring;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use backstop_admin::metrics::{self, PrometheusHandle};
use backstop_admin::{Admin, Listening};
use backstop_core::Shutdown;
use backstop_core::inspect::Inspect;

use crate::config::{self, Sections};
use crate::plain;
use crate::signals::asked_to_end;
use component::Component;

type Components = Vec<Box<dyn Component>>;

pub(crate) async fn run(file: &Path) -> anyhow::Result<()> {
    let checked = config::load(file)?;
    for warning in checked.warnings() {
        tracing::warn!("{warning}");
    }
    let (settings, sections) = checked.settings()?;
    let server = settings.server.clone();
    // Before the components, which count from the beginning.
    let prometheus = server.enabled.then(metrics::install).transpose()?;
    let mut components = component::make(settings, &sections)?;
    // The port first: a busy one must be known before the first event is delivered.
    let shown = components.iter().flat_map(|component| component.shown());
    let dashboard = open_dashboard(&server, prometheus, shown.collect()).await?;
    let url = dashboard.as_ref().map(Listening::url);
    let shutdown = Shutdown::new();
    let serving = dashboard.map(|dashboard| tokio::spawn(dashboard.serve(shutdown.clone())));

    let mut asked = pin!(asked_to_end());
    let ended = tokio::select! {
        // First, so that signals are heard before anybody is told that it serves.
        biased;
        ended = &mut asked => ended,
        started = start(&mut components, &sections) => match started {
            Ok(()) => {
                greet(file, &components, url.as_deref());
                asked.await
            }
            failed => failed,
        },
    };

    // Also after a failed start: nothing is left half running.
    let closed = close(components, &sections).await;
    shutdown.begin();
    if let Some(serving) = serving {
        serving.await.context("the dashboard's task failed")?;
    }
    ended.and(closed)
}

/// Takes the port of the dashboard, if it is wanted, and shows all components as starting.
async fn open_dashboard(
    server: &backstop_admin::Config,
    prometheus: Option<PrometheusHandle>,
    shown: Vec<Arc<dyn Inspect>>,
) -> anyhow::Result<Option<Listening>> {
    let Some(prometheus) = prometheus else { return Ok(None) };
    let admin = Admin::of(server).metrics(move || prometheus.render());
    let admin = shown.into_iter().fold(admin, Admin::watch);
    admin.bind(server.address).await.map(Some).context("server cannot be started")
}

/// Starts one after the other, up to the first that fails.
async fn start(components: &mut Components, sections: &Sections) -> anyhow::Result<()> {
    for component in components {
        let started = component.start().await;
        started.with_context(|| format!("{} cannot be started", sections.told(component.path())))?;
    }
    Ok(())
}

fn greet(file: &Path, components: &Components, url: Option<&str>) {
    println!("backstop serves {}", plain::plain(&file.display().to_string()));
    for greeting in components.iter().filter_map(|component| component.greeting()) {
        println!("  {greeting}");
    }
    println!("  page: {}", url.unwrap_or("off"));
}

/// Ends all at the same time, each within its own time-out.
async fn close(components: Components, sections: &Sections) -> anyhow::Result<()> {
    let closing: Vec<_> = components
        .into_iter()
        .map(|component| (component.path().to_owned(), tokio::spawn(component.close())))
        .collect();
    let mut failed = Vec::new();
    for (path, closing) in closing {
        if let Err(error) = closing.await.context("its task failed").flatten() {
            failed.push(format!("{} did not stop cleanly: {}", sections.told(&path), plain::told(&error)));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}
