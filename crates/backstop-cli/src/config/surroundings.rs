//! What the process finds around it: environment variables, and files that hold secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How much of a file with a secret is read.
const SECRET_LIMIT: u64 = 64 * 1024;

/// Environment variables, and the directory that relative paths begin at.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    variables: BTreeMap<OsString, OsString>,
    directory: PathBuf,
}

impl Surroundings {
    /// Those of this process, with paths beginning beside a file.
    pub(crate) fn beside(file: &Path) -> Self {
        let directory = file.parent().unwrap_or(Path::new("")).to_owned();
        Self { variables: std::env::vars_os().collect(), directory }
    }

    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)], directory: impl Into<PathBuf>) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Self { variables, directory: directory.into() }
    }

    /// The variables whose names begin so, with the rest of their names. A value that is no text is `None`.
    pub(crate) fn beginning<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let named = |(name, value): (&'a OsString, &'a OsString)| Some((name.to_str()?, value.to_str()));
        self.variables.iter().filter_map(named).filter(move |(name, _)| name.starts_with(prefix))
    }

    /// The secret that `env:NAME` or `file:PATH` stands for; `None` if the text is neither.
    pub(crate) fn secret(&self, text: &str) -> Option<Result<String, String>> {
        if let Some(name) = text.strip_prefix("env:") {
            return Some(self.variable(name));
        }
        text.strip_prefix("file:").map(|path| read_secret(&self.directory.join(path)))
    }

    fn variable(&self, name: &str) -> Result<String, String> {
        match self.variables.get(&OsString::from(name)).map(|value| value.to_str()) {
            Some(Some("")) => Err(format!("the environment variable {name} is empty")),
            Some(Some(value)) => Ok(value.to_owned()),
            Some(None) => Err(format!("the environment variable {name} is no UTF-8 text")),
            None => Err(format!("the environment variable {name} is not set")),
        }
    }
}

fn read_secret(path: &Path) -> Result<String, String> {
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read the secret in {}: {why}", path.display());
    let mut text = String::new();
    let opened = File::open(path).map_err(|error| cannot(&error))?;
    opened.take(SECRET_LIMIT + 1).read_to_string(&mut text).map_err(|error| cannot(&error))?;
    if text.len() as u64 > SECRET_LIMIT {
        return Err(cannot(&"it is longer than 64 KiB"));
    }
    // Editors and `echo` end a file with a line break that is no part of the secret.
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() { Err(cannot(&"it is empty")) } else { Ok(secret.to_owned()) }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers::directory;

    use super::*;

    #[test]
    fn secrets_come_from_variables_and_from_files_beside_the_settings() {
        let directory = directory();
        std::fs::write(directory.file("url"), "sqlite:a.db\n").unwrap();
        std::fs::write(directory.file("empty"), "\n").unwrap();
        std::fs::write(directory.file("long"), "x".repeat(70_000)).unwrap();
        let around = Surroundings::of(&[("URL", "sqlite:b.db"), ("EMPTY", "")], directory.path());
        let secret = |text: &str| around.secret(text).unwrap();
        assert_eq!(secret("env:URL").as_deref(), Ok("sqlite:b.db"));
        assert_eq!(secret("file:url").as_deref(), Ok("sqlite:a.db"));
        assert_eq!(secret("env:NONE").unwrap_err(), "the environment variable NONE is not set");
        assert_eq!(secret("env:EMPTY").unwrap_err(), "the environment variable EMPTY is empty");
        for (file, why) in
            [("none", "No such file"), ("empty", "it is empty"), ("long", "longer than 64 KiB")]
        {
            let said = secret(&format!("file:{file}")).unwrap_err();
            assert!(said.starts_with("cannot read the secret in ") && said.contains(why), "{said}");
        }
        assert_eq!(around.secret("sqlite:c.db"), None);
    }
}
