//! Mirrored folders: every store has the same file names, so that a difference is found by comparing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::fault::Fault;
use crate::workspace::{Workspace, entries, file_name};

const STORES: &str = "crates/backstop-sql/src/stores";

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Fault>> {
    let mut stores = Vec::new();
    for folder in entries(&workspace.path(STORES))?.into_iter().filter(|path| path.is_dir()) {
        let mut files = BTreeSet::new();
        collect(&folder, "", &mut files)?;
        stores.push((file_name(&folder), files));
    }
    Ok(compare(&stores))
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeSet<String>) -> Result<()> {
    for path in entries(folder)? {
        let name = format!("{prefix}{}", file_name(&path));
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            files.insert(name);
        }
    }
    Ok(())
}

fn compare(stores: &[(String, BTreeSet<String>)]) -> Vec<Fault> {
    let all: BTreeSet<&String> = stores.iter().flat_map(|(_, files)| files).collect();
    let mut faults = Vec::new();
    for (store, files) in stores {
        for file in all.iter().filter(|file| !files.contains(**file)) {
            let owners: Vec<&str> = stores
                .iter()
                .filter(|(_, files)| files.contains(*file))
                .map(|(name, _)| name.as_str())
                .collect();
            let what = format!(
                "`{file}` is missing here and present in {}; add it or remove it there",
                owners.join(", ")
            );
            faults.push(Fault::new(format!("{STORES}/{store}"), 1, what));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str, files: &[&str]) -> (String, BTreeSet<String>) {
        (name.to_owned(), files.iter().map(|file| (*file).to_owned()).collect())
    }

    #[test]
    fn stores_with_the_same_files_are_in_order() {
        let files = ["claim.sql", "mod.rs", "migrations/1.sql"];
        assert_eq!(compare(&[store("mysql", &files), store("sqlite", &files)]), []);
        assert_eq!(compare(&[]), []);
    }

    #[test]
    fn a_file_that_one_store_lacks_is_a_fault_of_that_store() {
        let faults = compare(&[store("mysql", &["a.rs"]), store("postgres", &["a.rs", "b.rs"])]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].path.ends_with("/mysql"));
        assert!(faults[0].what.contains("`b.rs`") && faults[0].what.contains("postgres"));
    }
}
