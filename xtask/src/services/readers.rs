//! Programs of others that the tests try our files and events on: `jq`, and Python with a few packages.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::install::Installer;
use crate::program;
use crate::say::say;
use crate::workspace::Workspace;

const VARIABLE: &str = "BACKSTOP_TEST_PYTHON";

/// What is installed: the SDK of CloudEvents, PostgreSQL for the example, and the library of Standard Webhooks.
const PACKAGES: [&str; 3] = ["cloudevents==2.2.0", "psycopg[binary]==3.3.8", "standardwebhooks==1.1.0"];

/// The modules that the tests use of them. An environment that lacks one, because it is older, is completed.
const MODULES: &str = "import cloudevents.core.bindings.http, cloudevents.core.bindings.kafka, psycopg, standardwebhooks.webhooks";

/// Makes sure of both, and gives back the variable that names the Python, with its value.
pub(super) fn bring_up(workspace: &Workspace, installer: &Installer) -> Result<(&'static str, String)> {
    if program::find("jq").is_none() {
        installer.install(&["jq"])?;
    }
    if let Ok(given) = std::env::var(VARIABLE) {
        say!("{:<14} given by {VARIABLE}", "python");
        return Ok((VARIABLE, given));
    }
    let folder = workspace.path("target/services/python");
    let python = folder.join("bin/python").display().to_string();
    if !has_packages(&python) {
        if !program::succeeds(Command::new(&python).args(["-m", "pip", "--version"])) {
            make_environment(&folder.display().to_string(), installer)?;
        }
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        program::run(Command::new(&python).args(install).args(PACKAGES))
            .with_context(|| format!("cannot install the packages {}", PACKAGES.join(", ")))?;
    }
    say!("{:<14} with {}: {python}", "python", PACKAGES.join(", "));
    Ok((VARIABLE, python))
}

fn has_packages(python: &str) -> bool {
    program::succeeds(Command::new(python).args(["-c", MODULES]))
}

/// Makes an environment of our own. Debian keeps what that needs in a package of its own.
fn make_environment(folder: &str, installer: &Installer) -> Result<()> {
    let make = || program::succeeds(Command::new("python3").args(["-m", "venv", "--clear", folder]));
    if make() {
        return Ok(());
    }
    installer.install(&["python3-venv"])?;
    program::run(Command::new("python3").args(["-m", "venv", "--clear", folder])).map(|_| ())
}
