//! What the process finds around it: environment variables, and files that hold secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::file;

/// How much of a file with a secret is read. Some clouds have all their root certificates in one file of hundreds of KiB.
const SECRET_LIMIT: u64 = 1024 * 1024;

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
        text.strip_prefix("file:").map(|path| self.file(path))
    }

    fn variable(&self, name: &str) -> Result<String, String> {
        match self.variables.get(&OsString::from(name)).map(|value| value.to_str()) {
            Some(Some("")) => Err(format!("the environment variable {name} is empty")),
            Some(Some(value)) => Ok(value.to_owned()),
            Some(None) => Err(format!("the environment variable {name} is not UTF-8 text")),
            None if is_name(name) => Err(format!("the environment variable {name} is not set")),
            None => Err("there is no environment variable with the name that follows env:, which is not shown, since \
                         it may be the secret itself; write env:NAME"
                .to_owned()),
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        let path = self.directory.join(path);
        let cannot = |why: &dyn fmt::Display| format!("cannot read the secret in {}: {why}", path.display());
        let read = file::read(&path, SECRET_LIMIT);
        if read.is_err() && path.symlink_metadata().is_err() {
            let above = path.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("."));
            return Err(format!(
                "there is no such file in or below {}; the rest of its path is not shown, since what follows file: may be \
                 the secret itself",
                above.display()
            ));
        }
        let bytes = read.map_err(|error| cannot(&error))?;
        let bytes = bytes.ok_or_else(|| cannot(&"it is longer than 1 MiB"))?;
        let text = String::from_utf8(bytes).map_err(|_| cannot(&"it is not UTF-8 text"))?;
        // Editors and `echo` end a file with a line break that is no part of the secret.
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.is_empty() { Err(cannot(&"it is empty")) } else { Ok(secret.to_owned()) }
    }
}

/// Whether a text is what people call a variable: words in capitals, perhaps numbered. Anything else may be a secret that
/// was written where its name belongs.
fn is_name(text: &str) -> bool {
    let is_word = |word: &str| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        word.len() <= 4 || (word.len() <= 16 && letters.bytes().all(|byte| byte.is_ascii_uppercase()))
    };
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=64).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.split('_').all(is_word)
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
        std::fs::write(directory.file("long"), "x".repeat(1_100_000)).unwrap();
        let around = Surroundings::of(&[("URL", "sqlite:b.db"), ("EMPTY", "")], directory.path());
        let secret = |text: &str| around.secret(text).unwrap();
        assert_eq!(secret("env:URL").as_deref(), Ok("sqlite:b.db"));
        assert_eq!(secret("file:url").as_deref(), Ok("sqlite:a.db"));
        assert_eq!(secret("env:NONE").unwrap_err(), "the environment variable NONE is not set");
        assert_eq!(secret("env:EMPTY").unwrap_err(), "the environment variable EMPTY is empty");
        std::fs::write(directory.file("bytes"), [0xff]).unwrap();
        std::fs::create_dir(directory.file("folder")).unwrap();
        for (file, why) in [
            ("empty", "it is empty"),
            ("long", "longer than 1 MiB"),
            ("bytes", "not UTF-8 text"),
            ("folder", "it is a directory, not a regular file"),
            ("/dev/null", "it is a device, not a regular file"),
        ] {
            let said = secret(&format!("file:{file}")).unwrap_err();
            assert!(said.starts_with("cannot read the secret in ") && said.contains(why), "{said}");
        }
        assert_eq!(around.secret("sqlite:c.db"), None);
    }

    #[test]
    fn a_reference_that_is_the_secret_itself_is_not_repeated() {
        let directory = directory();
        let around = Surroundings::of(&[], directory.path());
        for secret in [
            "postgres://u:hunter2@h/d",
            "whsec_hunter2",
            "hunter2",
            "hunter2==",
            "../hunter2:x",
            "/9j/4AAQSkZJRgABAQEAYABgAADhunter2hunter2",
            "",
        ] {
            for kind in ["env", "file"] {
                let told = around.secret(&format!("{kind}:{secret}")).unwrap().unwrap_err();
                assert!(!told.contains("hunter2"), "{kind}:{secret}: {told}");
            }
        }
        for name in ["URL", "ORDERS_DB_URL2", "_X", "K8S_URL"] {
            let told = around.secret(&format!("env:{name}")).unwrap().unwrap_err();
            assert_eq!(told, format!("the environment variable {name} is not set"));
        }
        let told = around.secret("file:no/such").unwrap().unwrap_err();
        assert!(
            told.starts_with(&format!("there is no such file in or below {};", directory.path().display()))
        );
        for key in ["JBSWY3DPEHPK3PXP", "AKIAIOSFODNN7EXAMPLE", "0123456789ABCDEF"] {
            let told = around.secret(&format!("env:{key}")).unwrap().unwrap_err();
            assert!(!told.contains(key), "{told}");
        }
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let directory = directory();
        let made = std::process::Command::new("mkfifo").arg(directory.file("pipe")).status().unwrap();
        assert!(made.success());
        let told = Surroundings::of(&[], directory.path()).secret("file:pipe").unwrap().unwrap_err();
        assert!(told.ends_with("pipe: it is a pipe, not a regular file"), "{told}");
    }
}
