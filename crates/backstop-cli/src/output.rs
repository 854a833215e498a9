//! What commands say: lines on standard output, which may be a pipe whose reader has seen enough, and numbers in words.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::time::Duration;

use anyhow::Context;
use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock};

pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Writes a line; false if nobody reads any more.
    pub(crate) fn line(&mut self, line: &str) -> anyhow::Result<bool> {
        still_read(writeln!(self.0, "{line}"))
    }

    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        still_read(self.0.flush()).map(|_| ())
    }
}

fn still_read(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// A number and what it counts: `1 entry`, `2 entries`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The rest of a line, if there is something to say.
pub(crate) fn also(number: u64, what: &str) -> String {
    if number == 0 { String::new() } else { format!(", {number} {what}") }
}

/// How often a line about the progress of a command is printed.
const BETWEEN: Duration = Duration::from_secs(1);

/// When the next line about the progress of a command is due.
pub(crate) struct Pace(Tick);

impl Pace {
    pub(crate) fn new() -> Self {
        Self(SystemClock.ticks())
    }

    /// Whether it is; then the next one is due later.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = SystemClock.ticks();
        let is_due = now.since(self.0) >= BETWEEN;
        if is_due {
            self.0 = now;
        }
        is_due
    }
}
