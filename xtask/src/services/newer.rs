//! A newer Debian in a folder of its own, for servers that the one at hand lacks or has in an older version only.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::account::is_root;
use super::install::Installer;
use crate::program;
use crate::say::say;
use crate::workspace::{Workspace, make_folder, write};

/// The newest of Debian's distributions: the only one with Oracle's MySQL, which neither the stable one nor the one that is
/// tested has. It changes every day, and a mirror may be asked while it does: the second attempt is for that. Where that
/// fails too, its servers are told as unavailable and what needs them is skipped, which CI does not accept.
const DISTRIBUTION: &str = "sid";
const ATTEMPTS: u32 = 2;
const PACKAGES: &str = "mysql-server-core,postgresql-18";

/// Whom its servers run as: a user that is known there only.
pub(super) const USER: &str = "backstop";
pub(super) const ID: u32 = 1990;

/// The folder, `target/services/newer`. It is made once, in a minute.
pub(super) struct Newer {
    root: PathBuf,
}

impl Newer {
    pub(super) fn of(workspace: &Workspace) -> Self {
        Self { root: workspace.path("target/services/newer") }
    }

    /// Where a path of its own lies for everybody else.
    pub(super) fn outside(&self, inside: &Path) -> PathBuf {
        self.root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// What it calls a path that lies in it. With the path of the clone in it, which tells the servers of clones apart.
    pub(super) fn inside(&self, outside: &Path) -> PathBuf {
        Path::new("/").join(outside.strip_prefix(&self.root).unwrap_or(outside))
    }

    /// One of its programs, run as the user of its servers.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={ID}:{ID}")).arg(&self.root).arg(program);
        command
    }

    /// Installs the small program that makes it, before larger packages are in its way: it takes a minute by itself.
    pub(super) fn hurry(&self, installer: &Installer) {
        if is_root() && !self.root.is_dir() && program::find("debootstrap").is_none() {
            // `prepare` tells what is wrong.
            let folder = self.root.parent().map_or(Ok(()), make_folder);
            let _ = folder.and_then(|()| installer.install(&["debootstrap"]));
        }
    }

    /// Makes it if it is not there.
    pub(super) fn prepare(&self, installer: &Installer) -> Result<()> {
        if !is_root() {
            bail!(
                "it runs in a newer Debian in a folder of its own (chroot), which only root can make; run this as root"
            );
        }
        // Two servers need it, and start at the same time.
        let lock = self.root.with_extension("lock");
        let _lock =
            File::options().create(true).append(true).open(&lock).and_then(|file| file.lock().map(|()| file));
        if self.root.is_dir() {
            return Ok(());
        }
        if program::find("debootstrap").is_none() {
            installer.install(&["debootstrap"])?;
        }
        let archive = archive(installer)?;
        // Made under another name first: a run cut short leaves nothing that looks finished.
        let fresh = self.root.with_extension("new");
        say!("making a newer Debian with {PACKAGES} …");
        let begun = Instant::now();
        attempt(ATTEMPTS, || make(&fresh, &archive))
            .context("a newer Debian could not be made; check the network")?;
        add_user(&fresh)?;
        let _ = fs::remove_dir_all(fresh.join("var/cache/apt/archives"));
        fs::rename(&fresh, &self.root)
            .context("cannot put the newer Debian in place; remove what is in its way")?;
        say!("made a newer Debian in {:.1} s", begun.elapsed().as_secs_f32());
        Ok(())
    }
}

/// Makes it from nothing.
fn make(fresh: &Path, archive: &str) -> Result<()> {
    remove(fresh)?;
    let mut make = Command::new("debootstrap");
    make.args(["--variant=minbase", &format!("--include={PACKAGES}"), DISTRIBUTION]).arg(fresh).arg(archive);
    make.env("DEBIAN_FRONTEND", "noninteractive");
    program::run(&mut make).map(drop)
}

/// Tries up to so many times, and tells why it tries again.
fn attempt(times: u32, mut make: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 1..times {
        match make() {
            Ok(()) => return Ok(()),
            Err(error) => say!("a newer Debian could not be made; trying again: {error:#}"),
        }
    }
    make()
}

/// By hand: the programs for it would look for the machine's own services.
fn add_user(root: &Path) -> Result<()> {
    for (file, line) in [
        ("etc/passwd", format!("{USER}:x:{ID}:{ID}::/:/bin/sh\n")),
        ("etc/group", format!("{USER}:x:{ID}:\n")),
    ] {
        let path = root.join(file);
        let known = crate::workspace::read(&path)?;
        write(&path, known + &line)?;
    }
    Ok(())
}

/// Removes what a run that was cut short left, but not what it had mounted there.
fn remove(fresh: &Path) -> Result<()> {
    if !fresh.exists() {
        return Ok(());
    }
    for mounted in ["proc", "sys"] {
        program::succeeds(Command::new("umount").arg(fresh.join(mounted)));
    }
    program::run(Command::new("rm").args(["-r", "-f", "--one-file-system"]).arg(fresh)).map(drop)
}

/// Where this machine gets its Debian packages from.
fn archive(installer: &Installer) -> Result<String> {
    if let Some(archive) = known_archive()? {
        return Ok(archive);
    }
    installer.refresh();
    known_archive()?.context(
        "apt knows of no Debian archive here, where Oracle's MySQL and PostgreSQL 18 would come from",
    )
}

fn known_archive() -> Result<Option<String>> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    ]);
    Ok(debian_in(&String::from_utf8_lossy(&program::run(&mut targets)?.stdout)))
}

/// The archive of Debian itself among apt's sources; security updates and others' packages have other labels.
fn debian_in(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| line.strip_prefix("Debian Debian main ")).map(|uri| uri.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_found_among_apts_sources() {
        let targets = "Debian Debian-Security main http://one/debian-security/\n\
                       Somebody Else main https://two/apt/\nDebian Debian main http://three/debian/\n";
        assert_eq!(debian_in(targets).as_deref(), Some("http://three/debian/"));
        assert_eq!(debian_in("Ubuntu Ubuntu main http://four/ubuntu/\n"), None);
    }

    #[test]
    fn what_fails_once_is_tried_again_and_no_more_often() {
        for (failures, made, calls) in [(0, true, 1), (1, true, 2), (2, false, 2)] {
            let mut called = 0;
            let outcome = attempt(ATTEMPTS, || {
                called += 1;
                if called > failures { Ok(()) } else { bail!("the mirror is being updated") }
            });
            assert_eq!((outcome.is_ok(), called), (made, calls), "{failures} failures");
        }
    }

    #[test]
    fn a_path_is_the_same_inside_and_outside() {
        let newer = Newer { root: "/clone/target/services/newer".into() };
        let outside = newer.outside(Path::new("/clone/target/services/oracle-mysql"));
        assert_eq!(outside, Path::new("/clone/target/services/newer/clone/target/services/oracle-mysql"));
        assert_eq!(newer.inside(&outside), Path::new("/clone/target/services/oracle-mysql"));
    }
}
