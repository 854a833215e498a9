//! The flags of `backstop dlq`.

use std::path::PathBuf;
use std::time::Duration;

use backstop_core::Timestamp;
use backstop_disk::dlq::{Filter, Place};
use clap::{Args, Subcommand};

use crate::args::{duration, moment};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is in the directory, the oldest first.
    List(List),
    /// Show one whole entry.
    Inspect(Inspect),
    /// Check every file and report what is damaged or left over; changes nothing.
    Fsck(Fsck),
    /// Send entries again and remove those that arrived: to a web server, a topic, an outbox, a file or standard output.
    Redrive(Redrive),
    /// Delete entries for good.
    Purge(Purge),
    /// Copy events, one to a line, and leave them where they are.
    Export(Export),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The dead-letter directory.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// Stop after this many.
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) limit: Option<usize>,
    /// One JSON object to a line, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The dead-letter directory.
    pub(crate) directory: PathBuf,
    /// The entry, as `list` shows it.
    pub(crate) entry: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Fsck {
    /// The dead-letter directory.
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Redrive {
    /// The dead-letter directory.
    pub(crate) directory: PathBuf,
    /// Where to: a URL, to which each event is sent as a CloudEvent; `kafka://host:port/topic`; `outbox:NAME`, to have that
    /// outbox deliver it again; a file, to which it is appended and synced; or `-` for standard output. `env:NAME` or
    /// `file:PATH` for a URL that others should not read.
    #[arg(long, value_name = "URL|outbox:NAME|FILE")]
    pub(crate) to: String,
    /// The settings file of the outboxes that wrote the letters: the row of a letter that arrives becomes DONE if it is
    /// DEAD. Without the flag it is backstop.yaml, where there is one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Leave the rows of the letters as they are, and read no settings file.
    #[arg(long, conflicts_with = "config")]
    pub(crate) leave_rows: bool,
    #[command(flatten)]
    pub(crate) web: Web,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// Only this entry, as `list` shows it.
    #[arg(long, value_name = "ENTRY")]
    pub(crate) only: Option<Place>,
    /// Begin after this entry.
    #[arg(long, value_name = "ENTRY")]
    pub(crate) after: Option<Place>,
    /// Say what would be sent, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Send at most this many in a second.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Stop after this many.
    #[arg(long, value_name = "EVENTS")]
    pub(crate) limit: Option<u64>,
    /// How long to wait in all for a target that is unavailable or busy, before stopping.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub(crate) patience: Duration,
}

/// How a URL is reached.
#[derive(Debug, Args)]
pub(crate) struct Web {
    /// Sign requests with this Standard Webhooks secret, `env:NAME` or `file:PATH`; may be given several times.
    #[arg(long, value_name = "SECRET")]
    pub(crate) secret: Vec<String>,
    /// A private network that the URL may be in, such as 127.0.0.0/8; may be given several times.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) allow_network: Vec<String>,
    /// How long an answer may take. By default 15s from a web server and 30s from brokers.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    /// The dead-letter directory.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// Say what would be deleted, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What is deleted for good must be named.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Entries that failed longer ago than this, such as 30d.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Option<Duration>,
    /// All entries, whatever their age.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The dead-letter directory.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// Write to this new file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Write the records as they are stored, with their errors, instead of the events alone.
    #[arg(long)]
    pub(crate) records: bool,
}

/// Which entries are meant; without any of these all are.
#[derive(Debug, Args)]
pub(crate) struct Matching {
    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events with this id.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Only events from this source.
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only events whose error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only events for this target, if the entry names one.
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Only events that failed since then: 2h for two hours ago, or 2030-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only events that failed before then.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

impl Matching {
    pub(crate) fn narrow(self, filter: Filter) -> Filter {
        let filter = with(filter, self.event_type, Filter::event_type);
        let filter = with(filter, self.id, Filter::event_id);
        let filter = with(filter, self.source, Filter::source);
        let filter = with(filter, self.error, Filter::error_contains);
        let filter = with(filter, self.target, Filter::target);
        let filter = with(filter, self.since, Filter::since);
        with(filter, self.until, Filter::until)
    }
}

fn with<T>(filter: Filter, value: Option<T>, set: impl Fn(Filter, T) -> Filter) -> Filter {
    match value {
        Some(value) => set(filter, value),
        None => filter,
    }
}
