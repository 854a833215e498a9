//! The rows that dead letters are copies of: settled when their letters arrive, or replayed.

use std::fs::canonicalize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use backstop_core::{CloudEvent, Failure, Sink};
use backstop_sql::outbox::{BroughtBack, DeadEvents, Redriven};
use backstop_sql::store::Rights;

use super::args::Redrive;
use super::target::Target;
use crate::config;
use crate::config::settings::{Outbox, Settings};
use crate::config::{FILE, Sections};
use crate::output::count;
use crate::table;

/// How long to wait for a database that is unavailable.
const PAUSE: Duration = Duration::from_secs(1);

/// The table of an outbox, by the source that its letters have.
pub(super) struct Table {
    source: String,
    dead: DeadEvents,
}

/// What became of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) settled: u64,
    pub(super) not_dead: u64,
    pub(super) replayed: u64,
    pub(super) appended: u64,
    pub(super) pending: u64,
    pub(super) done: u64,
}

/// What a redrive has done to rows so far.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) moved: Moved,
    /// Why the row of a letter that has arrived cannot be settled.
    pub(super) stuck: Option<String>,
    /// The letter that has arrived and whose row is not settled yet: it is not sent again for that.
    arrived: Option<CloudEvent>,
}

/// A target, and the tables in which what it takes is settled.
pub(super) struct Settling {
    target: Target,
    tables: Vec<Table>,
    progress: Arc<Mutex<Progress>>,
}

impl Table {
    async fn open(outbox: &Outbox, sections: &Sections) -> anyhow::Result<Self> {
        let cannot = || {
            let section = sections.told(&outbox.path);
            format!(
                "{section} cannot be reached, and the rows of its letters are in it; say --leave-rows to redrive without"
            )
        };
        // Before anything is sent: what arrives must be settled.
        let rights = Rights { update: true, delete: false };
        let dead = table::dead_events(outbox, rights).await.with_context(cannot)?;
        let config = outbox.config();
        let source = config.source.clone().unwrap_or_else(|| format!("/outbox/{}", outbox.name));
        Ok(Self { source, dead })
    }

    /// The outbox that `--to` names.
    pub(super) async fn named(name: &str, args: &Redrive) -> anyhow::Result<Self> {
        let Some((settings, sections)) = settings(args)? else {
            bail!("--to names an outbox, and there is no settings file {FILE} here; name it with --config");
        };
        let outbox = table::named(settings.outbox, Some(name), "--to")?;
        Self::open(&outbox, &sections).await
    }

    /// Has the event of a letter delivered from its table again.
    pub(super) async fn bring_back(&self, letter: &CloudEvent) -> Result<BroughtBack, Failure> {
        if letter.source() != self.source {
            let why = format!(
                "its source is {}, and that of this outbox's letters {}; an id means nothing without its source",
                letter.source(),
                self.source
            );
            return Err(Failure::permanent("another-source", why));
        }
        let event = letter.to_event().map_err(|fault| Failure::permanent("cloudevent", fault.to_string()))?;
        self.dead.bring_back(&event).await.map_err(|error| unwritten(&error, "it cannot be brought back"))
    }
}

/// The tables of the outboxes whose letters go to a directory, as far as a settings file tells.
pub(super) async fn tables(args: &Redrive) -> anyhow::Result<Vec<Table>> {
    if args.leave_rows {
        return Ok(Vec::new());
    }
    let Some((settings, sections)) = settings(args)? else { return Ok(Vec::new()) };
    let mut tables = Vec::new();
    for outbox in writing_to(&args.directory, &settings) {
        tables.push(Table::open(outbox, &sections).await?);
    }
    Ok(tables)
}

/// The settings file that is named, or the one that is here.
fn settings(args: &Redrive) -> anyhow::Result<Option<(Settings, Sections)>> {
    let here = Path::new(FILE);
    let file = match &args.config {
        Some(file) => file.as_path(),
        None if here.exists() => here,
        None => return Ok(None),
    };
    let read = config::load(file).and_then(config::Checked::settings);
    read.map(Some)
        .context("the settings file tells whose letters these are; say --leave-rows to redrive without it")
}

