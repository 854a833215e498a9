//! The flags of `backstop target`.

use clap::{Args, Subcommand};

use crate::api::Reach;
use crate::args::Config;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show where the handlers of a running daemon send to, and whether each target is called.
    List(List),
    /// Send to a disabled target again, such as one that has answered 410.
    Enable(Enable),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) config: Config,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// One JSON object to a line, for other programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Enable {
    /// The target, as `list` shows it, or what stands behind the arrow there.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) config: Config,
    #[command(flatten)]
    pub(crate) reach: Reach,
}
