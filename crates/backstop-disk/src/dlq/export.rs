//! Exporting: a copy for another tool.

use std::io::Write;

use super::entries::Entries;
use super::entry::Found;
use super::record;
use crate::Error;

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// The CloudEvents alone, one to a line.
    #[default]
    Events,
    /// The records as they are stored: event, error and details.
    Records,
}

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Events that were written.
    pub exported: u64,
    /// Files or lines that are damaged and were passed over.
    pub damaged: u64,
}

pub(super) fn export(entries: Entries, form: Form, mut into: impl Write) -> Result<Exported, Error> {
    let mut done = Exported::default();
    for found in entries {
        let Found::Entry(entry) = found? else {
            done.damaged += 1;
            continue;
        };
        let line = match form {
            Form::Events => entry.event.as_json().as_bytes().to_owned(),
            Form::Records => record::line(&entry.event, &entry.error, entry.details.as_ref())?,
        };
        into.write_all(line.trim_ascii()).and_then(|()| into.write_all(b"\n")).map_err(Error::Export)?;
        done.exported += 1;
    }
    into.flush().map_err(Error::Export)?;
    Ok(done)
}
