//! The flags of `backstop queue`.

use std::time::Duration;

use backstop_core::Timestamp;
use backstop_sql::queue::{Filter, Listed, Status};
use clap::{Args, Subcommand};

use crate::args::{Config, duration, moment};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show events of a status, FAILED if none is given, the earliest first; or those that are stuck, or how many are where.
    List(List),
    /// Show one whole event, wherever it is.
    Show(One),
    /// Say where an event is, why it is there, and what can be done.
    Why(One),
    /// Have failed or stuck events handled again. What a dead worker left behind comes by itself after the time-out, so
    /// stuck events rarely need this.
    Requeue(Requeue),
    /// Delete events from the log that ended long ago, COMPLETED and FAILED alike.
    Purge(Purge),
}

/// Which queue is meant.
#[derive(Debug, Args)]
pub(crate) struct Which {
    #[command(flatten)]
    pub(crate) config: Config,
    /// The queue, by its name in the settings file; needed where the file has several.
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Events of this status: pending, processing, completed or failed.
    #[arg(long, value_name = "STATUS", value_parser = status, default_value = "failed")]
    pub(crate) status: Status,
    /// Events whose worker has died or stands still.
    #[arg(long, conflicts_with = "status")]
    pub(crate) stuck: bool,
    /// Only say how many events are where.
    #[arg(long, conflicts_with_all = ["status", "stuck", "limit", "event_type", "error", "since", "until"])]
    pub(crate) counts: bool,
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
    /// The event's id: the number of its row.
    pub(crate) id: i64,
    #[command(flatten)]
    pub(crate) which: Which,
    /// A JSON object on one line, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Requeue {
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
    /// Stop after this many, the earliest.
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
    pub(crate) ids: Vec<i64>,
    /// All failed events, or all that the filter leaves; with --stuck, all that are stuck.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Those that are stuck, and not those that have failed.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) stuck: bool,
    /// Also those of the events named that are being handled: they are handled twice, and the first result is ignored.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Events that ended longer ago than this, such as 30d.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Duration,
    /// Say how many events it would be, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask; needed where nobody can be asked.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Stop after this many, those that ended first.
    #[arg(long, value_name = "EVENTS")]
    pub(crate) limit: Option<u64>,
    /// What was done as a JSON object on standard output, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which events are meant; each of these narrows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct Matching {
    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events whose error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only events that were published since then: 2h for two hours ago, or 2030-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only events that were published before then.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

impl Matching {
    /// Those that were published before a moment.
    pub(crate) fn until(moment: Timestamp) -> Self {
        Self { until: Some(moment), ..Self::default() }
    }

    /// The same as a question to the tables.
    pub(crate) fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        filter.event_type.clone_from(&self.event_type);
        filter.error_contains.clone_from(&self.error);
        filter.created_from = self.since;
        filter.created_before = self.until;
        filter
    }

    /// Whether an event that was read is among them.
    pub(crate) fn includes(&self, listed: &Listed) -> bool {
        let Self { event_type, error, since, until } = self;
        let said = listed.error.as_deref().unwrap_or_default();
        event_type.as_ref().is_none_or(|wanted| listed.event_type.as_ref() == Some(wanted))
            && error.as_ref().is_none_or(|text| said.contains(text))
            && since.is_none_or(|since| listed.created_at >= since)
            && until.is_none_or(|until| listed.created_at < until)
    }
}

fn status(text: &str) -> Result<Status, String> {
    Status::of(&text.to_ascii_uppercase())
        .ok_or_else(|| "give one of pending, processing, completed and failed".to_owned())
}
