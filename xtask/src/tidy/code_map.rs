//! The code map of `docs/ARCHITECTURE.md` names every crate and every module.
//!
//! Its format: under the heading "Code map" a heading of the third level for each crate, with the crate's name
//! in backticks, and below it a list with an item for each top-level module, such as ``- `retry`: when to try
//! again``. An item may name several modules before its colon.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::fault::Fault;
use crate::manifest::Package;
use crate::workspace::{Workspace, entries, file_name, read};

const PATH: &str = "docs/ARCHITECTURE.md";

/// The part of the map about one crate.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    name: String,
    line: usize,
    modules: Vec<(String, usize)>,
}

/// A crate and its modules as they are on disk.
type Actual = (String, BTreeSet<String>);

pub(super) fn check(workspace: &Workspace, crates: &[Package]) -> Result<Vec<Fault>> {
    let path = workspace.path(PATH);
    if !path.is_file() {
        let what = "the file is missing; write it, with a code map that lists every crate and module";
        return Ok(vec![Fault::new(PATH, 1, what)]);
    }
    let mut actual = Vec::new();
    for package in crates {
        let paths = entries(&package.manifest.with_file_name("src"))?;
        let modules = paths.iter().filter_map(|path| module(&file_name(path), path.is_dir()));
        actual.push((package.name.clone(), modules.collect()));
    }
    Ok(compare(sections(&read(&path)?).as_deref(), &actual))
}

/// The module that a file or folder under `src` holds.
fn module(name: &str, is_folder: bool) -> Option<String> {
    let module = if is_folder { Some(name) } else { name.strip_suffix(".rs") };
    let is_root = |module: &str| ["lib", "main", "bin"].contains(&module);
    let is_test = |module: &str| module == "tests" || module.ends_with("_tests");
    module.filter(|module| !is_root(module) && !is_test(module)).map(str::to_owned)
}

/// Reads the map; nothing if the document has none.
fn sections(text: &str) -> Option<Vec<Section>> {
    let mut lines = (1..).zip(text.lines()).skip_while(|(_, line)| *line != "## Code map");
    lines.next()?;
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        if let Some(heading) = line.strip_prefix("### ") {
            let name = names(heading).into_iter().next().unwrap_or_default();
            let name = name.strip_prefix("crates/").unwrap_or(&name).to_owned();
            sections.push(Section { name, line: number, modules: Vec::new() });
        } else if let (Some(item), Some(section)) = (line.strip_prefix("- "), sections.last_mut()) {
            let before_colon = item.split_once(':').map_or(item, |(names, _)| names);
            section.modules.extend(names(before_colon).into_iter().map(|name| (name, number)));
        }
    }
    Some(sections)
}

/// What stands in backticks.
fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn compare(map: Option<&[Section]>, actual: &[Actual]) -> Vec<Fault> {
    let Some(map) = map else {
        let what = "there is no heading `## Code map`; add one, and list every crate and module under it";
        return vec![Fault::new(PATH, 1, what)];
    };
    let mut faults = Vec::new();
    for (name, modules) in actual {
        let Some(section) = map.iter().find(|section| section.name == *name) else {
            let what = format!(
                "the code map lacks the crate `{name}`; add a heading ### `{name}` and list its modules"
            );
            faults.push(Fault::new(PATH, 1, what));
            continue;
        };
        for module in
            modules.iter().filter(|module| section.modules.iter().all(|(listed, _)| listed != *module))
        {
            let what =
                format!("the code map lacks the module `{module}` of `{name}`; add an item - `{module}`: …");
            faults.push(Fault::new(PATH, section.line, what));
        }
        for (listed, line) in section.modules.iter().filter(|(listed, _)| !modules.contains(listed)) {
            let what = format!("`{name}` has no module `{listed}`; remove it from the code map");
            faults.push(Fault::new(PATH, *line, what));
        }
    }
    // Folders beside `crates`, such as `xtask`, may be described without being checked.
    let gone = map.iter().filter(|section| section.name.starts_with("backstop"));
    for section in gone.filter(|section| actual.iter().all(|(name, _)| *name != section.name)) {
        let what = format!("there is no crate `{}`; remove it from the code map", section.name);
        faults.push(Fault::new(PATH, section.line, what));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Architecture\n\n## Code map\n\nSome words.\n\n### `backstop-core`\n\nNouns.\n\n\
                       - `event`, `outcome`: what is delivered\n- `retry`: when again\n\n### `crates/backstop-sql`\n\n\
                       - `store`: the `questions` asked\n\n## Invariants\n\n### `not-a-crate`\n";

    fn actual(name: &str, modules: &[&str]) -> Actual {
        (name.to_owned(), modules.iter().map(|module| (*module).to_owned()).collect())
    }

    fn told(actual: &[Actual]) -> Vec<String> {
        compare(sections(MAP).as_deref(), actual).into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn a_map_that_names_everything_is_in_order() {
        let core = actual("backstop-core", &["event", "outcome", "retry"]);
        assert!(told(&[core, actual("backstop-sql", &["store"])]).is_empty());
    }

    #[test]
    fn a_missing_crate_and_a_missing_module_are_told() {
        let core = actual("backstop-core", &["event", "outcome", "retry", "breaker"]);
        let told = told(&[core, actual("backstop-sql", &["store"]), actual("backstop-disk", &[])]);
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("lacks the module `breaker` of `backstop-core`"));
        assert!(told[1].contains("lacks the crate `backstop-disk`"));
    }

    #[test]
    fn what_is_gone_must_leave_the_map() {
        let told = told(&[actual("backstop-core", &["event", "outcome"])]);
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("no module `retry`"));
        assert!(told[1].contains("no crate `backstop-sql`"));
    }

    #[test]
    fn a_document_without_a_map_is_told() {
        assert_eq!(compare(sections("# Architecture\n").as_deref(), &[]).len(), 1);
    }

    #[test]
    fn roots_and_tests_are_no_modules() {
        assert_eq!(module("lib.rs", false), None);
        assert_eq!(module("breaker_tests.rs", false), None);
        assert_eq!(module("retry.rs", false), Some("retry".to_owned()));
        assert_eq!(module("stores", true), Some("stores".to_owned()));
        assert_eq!(module("schema.sql", false), None);
    }
}
