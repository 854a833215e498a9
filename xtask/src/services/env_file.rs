//! `target/services/env`: the addresses that tests read.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, make_folder, read, write};

/// Variables and their values, in the order of the file.
pub(crate) struct EnvFile {
    path: PathBuf,
    variables: Vec<(String, String)>,
}

impl EnvFile {
    /// A file with nothing in it yet; what is on disk stays until `save`.
    pub(super) fn empty(workspace: &Workspace) -> Self {
        Self { path: workspace.path("target/services/env"), variables: Vec::new() }
    }

    /// What the last `up` wrote; nothing if there was none.
    pub(crate) fn load(workspace: &Workspace) -> Self {
        let file = Self::empty(workspace);
        let variables = parse(&read(&file.path).unwrap_or_default());
        Self { variables, ..file }
    }

    /// What a program is started with: a variable that the user has set stays as it is.
    pub(crate) fn unset_variables(&self) -> impl Iterator<Item = &(String, String)> {
        self.variables.iter().filter(|(variable, _)| std::env::var_os(variable).is_none())
    }

    pub(super) fn get(&self, variable: &str) -> Option<String> {
        self.variables.iter().find(|(known, _)| known == variable).map(|(_, value)| value.clone())
    }

    pub(super) fn set(&mut self, variable: &str, value: &str) {
        self.variables.retain(|(known, _)| known != variable);
        self.variables.push((variable.to_owned(), value.to_owned()));
    }

    pub(super) fn save(&self) -> Result<()> {
        if let Some(folder) = self.path.parent() {
            make_folder(folder)?;
        }
        let lines = self.lines(|variable, value| format!("{variable}={value}"));
        // Written aside and renamed, so that a reader never sees half a file.
        let aside = self.path.with_extension(std::process::id().to_string());
        write(&aside, lines)?;
        fs::rename(&aside, &self.path)
            .with_context(|| format!("cannot write {}; check its permissions", self.path.display()))
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Lines for the shell's `eval`.
    pub(super) fn exports(&self) -> String {
        self.lines(|variable, value| format!("export {variable}={}", quoted(value)))
    }

    fn lines(&self, show: impl Fn(&str, &str) -> String) -> String {
        self.variables.iter().fold(String::new(), |lines, (variable, value)| {
            lines
                + &show(variable, value)
                + "
"
        })
    }
}

fn parse(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(variable, value)| (variable.to_owned(), value.to_owned()))
        .collect()
}

/// A value that the shell takes as it stands; a password may hold anything.
fn quoted(value: &str) -> String {
    if value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@,+".contains(c)) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_equals_signs() {
        let variables = parse("A=postgres://u@h/db?x=1\nnonsense\nB=2\n");
        assert_eq!(variables, [("A".into(), "postgres://u@h/db?x=1".into()), ("B".into(), "2".into())]);
    }

    #[test]
    fn exports_are_safe_to_eval() {
        assert_eq!(quoted("postgres://u@127.0.0.1:1234/db"), "postgres://u@127.0.0.1:1234/db");
        assert_eq!(quoted("p$(rm)'s"), r"'p$(rm)'\''s'");
    }
}