fn writing_to<'a>(directory: &Path, settings: &'a Settings) -> impl Iterator<Item = &'a Outbox> {
    let is_it = |other: &Path| {
        canonicalize(directory)
            .is_ok_and(|directory| canonicalize(other).is_ok_and(|other| other == directory))
    };
    let names: Vec<_> =
        settings.dlq.iter().filter(|dlq| is_it(&dlq.config.directory)).map(|dlq| dlq.name.as_str()).collect();
    settings.outbox.iter().filter(move |outbox| {
        let of_handlers = outbox.handlers.iter().filter_map(|handler| handler.dlq.as_deref());
        outbox.dlq.as_deref().into_iter().chain(of_handlers).any(|name| names.contains(&name))
    })
}

impl Settling {
    pub(super) fn new(target: Target, tables: Vec<Table>, progress: Arc<Mutex<Progress>>) -> Self {
        Self { target, tables, progress }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles the rows of a letter that has arrived, as far as they are dead.
    async fn settle(&self, letter: &CloudEvent) -> Result<(), backstop_sql::Error> {
        for table in self.tables.iter().filter(|table| table.source == letter.source()) {
            let redriven = table.dead.redriven(letter.id()).await?;
            let moved = &mut self.progress().moved;
            match redriven {
                Redriven::Settled => moved.settled += 1,
                Redriven::NotDead => moved.not_dead += 1,
                Redriven::NoRow => {}
            }
        }
        Ok(())
    }
}

impl Sink for Settling {
    async fn emit(&self, letter: CloudEvent) -> Result<(), Failure> {
        if let Target::Outbox(table) = &self.target {
            let brought_back = table.bring_back(&letter).await?;
            let moved = &mut self.progress().moved;
            match brought_back {
                BroughtBack::Replayed => moved.replayed += 1,
                BroughtBack::Appended => moved.appended += 1,
                BroughtBack::Pending => moved.pending += 1,
                BroughtBack::Done => moved.done += 1,
            }
            return Ok(());
        }
        let has_arrived = self.progress().arrived.as_ref() == Some(&letter);
        if !has_arrived {
            self.target.emit(letter.clone()).await?;
            self.progress().arrived = Some(letter.clone());
        }
        let settled = self.settle(&letter).await;
        let mut progress = self.progress();
        match settled {
            Ok(()) => {
                (progress.arrived, progress.stuck) = (None, None);
                Ok(())
            }
            Err(error) => {
                progress.stuck = Some(error.to_string());
                Err(unwritten(&error, "it has arrived, and its row cannot be settled"))
            }
        }
    }
}

/// The failure of a database: waited for where it may come back, and otherwise not.
fn unwritten(error: &backstop_sql::Error, what: &str) -> Failure {
    let wait = if error.is_outage() { PAUSE } else { Duration::MAX };
    Failure::retry_after(wait).class_is("database").message_is(format!("{what}: {error}"))
}

impl Moved {
    /// The rest of a line about letters.
    pub(super) fn told(self) -> String {
        let parts = [
            (self.settled, "row settled as done", "rows settled as done"),
            (self.not_dead, "row not dead and left as it is", "rows not dead and left as they are"),
            (self.replayed, "row replayed", "rows replayed"),
            (self.appended, "appended anew, its row was gone", "appended anew, their rows were gone"),
            (
                self.pending,
                "in its table already, and delivered from there",
                "in their table already, and delivered from there",
            ),
            (
                self.done,
                "done in its table already, and not delivered again",
                "done in their table already, and not delivered again",
            ),
        ];
        let told = parts.into_iter().filter(|(number, ..)| *number > 0);
        told.fold(String::new(), |line, (number, one, many)| line + ", " + &count(number, one, many))
    }
}
