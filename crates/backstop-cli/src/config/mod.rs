//! The settings: one YAML file and the environment around it. The only place that reads either.
//!
//! The text becomes a tree that knows where each part stands ([`yaml`]), environment variables are put into it
//! ([`overrides`]), the tree is walked against the table of keys ([`walk`], [`keys`]), what came out becomes types
//! ([`settings`]), and what must hold between them is checked ([`rules`]). Faults are gathered all the way, so that
//! one look shows all of them.

mod fault;
mod file;
mod keys;
mod kinds;
mod overrides;
pub(crate) mod reference;
mod rules;
pub(crate) mod settings;
pub(crate) mod starter;
mod suggest;
mod surroundings;
mod walk;
mod yaml;

use std::io;
use std::path::Path;

use anyhow::{Context, bail};

pub(crate) use settings::Settings;

use fault::{Findings, Place};
use surroundings::Surroundings;
use walk::Places;

/// The file that is read where none is named.
pub(crate) const FILE: &str = "backstop.yaml";

/// How large a file may be.
const LIMIT: u64 = 1024 * 1024;

/// What a file says, or everything that is wrong with it.
pub(crate) struct Checked {
    file: String,
    settings: Option<Settings>,
    places: Places,
    findings: Findings,
}

/// Reads and checks a file.
pub(crate) fn load(path: &Path) -> anyhow::Result<Checked> {
    Ok(check(&path.display().to_string(), &read(path)?, &Surroundings::beside(path)))
}

/// The secret that `env:NAME` or `file:PATH` on the command line stands for.
pub(crate) fn secret(text: &str) -> anyhow::Result<String> {
    match Surroundings::beside(Path::new("")).secret(text) {
        Some(secret) => secret.map_err(anyhow::Error::msg),
        None => bail!("give env:NAME or file:PATH, since other users can read a command line"),
    }
}

/// The text of a file that a flag names, and that holds no secret.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let bytes = file::read(path, LIMIT).with_context(cannot)?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.with_context(|| format!("{}: it is larger than 1 MiB, or not UTF-8 text", cannot()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let advice = || format!("{}; name it with --config, or let `backstop init` write one", cannot());
    let bytes = match file::read(path, LIMIT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error).with_context(advice)?,
        read => read.with_context(cannot)?,
    };
    let Some(bytes) = bytes else { bail!("{}: it is larger than 1 MiB, the limit for settings", cannot()) };
    String::from_utf8(bytes).ok().with_context(|| format!("{}: it is not UTF-8 text", cannot()))
}

/// Checks a file's text.
fn check(file: &str, text: &str, surroundings: &Surroundings) -> Checked {
    let mut findings = Findings::default();
    let mut root = match yaml::parse(text, &mut findings) {
        Ok(root) => root,
        Err(fault) => {
            // What a broken file says is not known, so there is nothing else to find.
            findings.add(fault);
            return Checked { file: file.to_owned(), settings: None, places: Places::default(), findings };
        }
    };
    overrides::apply(&mut root, surroundings, &mut findings);
    let (values, places) = walk::walk(&root, keys::ROOT, surroundings, &mut findings);
    let settings = serde_json::from_value::<Settings>(values).ok();
    match &settings {
        Some(settings) => rules::check(settings, &places, &mut findings),
        // Its text may hold a secret, so it is not repeated.
        None => findings.fault(Place::START, "", "the settings cannot be read: please report this as a bug"),
    }
    Checked { file: file.to_owned(), settings, places, findings }
}

impl Checked {
    /// The settings, if nothing is wrong; otherwise every fault, one on a line.
    pub(crate) fn settings(self) -> anyhow::Result<(Settings, Sections)> {
        let faults = self.faults();
        match self.settings {
            Some(settings) if faults.is_empty() => {
                Ok((settings, Sections { file: self.file, places: self.places }))
            }
            _ => {
                let count =
                    if faults.len() == 1 { "1 fault".to_owned() } else { format!("{} faults", faults.len()) };
                bail!("{} has {count}\n{}", self.file, faults.join("\n"))
            }
        }
    }

    /// Every fault as a line, in the order of the file.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.findings.faults().map(|fault| fault.told(&self.file).to_string()).collect()
    }

    /// Every warning as a line.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.findings.warnings().map(|fault| fault.told(&self.file).to_string()).collect()
    }
}

/// Where sections stand, for messages that come after the check.
pub(crate) struct Sections {
    file: String,
    places: Places,
}

impl Sections {
    /// A section in words: `outbox.orders (backstop.yaml:3:5)`.
    pub(crate) fn told(&self, path: &str) -> String {
        match self.places.of(path) {
            Place::File { line, column } => format!("{path} ({}:{line}:{column})", self.file),
            Place::Variable(name) => format!("{path} ({name})"),
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod one_place;
#[cfg(test)]
mod queues;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
