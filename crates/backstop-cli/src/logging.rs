//! The log: to standard error, quiet unless asked.

use tracing_subscriber::EnvFilter;

/// Starts the log. `BACKSTOP_LOG` wins over the flags, in the syntax of `RUST_LOG`.
pub(crate) fn start(verbose: u8) {
    let by_flags = match verbose {
        0 => "off",
        1 => "warn,backstop_core=info,backstop_sql=info,backstop_disk=info,backstop_admin=info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("BACKSTOP_LOG").unwrap_or_else(|_| EnvFilter::new(by_flags));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
