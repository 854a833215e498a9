//! Processes of their own: two on one directory, and one that is killed again and again.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use backstop_disk::dlq::{Directory, Filter};
use backstop_testkit::servers::directory;

use crate::activation::emitters;
use crate::support::ids;

pub(crate) fn start(path: &Path, emitter: &str, events: &str, name: &str) -> Child {
    let mut command = emitters();
    command.args([emitter, events, name]).env("BACKSTOP_DLQ_DIR", path);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap()
}

/// Rules: D-026, D-027.
#[test]
fn two_processes_share_a_directory_without_knowing_of_each_other() {
    let place = directory();
    let both: Vec<_> = ["one", "two"].map(|name| start(place.path(), "32", "20", name)).into_iter().collect();
    let mut told: Vec<String> = Vec::new();
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        told.extend(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned));
    }
    told.sort();
    assert_eq!(told.len(), 2 * 32 * 20);
    assert_eq!(ids(place.path()), told);
}

/// Rules: D-035, D-038.
#[test]
fn killed_fifty_times_while_256_emitters_fail_every_ok_has_its_complete_file() {
    let place = directory();
    let mut told = HashSet::new();
    for cycle in 0..50 {
        let mut child = start(place.path(), "256", "1000000", &format!("cycle{cycle}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Killed at another point in each cycle; what was said before it died is in the pipe.
        told.extend(lines.by_ref().take(1 + cycle * 7).map(Result::unwrap));
        child.kill().unwrap();
        child.wait().unwrap();
        told.extend(lines.map_while(Result::ok));
    }
    let directory = Directory::open(place.path()).unwrap();
    let found: Vec<_> = directory.entries(Filter::all()).map(Result::unwrap).collect();
    let stored: HashSet<_> = found
        .into_iter()
        .map(|found| found.entry().expect("every file is complete").event.id().to_owned())
        .collect();
    let missing: Vec<_> = told.difference(&stored).collect();
    assert!(
        told.len() > 50 && missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        told.len()
    );
}
