//! `backstop reference`: every key of the settings file.

use std::io::{ErrorKind, Write};

use crate::config::reference;

pub(crate) fn run() -> anyhow::Result<()> {
    match std::io::stdout().write_all(reference::page().as_bytes()) {
        // The reader may have seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
