//! Other people's programs: finding them, running them, and saying in one sentence what went wrong.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// Where servers live that a plain user's `PATH` does not name.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The full path of a program, if this machine has it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Runs a program to its end and takes its output; failing is an error that carries its last words.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name}; check that it is installed"))?;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, last_words(&output));
    }
    Ok(output)
}

/// Whether a program runs and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn last_words(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    last_line(&errors).or_else(|| last_line(&words)).unwrap_or_else(|| "it said nothing".to_owned())
}

/// The last line of a text that says anything.
pub(crate) fn last_line(text: &str) -> Option<String> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
