//! What a node writes down: lines in files, each out of the process before anything else happens.

use std::fs::File;
use std::io::{self, Write as _};

use backstop_core::{Clock as _, SystemClock};
use rustix::time::{ClockId, clock_gettime};

use crate::args::Args;

/// A file that is only ever added to. A line is with the kernel when it is written, so a killed process loses
/// none.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    epoch: Option<i64>,
}

impl Recording {
    /// The file `<name>.<what>` in the node's folder.
    pub(crate) fn open(args: &Args, what: &str) -> io::Result<Self> {
        let path = args.folder.join(format!("{}.{what}", args.name));
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file, epoch: args.epoch })
    }

    /// Adds lines in one write, so that none is torn.
    pub(crate) fn add(&self, lines: &str) -> io::Result<()> {
        (&self.file).write_all(lines.as_bytes())
    }

    /// Adds a line that begins with the moment of now.
    pub(crate) fn note(&self, what: &str) -> io::Result<()> {
        self.add(&format!("{} {what}\n", self.now()))
    }

    /// The moment of now, in microseconds: by the monotonic clock if it is known when that began, since a test may
    /// move the other.
    pub(crate) fn now(&self) -> i64 {
        let Some(epoch) = self.epoch else { return SystemClock.now().timestamp_micros() };
        let ticks = clock_gettime(ClockId::Monotonic);
        epoch + ticks.tv_sec * 1_000_000 + ticks.tv_nsec / 1_000
    }
}
