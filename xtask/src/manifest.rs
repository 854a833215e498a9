//! What cargo says about our crates: where they are, what they depend on, and which features they have.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::workspace::read;

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: Vec<String>,
}

/// A dependency of a crate, under the name of its package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) package: String,
    pub(crate) for_tests: bool,
    pub(crate) line: usize,
}

impl Package {
    /// Whether its manifest lies somewhere in a folder.
    pub(crate) fn is_in(&self, folder: &Path) -> bool {
        self.manifest.starts_with(folder)
    }
}

/// The crates of a workspace, sorted by name.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .with_context(|| format!("cannot read the manifests below {}; correct them", root.display()))?;
    let mut packages = metadata.packages.into_iter().map(package).collect::<Result<Vec<_>>>()?;
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

fn package(found: cargo_metadata::Package) -> Result<Package> {
    let manifest = found.manifest_path.into_std_path_buf();
    let text = read(&manifest)?;
    let dependency = |found: cargo_metadata::Dependency| {
        let for_tests = found.kind == DependencyKind::Development;
        let line = line_of(found.rename.as_ref().unwrap_or(&found.name), for_tests, &text);
        Dependency { package: found.name, for_tests, line }
    };
    Ok(Package {
        name: found.name.to_string(),
        manifest,
        dependencies: found.dependencies.into_iter().map(dependency).collect(),
        features: found.features.into_keys().collect(),
    })
}

/// The line on which a dependency stands, which cargo does not tell: the first that begins with its name, or the
/// heading of its own table. It is for the reader of a fault, so the first line will do where none is found.
fn line_of(name: &str, for_tests: bool, manifest: &str) -> usize {
    let mut heading = "";
    let found = (1..).zip(manifest.lines().map(str::trim)).find(|(_, line)| {
        if line.starts_with('[') {
            heading = line;
        }
        let own_table =
            line.starts_with('[') && line.trim_matches(['[', ']', '"']).ends_with(&format!(".{name}"));
        let key = line.trim_start_matches('"').strip_prefix(name);
        let is_key = key.is_some_and(|rest| rest.starts_with(['.', ' ', '=', '"']));
        heading.contains("dev-dependencies") == for_tests
            && heading.contains("dependencies")
            && (own_table || is_key)
    });
    found.map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What cargo says about a crate with this manifest.
    fn packaged(manifest: &str) -> Package {
        let folder = tempfile::tempdir().unwrap();
        let package = "[package]\nname = \"x\"\nedition = \"2024\"\n";
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        fs::write(folder.path().join("Cargo.toml"), format!("{package}{manifest}")).unwrap();
        packages(folder.path()).unwrap().pop().unwrap()
    }

    /// The names of dependencies, with the lines they stand on after the three of the package itself.
    fn named(manifest: &str, for_tests: bool) -> Vec<(String, usize)> {
        let of_kind =
            packaged(manifest).dependencies.into_iter().filter(|found| found.for_tests == for_tests);
        let mut named: Vec<_> = of_kind.map(|found| (found.package, found.line - 3)).collect();
        named.sort();
        named
    }

    fn expected(names: &[(&str, usize)]) -> Vec<(String, usize)> {
        names.iter().map(|(name, line)| ((*name).to_owned(), *line)).collect()
    }

    #[test]
    fn dependencies_are_found_in_every_spelling_with_their_lines() {
        let manifest = "[dependencies]\na = \"1\" # why\nb.version = \"1\"\n\
                        c = { package = \"real-c\", version = \"1\" }\n[dependencies.d]\nversion = \"1\"\n\
                        optional = true\n[target.'cfg(unix)'.dependencies]\ne = \"1\"\n[build-dependencies]\nf = \"1\"\n";
        assert_eq!(
            named(manifest, false),
            expected(&[("a", 2), ("b", 3), ("d", 5), ("e", 9), ("f", 11), ("real-c", 4)])
        );
    }

    #[test]
    fn dependencies_of_tests_are_told_apart() {
        let manifest = "[dependencies]\na = \"1\"\n[dev-dependencies]\na = \"1\"\nab = \"1\"\n\
                        [dev-dependencies.c]\npath = \"c\"\n";
        assert_eq!(named(manifest, false), expected(&[("a", 2)]));
        assert_eq!(named(manifest, true), expected(&[("a", 4), ("ab", 5), ("c", 6)]));
    }

    #[test]
    fn features_are_found_past_lists_of_many_lines() {
        let manifest = "[dependencies]\ny = { version = \"1\", optional = true }\n[features]\ndefault = []\n\
                        sqlite = [\n  \"dep:y\", # odd = sign\n  \"y/z\",\n]\n\"kafka\" = [\"sqlite\"]\n";
        assert_eq!(packaged(manifest).features, ["default", "kafka", "sqlite"]);
    }

    #[test]
    fn the_workspaces_own_table_is_no_dependency() {
        assert!(packaged("[workspace.dependencies]\na = \"1\"\n").dependencies.is_empty());
    }

    #[test]
    fn a_manifest_that_cargo_refuses_is_told_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[package\n").unwrap();
        let error = format!("{:#}", packages(folder.path()).unwrap_err());
        assert!(error.starts_with("cannot read the manifests below "), "{error}");
        assert!(error.contains("Cargo.toml"), "{error}");
    }
}
