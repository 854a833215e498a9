//! The arrows between crates: who may depend on whom.

use crate::fault::Fault;
use crate::manifest::{Dependency, Package};
use crate::workspace::Workspace;

const CORE: &str = "backstop-core";
const TESTKIT: &str = "backstop-testkit";
const FACADE: &str = "backstop";
const CLI: &str = "backstop-cli";
/// A crate for each medium. They share core's traits and never meet.
const MEDIA: [&str; 4] = ["backstop-sql", "backstop-kafka", "backstop-disk", "backstop-http"];
const ADMIN: &str = "backstop-admin";

pub(super) fn check(workspace: &Workspace, crates: &[Package]) -> Vec<Fault> {
    let check = |package: &Package| {
        check_crate(&package.name, &workspace.shown(&package.manifest), &package.dependencies)
    };
    crates.iter().flat_map(check).collect()
}

fn check_crate(name: &str, path: &str, dependencies: &[Dependency]) -> Vec<Fault> {
    let Some(targets) = allowed(name) else {
        let what = format!(
            "the allowed dependencies of the crate `{name}` are not listed; add it to xtask/src/tidy/arrows.rs"
        );
        return vec![Fault::new(path, 1, what)];
    };
    let ours = dependencies.iter().filter(|found| is_ours(&found.package) && found.package != name);
    ours.filter(|found| !targets.contains(&found.package.as_str()) && !helps_testing(name, found))
        .map(|found| {
            let may = if targets.is_empty() { "no crate of ours".to_owned() } else { targets.join(", ") };
            let what = format!(
                "`{name}` depends on `{}` and may depend on {may}; move what they share to `{CORE}` or pass it in",
                found.package
            );
            Fault::new(path, found.line, what)
        })
        .collect()
}

/// The crates that a crate may depend on.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    match name {
        CORE => Some(Vec::new()),
        TESTKIT | ADMIN => Some(vec![CORE]),
        FACADE => Some([&[CORE, ADMIN, TESTKIT], &MEDIA[..]].concat()),
        CLI => Some([&[CORE, ADMIN], &MEDIA[..]].concat()),
        medium if MEDIA.contains(&medium) => Some(vec![CORE]),
        _ => None,
    }
}

/// Tests may use the testkit. Core's may not: the testkit is built on core, and would bring a second copy of it.
fn helps_testing(name: &str, dependency: &Dependency) -> bool {
    dependency.for_tests && dependency.package == TESTKIT && name != CORE
}

fn is_ours(package: &str) -> bool {
    package == FACADE || package.starts_with("backstop-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a crate that has these dependencies, those of its tests last, one on each line.
    fn faults(name: &str, dependencies: &[&str], of_tests: &[&str]) -> Vec<Fault> {
        let of_code = dependencies.iter().map(|package| (*package, false));
        let all = of_code.chain(of_tests.iter().map(|package| (*package, true)));
        let found = (1..).zip(all).map(|(line, (package, for_tests))| Dependency {
            package: package.to_owned(),
            for_tests,
            line,
        });
        check_crate(name, "Cargo.toml", &found.collect::<Vec<_>>())
    }

    #[test]
    fn the_drawn_arrows_are_in_order() {
        assert_eq!(faults(CORE, &["serde"], &[]), []);
        assert_eq!(faults("backstop-sql", &[CORE], &[TESTKIT]), []);
        assert_eq!(faults(FACADE, &[CORE, "backstop-kafka"], &[]), []);
        assert_eq!(faults(CLI, &[ADMIN, "backstop-sql"], &[]), []);
    }

    #[test]
    fn siblings_never_meet() {
        let found = faults("backstop-kafka", &[CORE, "backstop-sql"], &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(found[0].what.contains("`backstop-kafka` depends on `backstop-sql`"));
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        assert_eq!(faults("backstop-sql", &[TESTKIT], &[]).len(), 1);
        assert_eq!(faults(CLI, &[TESTKIT], &[]).len(), 1);
        assert_eq!(faults(CORE, &[], &[TESTKIT]).len(), 1);
    }

    #[test]
    fn core_stands_alone_and_the_command_line_passes_the_facade_by() {
        assert_eq!(faults(CORE, &["backstop-sql"], &[]).len(), 1);
        assert_eq!(faults(CLI, &[FACADE], &[]).len(), 1);
    }

    #[test]
    fn a_crate_without_an_arrow_is_told() {
        assert_eq!(faults("backstop-new", &[], &[]).len(), 1);
    }
}
