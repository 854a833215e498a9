//! Installing what is missing with the system's package manager.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::account::is_root;
use crate::program;
use crate::say::say;
use crate::workspace::{Workspace, read};

/// Runs `apt-get` with servers kept from starting: a package's own server would sit on the usual port and
/// compete for memory, and we start ours with data of our own.
const SCRIPT: &str = r#"
set -e
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
apt-get -o DPkg::Lock::Timeout=300 "$@"
"#;

/// The one hand that installs: packages come one after the other, and the package lists are fetched once.
pub(super) struct Installer {
    log: PathBuf,
    lists_are_fresh: Mutex<bool>,
}

impl Installer {
    pub(super) fn new(workspace: &Workspace) -> Self {
        Self { log: workspace.path("target/services/apt.log"), lists_are_fresh: Mutex::new(false) }
    }

    /// Installs the first of these packages that can be had.
    pub(super) fn install(&self, packages: &[&str]) -> Result<()> {
        let by_hand = packages.join("` or `");
        if program::find("apt-get").is_none() {
            bail!("`{by_hand}` is not installed and there is no apt-get here; install it by hand");
        }
        if !is_root() && !sudo_works() {
            bail!(
                "`{by_hand}` is not installed and this user may not install it; as root, run `apt-get install {}`",
                packages[0]
            );
        }
        let _one_at_a_time = self.fetch_lists();
        let mut outcome = Ok(());
        for package in packages {
            say!("installing {package} …");
            let begun = Instant::now();
            outcome = self.apt_get(&["install", "-y", "--no-install-recommends", package]);
            if outcome.is_ok() {
                say!("installed  {package} in {:.1} s", begun.elapsed().as_secs_f32());
                return Ok(());
            }
        }
        outcome.with_context(|| {
            format!("`{by_hand}` could not be installed; check the network, or install it by hand")
        })
    }

    /// Fetches the lists of packages, where that was not done yet.
    pub(super) fn refresh(&self) {
        drop(self.fetch_lists());
    }

    fn fetch_lists(&self) -> MutexGuard<'_, bool> {
        // A thread that panicked while installing leaves nothing half-done that matters here.
        let mut fresh = self.lists_are_fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !*fresh {
            // Old lists may still do; if they do not, the installation says so.
            let _ = self.apt_get(&["update"]);
            *fresh = true;
        }
        fresh
    }

    fn apt_get(&self, arguments: &[&str]) -> Result<()> {
        let cannot = || format!("cannot write {}; check its permissions", self.log.display());
        let log = File::create(&self.log).with_context(cannot)?;
        let mut command = if is_root() { Command::new("sh") } else { Command::new("sudo") };
        if !is_root() {
            command.args(["-n", "sh"]);
        }
        command.args(["-c", SCRIPT, "sh"]).args(arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().with_context(cannot)?).stderr(log);
        let status = command.status().context("cannot start apt-get; install the packages by hand")?;
        if !status.success() {
            let said = read(&self.log).unwrap_or_default();
            bail!("apt-get {} said: {}", arguments[0], complaint(&said));
        }
        Ok(())
    }
}

fn sudo_works() -> bool {
    program::find("sudo").is_some() && program::succeeds(Command::new("sudo").args(["-n", "true"]))
}

/// The first line in which apt-get says what is wrong.
fn complaint(log: &str) -> String {
    let first = log.lines().find(|line| line.starts_with("E: ")).map(str::to_owned);
    first.or_else(|| program::last_line(log)).unwrap_or_else(|| "nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_apt_is_the_one_that_is_told() {
        let log = "Reading package lists...\nE: Unable to locate package x\nE: and so on\n";
        assert_eq!(complaint(log), "E: Unable to locate package x");
        assert_eq!(complaint("Killed\n"), "Killed");
    }
}
