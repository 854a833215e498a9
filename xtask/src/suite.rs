//! `cargo xtask test`: the whole suite on real servers, and one line that sums it up.

mod skips;
mod tally;

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::program;
use crate::say::say;
use crate::services::{self, EnvFile};
use crate::workspace::Workspace;
use skips::Skips;
use tally::Tally;

/// How the suite is run.
#[derive(Args)]
pub(crate) struct Options {
    /// Leave the servers alone: use those that the last `services up` started, if they still run
    #[arg(long)]
    no_services: bool,
    /// Stop the servers afterwards; without it they stay up for the next run, unless CI=true
    #[arg(long)]
    down: bool,
    /// Arguments for `cargo test`, such as a package or the name of a test
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The suites that run again on servers that people have beside those of Debian's stable release.
const AGAIN: [&str; 10] = [
    "--package",
    "backstop-sql",
    "--test",
    "store",
    "--test",
    "outbox",
    "--test",
    "queue",
    "--test",
    "sea_orm",
];

/// What a run came to.
struct Outcome {
    tally: Tally,
    skipped: Vec<(String, String)>,
    /// Suites that did not run again, for want of a server, and why. No test program has counted them.
    left_out: Vec<(String, String)>,
    cargo_succeeded: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let in_ci = env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    compile(workspace, options)?;
    if !options.no_services {
        services::up(workspace, false)?;
    }
    let outcome = run_tests(workspace, options).and_then(|outcome| {
        // Whoever names tests wants those.
        if options.arguments.is_empty() { run_again(workspace, outcome) } else { Ok(outcome) }
    });
    if options.down || (in_ci && !options.no_services) {
        services::down(workspace)?;
    }
    Ok(report(&outcome?, in_ci))
}

/// Builds every test first, so that code that does not compile is told apart from a test that fails.
fn compile(workspace: &Workspace, options: &Options) -> Result<()> {
    let before_dashes = options.arguments.split(|argument| argument == "--").next().unwrap_or_default();
    let mut command = cargo_test(workspace, before_dashes);
    command.arg("--no-run").stdin(Stdio::null());
    if !command.status().context("cannot start cargo; check that it is installed")?.success() {
        bail!("the tests do not compile, so none was run; the compiler's reasons are above");
    }
    Ok(())
}

fn run_tests(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    let skips = Skips::cleared(workspace, "target/skipped")?;
    let mut command = cargo_test(workspace, &options.arguments);
    command.env("BACKSTOP_SKIP_DIR", skips.folder());
    for (variable, value) in EnvFile::load(workspace).unset_variables() {
        command.env(variable, value);
    }
    let mut tally = Tally::default();
    let cargo_succeeded = watch(&mut command, &mut tally)?;
    Ok(Outcome { tally, skipped: skips.list()?, left_out: Vec::new(), cargo_succeeded })
}

/// Runs the suites of the databases once more, with the other servers in the place of the usual ones.
fn run_again(workspace: &Workspace, mut outcome: Outcome) -> Result<Outcome> {
    let skips = Skips::cleared(workspace, "target/skipped-again")?;
    let mut command = cargo_test(workspace, &AGAIN.map(str::to_owned));
    command.env("BACKSTOP_SKIP_DIR", skips.folder()).arg("--");
    let mut servers = Vec::new();
    for other in services::others(workspace)? {
        match other.address {
            Ok(address) => {
                command.env(other.in_place_of, address).arg(other.tests);
                servers.push(other.label);
            }
            Err(why) => {
                let suites = format!("backstop-sql: the tests {} on {}", other.tests, other.label);
                outcome.left_out.push((suites, why));
            }
        }
    }
    if !servers.is_empty() {
        say!("\nagain, on {}", servers.join(" and "));
        outcome.cargo_succeeded &= watch(&mut command, &mut outcome.tally)?;
        outcome.skipped.extend(skips.list()?);
    }
    Ok(outcome)
}

fn cargo_test(workspace: &Workspace, arguments: &[String]) -> Command {
    let mut command = program::cargo();
    command.current_dir(workspace.root()).args(["test", "--all-features", "--no-fail-fast"]);
    // Cargo ignores a chosen package beside `--workspace`.
    if !arguments.iter().take_while(|argument| *argument != "--").any(|argument| chooses_package(argument)) {
        command.arg("--workspace");
    }
    command.args(arguments);
    command
}

fn chooses_package(argument: &str) -> bool {
    argument == "--package" || argument.starts_with("--package=") || argument.starts_with("-p")
}

/// Runs the tests, showing every line as it comes while adding it up.
fn watch(command: &mut Command, tally: &mut Tally) -> Result<bool> {
    let cannot = "cannot read what the tests print; try again";
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut output = BufReader::new(child.stdout.take().context(cannot)?);
    let mut line = Vec::new();
    // Bytes, not text: a test may print anything.
    while output.read_until(b'\n', &mut line).context(cannot)? > 0 {
        let _ = std::io::stdout().write_all(&line);
        tally.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    tally.close();
    Ok(child.wait().context(cannot)?.success())
}

/// Says how it went. The last line is for machines as much as for people, so nothing follows it.
fn report(outcome: &Outcome, in_ci: bool) -> ExitCode {
    let Outcome { tally, skipped, left_out, .. } = outcome;
    say!("");
    for (test, why) in skipped.iter().chain(left_out) {
        say!("SKIPPED: {test}: {why}");
    }
    for test in &tally.failures {
        say!("FAILED: {test}");
    }
    let objection = objection(outcome, in_ci);
    if let Some(objection) = objection {
        say!("error: {objection}");
    }
    // A skipping test returns early, which its test program counts as passed.
    let passed = tally.passed.saturating_sub(skipped.len());
    say!("{passed} passed, {} failed, {} skipped", tally.failed, skipped.len() + left_out.len());
    if objection.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why a run is not good enough, if it is not.
fn objection(outcome: &Outcome, in_ci: bool) -> Option<&'static str> {
    if outcome.tally.failed > 0 {
        Some("tests failed; their output is above")
    } else if !outcome.cargo_succeeded {
        Some("cargo test failed although no test did; its reasons are above")
    } else if outcome.tally.passed == 0 {
        Some("no test ran; check the names given after `--`")
    } else if in_ci && !(outcome.skipped.is_empty() && outcome.left_out.is_empty()) {
        Some("tests were skipped, which CI does not accept; give it the servers they name")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: usize, failed: usize, skipped: usize, cargo_succeeded: bool) -> Outcome {
        let mut tally = Tally::default();
        tally.read(&format!("test result: ok. {passed} passed; {failed} failed; 0 ignored"));
        let skipped = vec![("t".to_owned(), "why".to_owned()); skipped];
        Outcome { tally, skipped, left_out: Vec::new(), cargo_succeeded }
    }

    #[test]
    fn a_run_is_good_only_if_tests_ran_and_cargo_agrees() {
        assert_eq!(objection(&outcome(3, 0, 0, true), true), None);
        assert!(objection(&outcome(3, 1, 0, false), false).is_some());
        assert!(objection(&outcome(3, 0, 0, false), false).is_some());
        assert!(objection(&outcome(0, 0, 0, true), false).is_some());
    }

    #[test]
    fn a_skip_is_accepted_at_home_and_not_in_ci() {
        assert_eq!(objection(&outcome(3, 0, 1, true), false), None);
        assert!(objection(&outcome(3, 0, 1, true), true).is_some());
        let left_out = vec![("suites".to_owned(), "no server".to_owned())];
        let outcome = Outcome { left_out, ..outcome(3, 0, 0, true) };
        assert_eq!(objection(&outcome, false), None);
        assert!(objection(&outcome, true).is_some());
    }

    #[test]
    fn a_chosen_package_takes_the_place_of_the_workspace() {
        assert!(["-p", "-pbackstop-core", "--package", "--package=x"].into_iter().all(chooses_package));
        assert!(!["retry", "--lib", "--profile"].into_iter().any(chooses_package));
    }
}
