//! A directory of its own for each test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// An empty directory that is removed, with all it holds, when this value is dropped.
///
/// ```
/// let directory = backstop_testkit::servers::directory();
/// std::fs::write(directory.file("spill.log"), "one line").unwrap();
/// assert!(directory.path().join("spill.log").exists());
/// ```
#[derive(Debug)]
pub struct Directory(TempDir);

/// Makes a fresh directory among the machine's temporary files.
///
/// # Panics
///
/// If there is no room for one.
pub fn directory() -> Directory {
    let made = tempfile::Builder::new().prefix("backstop-test-").tempdir();
    Directory(made.unwrap_or_else(|error| {
        panic!("cannot make a directory in {}: {error}", std::env::temp_dir().display())
    }))
}

impl Directory {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file of that name in it, whether it exists or not.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }
}

impl AsRef<Path> for Directory {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_is_empty_and_another_and_goes_with_its_value() {
        let (one, two) = (directory(), directory());
        assert_ne!(one.path(), two.path());
        assert_eq!(std::fs::read_dir(&one).unwrap().count(), 0);
        std::fs::create_dir(one.file("full")).unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }
}
