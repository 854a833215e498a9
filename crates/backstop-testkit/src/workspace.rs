//! Where the workspace of the running test is, and what its services wrote there.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the workspace: the nearest one above the tested crate whose manifest is a workspace's,
/// or the crate's own.
pub(crate) fn root() -> PathBuf {
    // Asked at run time: at compile time it would be this crate's folder, not that of the tests.
    let crate_folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let start = crate_folder.or_else(|| env::current_dir().ok()).unwrap_or_default();
    root_above(&start).unwrap_or(&start).to_owned()
}

/// A setting from the environment, or else from the file that `cargo xtask services up` writes.
pub(crate) fn setting(name: &str) -> Option<String> {
    let given = env::var(name).ok().filter(|value| !value.is_empty());
    given.or_else(|| value_in(&fs::read_to_string(services().join("env")).ok()?, name))
}

/// Why a service could not be started, if that was written down.
pub(crate) fn why_unavailable(service: &str) -> Option<String> {
    let reason = fs::read_to_string(services().join(service).join("unavailable")).ok()?;
    Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty())
}

/// Where `cargo xtask services up` keeps what it runs.
pub(crate) fn services() -> PathBuf {
    root().join("target/services")
}

fn root_above(start: &Path) -> Option<&Path> {
    start.ancestors().find(|folder| {
        fs::read_to_string(folder.join("Cargo.toml"))
            .is_ok_and(|manifest| manifest.lines().any(|line| line.trim().starts_with("[workspace]")))
    })
}

fn value_in(lines: &str, name: &str) -> Option<String> {
    let values = lines.lines().filter_map(|line| line.split_once('='));
    let mut named = values.filter(|(key, value)| key.trim() == name && !value.trim().is_empty());
    named.next().map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found_from_a_crate_deep_inside() {
        let folder = tempfile::tempdir().unwrap();
        let crate_folder = folder.path().join("crates/one");
        fs::create_dir_all(&crate_folder).unwrap();
        fs::write(crate_folder.join("Cargo.toml"), "[package]\nversion.workspace = true\n").unwrap();
        assert_eq!(root_above(&crate_folder), None);
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
        assert_eq!(root_above(&crate_folder), Some(folder.path()));
    }

    #[test]
    fn a_setting_may_hold_an_equals_sign_and_an_empty_one_counts_as_unset() {
        let lines = "A_URL=postgres://h/db?a=b\n\nB_URL=\nnoise\n";
        assert_eq!(value_in(lines, "A_URL").as_deref(), Some("postgres://h/db?a=b"));
        assert_eq!(value_in(lines, "B_URL"), None);
        assert_eq!(value_in(lines, "URL"), None);
    }
}
