//! The log: to standard error, quiet unless asked.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. `BACKSTOP_LOG` wins over the flags, in the syntax of `RUST_LOG`.
pub(crate) fn start(verbose: u8) {
    let by_flags = match verbose {
        0 => "off",
        // All our crates: their names begin so.
        1 => "warn,backstop=info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("BACKSTOP_LOG").unwrap_or_else(|_| EnvFilter::new(by_flags));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}
