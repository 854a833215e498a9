//! The marks that skipping tests leave, since a test program cannot say "skipped" by itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, entries, file_name, make_folder, read};

/// The folder of the marks: one file per skipped test, named after it, that says why.
pub(super) struct Skips {
    folder: PathBuf,
}

impl Skips {
    /// Forgets the marks of the last run.
    pub(super) fn cleared(workspace: &Workspace, folder: &str) -> Result<Self> {
        let folder = workspace.path(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot clear {}; check its permissions", folder.display()))?;
        }
        make_folder(&folder)?;
        Ok(Self { folder })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every skipped test and why, sorted by name.
    pub(super) fn list(&self) -> Result<Vec<(String, String)>> {
        entries(&self.folder)?.iter().map(|mark| Ok((file_name(mark), one_line(&read(mark)?)))).collect()
    }
}

fn one_line(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if joined.is_empty() { "no reason given".to_owned() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_on_one_line() {
        assert_eq!(one_line("no kafka:\n  Java is missing\n"), "no kafka: Java is missing");
        assert_eq!(one_line("\n"), "no reason given");
    }
}
