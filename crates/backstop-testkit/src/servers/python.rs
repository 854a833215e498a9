//! A Python for programs of others that tests run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{skip, workspace};

const VARIABLE: &str = "BACKSTOP_TEST_PYTHON";

/// A Python that has these modules, or `None`, and then the test is marked as skipped.
///
/// `BACKSTOP_TEST_PYTHON` names it; without it `python3` is tried. `cargo xtask services up` makes one with all that
/// the tests need.
///
/// ```no_run
/// // Skips where it is called if there is no Python with that module.
/// let python = backstop_testkit::servers::python(&["json"]);
/// # drop(python);
/// ```
pub fn python(modules: &[&str]) -> Option<PathBuf> {
    let python = workspace::setting(VARIABLE).unwrap_or_else(|| "python3".to_owned());
    let imports = format!("import {}", [&["sys"], modules].concat().join(", "));
    let tried = Command::new(&python).args(["-c", &imports]).stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) {
        return Some(python.into());
    }
    skip(format_args!("needs {python} with {modules:?}; {VARIABLE} names another"));
    None
}
