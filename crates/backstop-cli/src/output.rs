//! Standard output, which may be a pipe whose reader has seen enough.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Context;

pub(super) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(super) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Writes a line; false if nobody reads any more.
    pub(super) fn line(&mut self, line: &str) -> anyhow::Result<bool> {
        still_read(writeln!(self.0, "{line}"))
    }

    pub(super) fn end(mut self) -> anyhow::Result<()> {
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
