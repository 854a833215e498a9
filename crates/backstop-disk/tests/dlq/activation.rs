//! `from_env`, with real environments: in processes of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use backstop_core::Sink;
use backstop_disk::dlq::DlqSink;
use backstop_testkit::servers::directory;

use crate::support::{closed, event, names};

/// The program that emits, without any of our variables.
pub(crate) fn emitters() -> Command {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.ancestors().nth(2).unwrap().join("examples/failing_emitters");
    assert!(path.exists(), "{} is not built; run `cargo test -p backstop-disk`", path.display());
    let mut command = Command::new(path);
    command.env_remove("BACKSTOP_DLQ_DIR").env_remove("CELLOS_DLQ_DIR");
    command
}

/// Emits one event in an environment.
fn emitted(variables: &[(&str, &Path)]) -> Output {
    let output = emitters().args(["1", "1", "x"]).envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn said(variables: &[(&str, &Path)]) -> String {
    String::from_utf8(emitted(variables).stdout).unwrap()
}

const OFF: &str = "unwrapped\nrefused x.0.0: http-503: closed\n";

/// Rules: D-006, D-007, D-046.
#[test]
fn each_variable_switches_it_on_and_ours_wins() {
    let (ours, theirs) = (directory(), directory());
    assert_eq!(said(&[("CELLOS_DLQ_DIR", theirs.path())]), "x.0.0\n");
    assert_eq!((names(ours.path()).len(), names(theirs.path()).len()), (0, 1));

    assert_eq!(said(&[("BACKSTOP_DLQ_DIR", ours.path()), ("CELLOS_DLQ_DIR", theirs.path())]), "x.0.0\n");
    assert_eq!((names(ours.path()).len(), names(theirs.path()).len()), (1, 1));

    assert_eq!(said(&[("BACKSTOP_DLQ_DIR", Path::new("")), ("CELLOS_DLQ_DIR", theirs.path())]), "x.0.0\n");
    assert_eq!(names(theirs.path()).len(), 2);
}

/// Rules: D-008, D-039, D-040, D-041, D-042, D-043, D-044, D-045, D-047, D-048.
#[test]
fn without_a_usable_directory_the_sink_itself_comes_back_and_nothing_is_made() {
    let place = directory();
    let (nowhere, file) = (place.file("nowhere"), place.file("file"));
    fs::write(&file, "").unwrap();
    assert_eq!(said(&[]), OFF);
    for unusable in [Path::new(""), Path::new("  "), &nowhere, &file, Path::new("/proc/self")] {
        for variable in ["BACKSTOP_DLQ_DIR", "CELLOS_DLQ_DIR"] {
            assert_eq!(said(&[(variable, unusable)]), OFF, "{variable} {}", unusable.display());
        }
    }
    assert!(!nowhere.exists());
    assert_eq!(names(place.path()), ["file"]);

    // Unset or empty is a choice, and nothing is said about it.
    let warned = |value: &Path| {
        let output = emitted(&[("BACKSTOP_DLQ_DIR", value)]);
        String::from_utf8(output.stderr).unwrap().matches("WARN").count()
    };
    assert_eq!(
        (warned(Path::new("")), warned(Path::new("  ")), warned(&nowhere), warned(&file)),
        (0, 1, 1, 1)
    );

    // Set and unusable is a mistake: another directory does not take its place.
    let theirs = directory();
    assert_eq!(said(&[("BACKSTOP_DLQ_DIR", &nowhere), ("CELLOS_DLQ_DIR", theirs.path())]), OFF);
    assert_eq!(names(theirs.path()).len(), 0);
}

/// Rules: D-047.
#[tokio::test]
async fn what_comes_back_when_it_is_off_is_the_very_same_sink() {
    // No test sets the variables of this process, which would be `unsafe`.
    let sink = closed();
    let given = DlqSink::from_env(sink.clone());
    assert!(given.is(&sink));
    assert!(given.emit(event("1")).await.is_err());
}
