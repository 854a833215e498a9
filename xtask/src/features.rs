//! `cargo xtask features`: every feature of the facade builds alone, and drags in nothing it should not.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::manifest;
use crate::program;
use crate::say::say;
use crate::workspace::Workspace;

const FACADE: &str = "backstop";

/// Crates that must not be compiled for someone who asks for one feature only.
const FORBIDDEN: [(&str, &[&str]); 7] = [
    ("sqlite", &["rdkafka", "rdkafka-sys", "sqlx-postgres", "sqlx-mysql"]),
    ("postgres", &["rdkafka", "rdkafka-sys", "sqlx-sqlite", "libsqlite3-sys", "sqlx-mysql"]),
    ("mysql", &["rdkafka", "rdkafka-sys", "sqlx-sqlite", "libsqlite3-sys", "sqlx-postgres"]),
    ("tls", &["rdkafka", "rdkafka-sys", "sqlx-sqlite", "libsqlite3-sys", "aws-lc-sys", "openssl-sys"]),
    ("dlq", &["rdkafka", "rdkafka-sys", "sqlx-core", "libsqlite3-sys"]),
    ("kafka", &["sqlx-core", "libsqlite3-sys"]),
    ("http", &["sqlx-core", "libsqlite3-sys", "rdkafka", "axum", "aws-lc-sys", "openssl-sys"]),
];

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let packages = manifest::packages(workspace.root())?;
    let Some(facade) = packages.into_iter().find(|package| package.name == FACADE) else {
        say!("there is no crate `{FACADE}` yet, so there are no features to build");
        return Ok(());
    };
    let mut features = facade.features;
    // `default` builds with every other check of the workspace.
    features.retain(|feature| feature != "default");
    let mut faults = Vec::new();
    for feature in std::iter::once("").chain(features.iter().map(String::as_str)) {
        let shown = if feature.is_empty() { "(none)" } else { feature };
        let begun = Instant::now();
        if builds(workspace, feature)? {
            say!("{shown:<16} builds alone ({:.1} s)", begun.elapsed().as_secs_f32());
        } else {
            faults.push(format!("{shown} does not build alone"));
        }
    }
    for (feature, forbidden) in FORBIDDEN {
        if features.iter().any(|known| known == feature) {
            let found = intruders(&tree(workspace, feature)?, forbidden);
            faults.extend(found.iter().map(|intruder| format!("{feature} drags in {intruder}")));
        }
    }
    if !faults.is_empty() {
        bail!(
            "{}; put what is missing, or what should not be there, behind the right feature",
            faults.join(", ")
        );
    }
    Ok(())
}

fn builds(workspace: &Workspace, feature: &str) -> Result<bool> {
    let mut check = alone(workspace, "check", feature);
    let status = check.arg("--quiet").stdin(Stdio::null()).status().context("cannot start cargo")?;
    Ok(status.success())
}

fn tree(workspace: &Workspace, feature: &str) -> Result<String> {
    let mut tree = alone(workspace, "tree", feature);
    let output = program::run(tree.args(["-e", "normal", "--prefix", "none", "--format", "{p}"]))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn alone(workspace: &Workspace, command: &str, feature: &str) -> Command {
    let mut cargo = program::cargo();
    cargo.current_dir(workspace.root()).args([command, "-p", FACADE, "--no-default-features"]);
    if !feature.is_empty() {
        cargo.args(["--features", feature]);
    }
    cargo
}

/// Which of the forbidden crates stand in a tree of `name v1.2.3` lines.
fn intruders<'a>(tree: &str, forbidden: &[&'a str]) -> Vec<&'a str> {
    let used: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    forbidden.iter().copied().filter(|name| used.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intruder_is_known_by_its_whole_name() {
        let tree = "backstop v0.1.0\nsqlx-core v0.9.0\nrdkafka-sys v4.8.0+2.3.0 (*)\n\n";
        assert_eq!(intruders(tree, &["rdkafka", "rdkafka-sys", "sqlx"]), ["rdkafka-sys"]);
    }
}
