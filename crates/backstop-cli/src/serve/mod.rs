//! `backstop serve`: the outboxes of a settings file and the operator's desk, until somebody ends it.

mod beside;
mod letters;
mod outboxes;
mod slot;
mod wiring;

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use backstop_admin::metrics::{self, PrometheusHandle};
use backstop_admin::{Admin, Listening, Role, Token};
use backstop_core::Shutdown;
use backstop_core::inspect::Inspect;
use backstop_disk::dlq::DeadLetters;

use crate::commands::told;
use crate::config::settings::{self, Server};
use crate::config::{self, Sections, Settings};
use crate::plain;
use crate::signals::asked_to_end;
use beside::Beside;
use outboxes::Running;
use slot::Slot;
use wiring::Wiring;

pub(crate) async fn run(file: &Path) -> anyhow::Result<()> {
    let checked = config::load(file)?;
    for warning in checked.warnings() {
        tracing::warn!("{warning}");
    }
    let (settings, sections) = checked.settings()?;
    let slots: Vec<_> = settings.outbox.iter().map(|outbox| Arc::new(Slot::new(&outbox.name))).collect();
    let prometheus = settings.server.enabled.then(metrics::install).transpose()?;
    let letters = letters::open(&settings.dlq, &sections)?;
    let wirings: Vec<_> =
        settings.outbox.iter().map(|outbox| Wiring::of(outbox, &letters)).collect::<anyhow::Result<_>>()?;
    // The port first: a busy one must be known before the first event is delivered.
    let desk = open_desk(&settings.server, prometheus, shown(&slots, &wirings, &letters)).await?;
    let url = desk.as_ref().map(Listening::url);
    let shutdown = Shutdown::new();
    let serving = desk.map(|desk| tokio::spawn(desk.serve(shutdown.clone())));

    let mut running = Vec::new();
    let mut asked = pin!(asked_to_end());
    let ended = tokio::select! {
        ended = &mut asked => ended,
        started = start(&settings, &sections, &slots, &wirings, &mut running) => match started {
            Ok(()) => {
                greet(file, &settings, url.as_deref());
                asked.await
            }
            failed => failed,
        },
    };

    // Also after a failed start: nothing is left half running.
    let closed = close(running, &sections).await;
    shutdown.begin();
    if let Some(serving) = serving {
        serving.await.context("the task of the operator's page failed")?;
    }
    ended.and(closed)
}

/// What the page shows: each outbox and where it sends to, then the dead-letter directories.
fn shown(
    slots: &[Arc<Slot>],
    wirings: &[Wiring],
    letters: &BTreeMap<String, DeadLetters>,
) -> Vec<Arc<dyn Inspect>> {
    let mut shown: Vec<Arc<dyn Inspect>> = Vec::new();
    for (slot, wiring) in slots.iter().zip(wirings) {
        shown.push(slot.clone());
        shown.extend(wiring.targets().iter().cloned());
    }
    for directory in letters.values() {
        shown.push(Arc::new(Beside::new(Arc::new(directory.clone()))));
    }
    shown
}

/// Takes the port of the desk, if it is wanted, and shows all outboxes as starting.
async fn open_desk(
    server: &Server,
    prometheus: Option<PrometheusHandle>,
    shown: Vec<Arc<dyn Inspect>>,
) -> anyhow::Result<Option<Listening>> {
    let Some(prometheus) = prometheus else { return Ok(None) };
    let admin = Admin::new().metrics(move || prometheus.render()).hosts(server.hosts.iter().cloned());
    let admin = admin.tokens(server.tokens.iter().filter_map(token));
    let admin = shown.into_iter().fold(admin, Admin::watch);
    admin.bind(server.address).await.map(Some).context("server cannot be started")
}

fn token(token: &settings::Token) -> Option<Token> {
    let role = match token.role {
        settings::Role::Viewer => Role::Viewer,
        settings::Role::Operator => Role::Operator,
        settings::Role::Admin => Role::Admin,
    };
    Token::from_hash(&token.name, role, &token.sha256)
}

/// Starts one outbox after the other; those that run when one fails are in `running`.
async fn start(
    settings: &Settings,
    sections: &Sections,
    slots: &[Arc<Slot>],
    wirings: &[Wiring],
    running: &mut Vec<Running>,
) -> anyhow::Result<()> {
    let several = settings.outbox.len() > 1;
    for ((outbox, slot), wiring) in settings.outbox.iter().zip(slots).zip(wirings) {
        let started = outboxes::start(outbox, wiring, several).await;
        let started =
            started.with_context(|| format!("{} cannot be started", sections.told(&outbox.path)))?;
        slot.fill(started.inspect());
        running.push(started);
        tracing::info!(outbox = outbox.name, "started: {}", told(outbox));
    }
    Ok(())
}

fn greet(file: &Path, settings: &Settings, url: Option<&str>) {
    println!("backstop serves {}", plain::plain(&file.display().to_string()));
    for outbox in &settings.outbox {
        println!("  outbox {}: {}", outbox.name, told(outbox));
    }
    println!("  page: {}", url.unwrap_or("off"));
}

/// Ends all outboxes at the same time, each within its drain time-out.
async fn close(running: Vec<Running>, sections: &Sections) -> anyhow::Result<()> {
    let closing: Vec<_> =
        running.into_iter().map(|outbox| (outbox.path().to_owned(), tokio::spawn(outbox.close()))).collect();
    let mut failed = Vec::new();
    for (path, closing) in closing {
        if let Err(error) = closing.await.context("its task failed").flatten() {
            failed.push(format!("{} did not end well: {}", sections.told(&path), plain::told(&error)));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}
