//! A Python with the packages that independent readers need.

use std::process::Command;

use super::service::Service;

const SERVICE: Service = Service { label: "Python", folder: "python", variable: "BACKSTOP_TEST_PYTHON" };

/// A command that runs Python with the SDK of CloudEvents; `None` if there is none, and then the test is marked as
/// [skipped](crate::skip()).
pub fn python() -> Option<Command> {
    SERVICE.place().map(Command::new)
}
