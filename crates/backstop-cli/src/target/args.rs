//! The flags of `backstop target`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    pub(crate) reach: Reach,
}

/// How the daemon is reached.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    #[command(flatten)]
    pub(crate) config: Config,
    /// Where the daemon's dashboard is, in place of `server.address` of the settings file; no file is read then.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Root certificates in PEM form, one of which must vouch for a daemon with TLS; those of the system count too, and
    /// those in `server.tls` of the settings file.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The access token, `env:NAME` or `file:PATH`. Without the flag it is the variable `BACKSTOP_TOKEN`, where it is set.
    #[arg(long, value_name = "SECRET")]
    pub(crate) token: Option<String>,
}
