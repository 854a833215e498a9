//! The command line: commands, flags, and what they default to.

use std::path::PathBuf;
use std::time::Duration;

use backstop_core::{Clock, SystemClock, Timestamp};
use clap::{ArgAction, Args, Parser, Subcommand};

use crate::config;
use crate::dlq;
use crate::logging::Format;
use crate::outbox;
use crate::queue;
use crate::target;

/// Every event arrives, or you can see exactly where it waits.
#[derive(Debug, Parser)]
#[command(name = "backstop", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Log more: -v for what happens to events, -vv for everything.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    /// How lines of the log are written: as text, or as one JSON object each.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        env = "BACKSTOP_LOG_FORMAT",
        default_value_t
    )]
    pub(crate) log_format: Format,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a small shop with an outbox and a queue, with nothing to install: watch events flow, fail, retry and arrive.
    Demo(Demo),
    /// The dead-letter directory: list, inspect, check, redrive, purge and export failed events.
    #[command(subcommand)]
    Dlq(Box<dlq::Command>),

    /// The outboxes of a settings file: list, show, replay and discard dead events, and say where an event is.
    #[command(subcommand)]
    Outbox(Box<outbox::Command>),

    /// The queues of a settings file: list, show, requeue and purge events, and say where an event is.
    #[command(subcommand)]
    Queue(Box<queue::Command>),

    /// The targets of a running daemon: list them, and enable one that is disabled.
    #[command(subcommand)]
    Target(Box<target::Command>),

    /// Run the outboxes and queues of a settings file until Ctrl-C or SIGTERM, then let handlers finish.
    Serve(Config),

    /// Check a settings file: every fault at once, with its place and a suggestion.
    Check(Config),

    /// Write a commented settings file to begin with.
    Init(Init),

    /// Create the tables of a settings file, or bring them up to date.
    Migrate(Migrate),

    /// Make an access token for the dashboard, and the hash that goes into the settings.
    Token(Token),

    /// Print every key of the settings file, as Markdown.
    Reference,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The settings file.
    #[arg(long, value_name = "FILE", default_value = config::FILE)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The file to write; an existing file is not changed.
    #[arg(value_name = "FILE", default_value = config::FILE)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub(crate) config: Config,

    /// Also let others insert rows with plain SQL: defaults for the columns they leave out and, on PostgreSQL, a trigger
    /// that wakes the daemon.
    #[arg(long)]
    pub(crate) triggers: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// Whose token it is, for the log.
    #[arg(long, value_name = "NAME", default_value = "ops")]
    pub(crate) name: String,

    /// What its holder may do.
    #[arg(long, value_name = "ROLE", default_value = "viewer", value_parser = ["viewer", "operator", "admin"])]
    pub(crate) role: String,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The port of the dashboard on 127.0.0.1; 0 picks a free one.
    #[arg(long, default_value_t = 7878, value_name = "PORT")]
    pub(crate) port: u16,

    /// End after this time, such as 10s, 2m or 500ms.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) run_for: Option<Duration>,

    /// How many orders the shop takes per second.
    #[arg(long, default_value_t = 20, value_name = "ORDERS", value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) rate: u32,

    /// Keep the database in this directory and go on from there at the next start; by default a temporary directory
    /// is used.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
}

/// Reads a time as people write it: a whole number and its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis)) {
        Some(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
        _ => Err("give a number above zero and a unit: ms, s, m, h or d, as in 10s".to_owned()),
    }
}

/// The moment that lies this long back.
pub(crate) fn ago(time: Duration) -> Timestamp {
    let now = SystemClock.now();
    let since_epoch = (now - Timestamp::UNIX_EPOCH).to_std().unwrap_or_default();
    // Longer ago than there are moments: everything is younger.
    if time < since_epoch { now - time } else { Timestamp::UNIX_EPOCH }
}

/// Reads a moment: as the standard writes it, or how long ago it was.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = |_| "give a moment like 2030-01-31T12:00:00Z, or how long ago, like 2h or 30d".to_owned();
    duration(text).map(ago).or_else(|_| text.parse::<Timestamp>().map_err(wrong))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_have_a_number_and_a_unit() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for wrong in ["", "10", "s", "-1s", "0s", "1.5s", "10 s", "10y", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
