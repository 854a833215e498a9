//! The log: to standard error, quiet unless asked, for people or for programs.

mod json;
mod limits;

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing_subscriber::filter::FilterExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::plain::is_invisible;
use json::Json;
pub(crate) use limits::Limits;

/// How lines of the log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Starts the log. `BACKSTOP_LOG` wins over the flags, in the syntax of `RUST_LOG`.
pub(crate) fn start(verbose: u8, format: Format) -> Limits {
    let by_flags = match verbose {
        // Who changed what is said in any case.
        0 => "off,backstop::audit=info",
        // All our crates: their names begin so.
        1 => "warn,backstop=info",
        _ => "debug",
    };
    let limits = Limits::default();
    let filter = EnvFilter::try_from_env("BACKSTOP_LOG").unwrap_or_else(|_| EnvFilter::new(by_flags));
    let filter = filter.and(limits.clone());
    match format {
        Format::Text => {
            let (colours, lines) = (io::stderr().is_terminal(), || Lines(io::stderr()));
            let layer = fmt::layer().with_writer(lines).with_ansi(colours);
            tracing_subscriber::registry().with(layer.with_filter(filter)).init();
        }
        Format::Json => {
            let layer = fmt::layer().with_writer(io::stderr).event_format(Json);
            tracing_subscriber::registry().with(layer.with_filter(filter)).init();
        }
    }
    limits.start();
    limits
}

/// Keeps each line of the log one line, whatever others have put into it. Escape sequences of values are escaped before
/// they come here; those that are left are the colours.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (body, end) = text.strip_suffix('\n').map_or((&*text, ""), |body| (body, "\n"));
        let mut kept = String::with_capacity(line.len());
        for c in body.chars() {
            if (c.is_control() && c != '\u{1b}') || is_invisible(c) {
                kept.extend(c.escape_unicode());
            } else {
                kept.push(c);
            }
        }
        self.0.write_all((kept + end).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_stays_one_line() {
        let mut written = Vec::new();
        Lines(&mut written).write_all(b"WARN a\nINFO forged\r\x1b[0m \xe2\x80\xae!\n").unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "WARN a\\u{a}INFO forged\\u{d}\x1b[0m \\u{202e}!\n");
    }
}
