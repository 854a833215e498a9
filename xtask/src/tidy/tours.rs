//! The tours of CONTRIBUTING, "how to add …": every file that a checklist names is there, and no other file knows a
//! database.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};

use crate::fault::Fault;
use crate::source::Source;
use crate::workspace::{Workspace, read};

const PAGE: &str = "CONTRIBUTING.md";

/// How the tour begins whose checklist names every source file that knows which databases there are.
const DATABASES: &str = "**… a database.**";

/// The database that is looked for: it has nothing that the others lack, so only the checklist's files name it.
const PLAIN: [&str; 3] = ["mysql", "MySql", "Mysql"];

/// Where it may be named anywhere: its own folder, and what is there for tests.
const ITS_OWN: [&str; 3] = [
    "crates/backstop-sql/src/stores/mysql/",
    "crates/backstop-testkit/",
    "crates/backstop-cli/src/config/hostile.rs",
];

pub(super) fn check(workspace: &Workspace, sources: &[Source]) -> Result<Vec<Fault>> {
    let page = read(&workspace.path(PAGE))?;
    let steps = steps(&page);
    let exists = |path: &str| workspace.path(path).exists();
    let mut faults = missing(&steps, exists);
    let listed: BTreeSet<_> =
        steps.iter().filter(|step| step.tour.starts_with(DATABASES)).flat_map(Step::paths).collect();
    faults.extend(sources.iter().filter(|source| knows_databases(source)).filter_map(|source| {
        let what =
            format!("this file names a database, and the checklist of {PAGE} does not list it; move that code, or list the file");
        (!listed.contains(source.path.as_str())).then(|| Fault::new(&source.path, 1, what))
    }));
    Ok(faults)
}

/// A line of a checklist, with the tour that it belongs to.
struct Step<'p> {
    tour: &'p str,
    line: usize,
    text: &'p str,
}

impl<'p> Step<'p> {
    /// The paths that it names: what stands in backticks and has a slash.
    fn paths(&self) -> impl Iterator<Item = &'p str> {
        self.text.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains('/') && !quoted.contains(' '))
    }
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let (mut tour, mut in_list) = ("", false);
    let mut steps = Vec::new();
    for (line, text) in (1..).zip(page.lines()) {
        if text.starts_with("**… ") {
            tour = text;
        }
        in_list = text.starts_with("- [ ] ") || (in_list && text.starts_with("  "));
        if in_list {
            steps.push(Step { tour, line, text });
        }
    }
    steps
}

/// Paths that are not there. A part in angle brackets stands for a name yet to be found: what is before it must be there.
fn missing(steps: &[Step<'_>], exists: impl Fn(&str) -> bool) -> Vec<Fault> {
    let known = |path: &str| path.split('<').next().unwrap_or_default().to_owned();
    let faults = steps.iter().flat_map(|step| {
        step.paths().filter(|path| !exists(&known(path))).map(|path| {
            Fault::new(
                PAGE,
                step.line,
                format!("`{path}` is not there; the checklist must say where it is now"),
            )
        })
    });
    faults.collect()
}

fn knows_databases(source: &Source) -> bool {
    let path = Path::new(&source.path);
    let is_source = path.starts_with("crates") && path.components().any(|part| part.as_os_str() == "src");
    let is_of_tests = path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"))
        || ITS_OWN.iter().any(|own| source.path.starts_with(own));
    is_source && !is_of_tests && source.text.parse().is_ok_and(|tokens| names_it(tokens, &mut false))
}

/// Whether code names the database: an identifier, or a text of its own as in `feature = "mysql"`. Tests are not looked
/// at.
fn names_it(tokens: TokenStream, after_test: &mut bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => {
            let is_test = std::mem::take(after_test);
            let text = group.to_string();
            *after_test = text == "[cfg(test)]" || text == "[cfg (test)]";
            !is_test && names_it(group.stream(), &mut false)
        }
        TokenTree::Ident(ident) => PLAIN.iter().any(|name| ident == name),
        TokenTree::Literal(literal) => PLAIN.iter().any(|name| literal.to_string() == format!("\"{name}\"")),
        TokenTree::Punct(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOUR: &str = "\
**… a database.** Its words.

- [ ] `crates/a/src/known.rs`: one line
- [ ] `crates/a/src/stores/<database>/`: the folder, `mod.rs` and all
- [ ] a sentence that names
  `crates/a/Cargo.toml` in its second line
";

    #[test]
    fn what_a_checklist_names_must_be_there_up_to_a_name_yet_to_be_found() {
        let there = ["crates/a/src/known.rs", "crates/a/src/stores/", "crates/a/Cargo.toml"];
        let faults = missing(&steps(TOUR), |path| there.contains(&path));
        assert_eq!(faults, []);
        let faults = missing(&steps(TOUR), |path| path == "crates/a/src/stores/");
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [3, 6]);
        assert!(faults[0].what.contains("known.rs"), "{}", faults[0]);
    }

    #[test]
    fn code_that_names_a_database_is_found_and_words_about_it_are_not() {
        let knows = |path: &str, text: &str| knows_databases(&Source::skim(path, text));
        let path = "crates/backstop-sql/src/x.rs";
        assert!(knows(path, "use sqlx::MySql;"));
        assert!(knows(path, "#[cfg(feature = \"mysql\")] mod x;"));
        assert!(!knows(path, "// mysql\n/// MySql\nconst A: &str = \"as on mysql\";"));
        assert!(!knows(path, "#[cfg(test)] mod tests { use sqlx::MySql; }"));
        assert!(!knows("crates/backstop-sql/tests/x.rs", "use sqlx::MySql;"));
        assert!(!knows("crates/backstop-sql/src/stores/mysql/mod.rs", "use sqlx::MySql;"));
    }
}
