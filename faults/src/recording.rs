//! What a node writes down: lines in files, each out of the process before anything else happens.

use std::fs::File;
use std::io::{self, Write as _};

use crate::args::Args;

/// A file that is only ever added to. A line is with the kernel when it is written, so a killed process loses
/// none.
#[derive(Debug)]
pub(crate) struct Recording(File);

impl Recording {
    /// The file `<name>.<what>` in the node's folder.
    pub(crate) fn open(args: &Args, what: &str) -> io::Result<Self> {
        let path = args.folder.join(format!("{}.{what}", args.name));
        File::options().create(true).append(true).open(path).map(Self)
    }

    /// Adds lines in one write, so that none is torn.
    pub(crate) fn add(&self, lines: &str) -> io::Result<()> {
        (&self.0).write_all(lines.as_bytes())
    }
}
