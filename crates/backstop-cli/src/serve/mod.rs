//! `backstop serve`: the components of a settings file and the dashboard, until somebody ends it.

mod auxiliary;
mod component;
mod letters;
mod outboxes;
mod pools;
mod queues;
mod slot;
mod wiring;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use backstop_admin::metrics::{self, PrometheusHandle};
use backstop_admin::{Admin, Listening, Readiness};
use backstop_core::Shutdown;
use backstop_core::inspect::Inspect;
use futures_util::future::try_join_all;

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
    let readiness = Readiness::starting();
    let dashboard = open_dashboard(&server, prometheus, shown.collect(), readiness.clone()).await?;
    let url = dashboard.as_ref().map(Listening::url);
    if let Some(url) = &url {
        tracing::info!("the dashboard is open: {url}");
    }
    let shutdown = Shutdown::new();
    let serving = dashboard.map(|dashboard| tokio::spawn(dashboard.serve(shutdown.clone())));

    let mut asked = pin!(asked_to_end());
    let ended = tokio::select! {
        // First, so that signals are heard before anybody is told that it serves.
        biased;
        ended = &mut asked => ended,
        started = start(&mut components, &sections) => match started {
            Ok(()) => {
                readiness.started();
                greet(file, &components, url.as_deref());
                asked.await
            }
            failed => failed,
        },
    };

    readiness.ending();
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
    readiness: Readiness,
) -> anyhow::Result<Option<Listening>> {
    let Some(prometheus) = prometheus else { return Ok(None) };
    let admin = Admin::of(server).readiness(readiness).metrics(move || prometheus.render());
    let admin = shown.into_iter().fold(admin, Admin::watch);
    admin.bind(server.address).await.map(Some).context("server cannot be started")
}

/// Starts all of them, up to the first that fails. One that waits for its database holds up no other.
async fn start(components: &mut Components, sections: &Sections) -> anyhow::Result<()> {
    let starts = components.iter_mut().map(|component| start_one(&mut **component, sections));
    try_join_all(starts).await.map(drop)
}

/// How long to wait before a database that is unavailable is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Starts a component, as soon as its database is there: after a power cut it may come up later than this process.
/// What no waiting changes, such as a wrong password, ends the start.
async fn start_one(component: &mut dyn Component, sections: &Sections) -> anyhow::Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        let Err(error) = component.start().await else { return Ok(()) };
        let section = sections.told(component.path());
        let is_away = error.downcast_ref().is_some_and(backstop_sql::Error::is_unavailable);
        if !is_away {
            return Err(error.context(format!("{section} cannot be started")));
        }
        let why = plain::told(&error);
        component.waits_for(&why);
        tracing::warn!("{section} waits for its database, and tries again in {pause:?}: {why}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
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
