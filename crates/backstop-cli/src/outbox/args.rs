//! The flags of `backstop outbox`.

use backstop_core::Timestamp;
use backstop_sql::store::DeadFilter;
use clap::{Args, Subcommand};

use crate::api::Reach;
use crate::args::{Config, moment};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the dead events, the oldest first.
    List(List),
    /// Show one whole event, dead or not.
    Show(One),
    /// Say where an event is, why it is there, and what can be done.
    Why(Why),
    /// Set dead events back, so that they are delivered again as if they had never been tried.
    Replay(Move),
    /// Delete dead events for good.
    Discard(Move),
}

/// Which outbox is meant.
#[derive(Debug, Args)]
pub(crate) struct Which {
    #[command(flatten)]
    pub(crate) config: Config,
    /// The outbox, by its name in the settings file; needed where the file has several.
    #[arg(long, value_name = "NAME")]
    pub(crate) outbox: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// Stop after this many.
    #[arg(long, value_name = "EVENTS")]
    pub(crate) limit: Option<u64>,
    /// One JSON object to a line, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The event's id.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// A JSON object on one line, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct Move {
    #[command(flatten)]
    pub(crate) named: Named,
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// Say how many events it would be, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask; needed where nobody can be asked.
    #[arg(long)]
    pub(crate) yes: bool,
    /// At most this many in a second.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Stop after this many, the oldest.
    #[arg(long, value_name = "EVENTS")]
    pub(crate) limit: Option<u64>,
    /// What was done as a JSON object on standard output, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is changed must be named, here or by a filter.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The events, by their ids.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All dead events, or all that the filter leaves.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

/// Which dead events are meant; each of these narrows it.
#[derive(Debug, Args)]
pub(crate) struct Matching {
    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events about this kind of aggregate.
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// Only events about this aggregate.
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// Only events whose error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only events that died since then: 2h for two hours ago, or 2030-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only events that died before then.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

impl Matching {
    pub(crate) fn filter(&self) -> DeadFilter {
        DeadFilter {
            event_type: self.event_type.clone(),
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            error_contains: self.error.clone(),
            died_from: self.since,
            died_before: self.until,
            ..DeadFilter::default()
        }
    }
}
