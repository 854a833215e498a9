//! `backstop init`: a settings file to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};

use crate::config::starter;

pub(crate) fn run(file: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    let mut opened = match OpenOptions::new().write(true).create_new(true).open(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} already exists and was not changed; name another file", file.display());
        }
        opened => opened.with_context(cannot)?,
    };
    opened.write_all(starter::text().as_bytes()).with_context(cannot)?;
    println!("wrote {0}; look it through, then run `backstop serve --config {0}`", file.display());
    Ok(())
}
