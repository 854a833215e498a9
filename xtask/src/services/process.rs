//! Processes of ours: telling them from others, signalling them, seeing them end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::program;
use crate::workspace::file_name;

/// How a server of ours is known among all processes: its program, and an argument that only we would give it.
pub(super) struct Identity {
    pub(super) program: &'static str,
    pub(super) argument: String,
}

/// A running server of ours.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: u32,
}

impl Identity {
    /// The process with this id, if it is the server we mean. A dead one that nobody has reaped has no
    /// arguments any more, so it does not count.
    pub(super) fn check(&self, pid: u32) -> Option<Process> {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments);
        let mut arguments = arguments.split('\0');
        let program = file_name(Path::new(arguments.next()?));
        let ours = program == self.program && arguments.any(|argument| argument == self.argument);
        ours.then_some(Process { pid })
    }

    /// Looks through all processes for the server we mean.
    pub(super) fn search(&self) -> Option<Process> {
        let mut found: Vec<u32> = all_pids().filter(|pid| self.check(*pid).is_some()).collect();
        // A child that was forked a moment ago still looks like its parent: the parent came first.
        found.sort_unstable();
        let pid =
            found.iter().copied().find(|pid| parent(*pid).is_none_or(|parent| !found.contains(&parent)))?;
        Some(Process { pid })
    }
}

impl Process {
    /// Sends a signal such as `TERM` to the process alone.
    pub(super) fn signal(self, signal: &str) -> Result<()> {
        send(signal, &[self.pid])
    }

    /// Stops the process and all its children in their tracks.
    pub(super) fn pause(self) -> Result<()> {
        // The parent first: once it stands still it has no more children.
        send("STOP", &[self.pid])?;
        send("STOP", &self.descendants())
    }

    /// Lets the process and its children go on.
    pub(super) fn resume(self) -> Result<()> {
        send("CONT", &self.descendants())?;
        send("CONT", &[self.pid])
    }

    pub(super) fn is_paused(self) -> bool {
        stat(self.pid).is_some_and(|(state, _)| state == 'T')
    }

    /// Kills the process and its children, for when it does not listen.
    pub(super) fn kill(self) -> Result<()> {
        let mut pids = self.descendants();
        pids.push(self.pid);
        send("KILL", &pids)
    }

    /// Waits until the process is gone; false if it is still there after `patience`.
    pub(super) fn wait_gone(self, identity: &Identity, patience: Duration) -> bool {
        let begun = Instant::now();
        while identity.check(self.pid).is_some() {
            if begun.elapsed() > patience {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn descendants(self) -> Vec<u32> {
        let pairs: Vec<(u32, u32)> = all_pids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let mut family = vec![self.pid];
        let mut next = 0;
        while let Some(&elder) = family.get(next) {
            family.extend(pairs.iter().filter(|(_, parent)| *parent == elder).map(|(pid, _)| *pid));
            next += 1;
        }
        family.split_off(1)
    }
}

/// Waits until no process works inside a folder any more; false if one still does after `patience`.
pub(super) fn wait_nobody_in(folder: &Path, patience: Duration) -> bool {
    let begun = Instant::now();
    while all_pids().any(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)) {
        if begun.elapsed() > patience {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

fn send(signal: &str, pids: &[u32]) -> Result<()> {
    if pids.is_empty() {
        return Ok(());
    }
    // The shell's own `kill`: the program of that name is missing on slim machines.
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill -s "$@""#, "sh", signal]).args(pids.iter().map(u32::to_string));
    match program::run(&mut command) {
        Ok(_) => Ok(()),
        // A child may end between being listed and being signalled.
        Err(_)
            if pids
                .iter()
                .all(|pid| stat(*pid).is_none_or(|(state, _)| signal == "STOP" && state == 'T')) =>
        {
            Ok(())
        }
        Err(_) if pids.len() > 1 => pids.iter().try_for_each(|pid| send(signal, &[*pid])),
        Err(error) => {
            Err(error).with_context(|| format!("cannot signal process {}; run this as its user", pids[0]))
        }
    }
}

fn all_pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|(_, parent)| parent)
}

/// The state letter and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<(char, u32)> {
    // The program's name stands in brackets and may hold spaces and brackets itself.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_parent_are_read_past_a_name_with_brackets() {
        assert_eq!(parse_stat("42 (odd) name) T 7 42 42 0 -1"), Some(('T', 7)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn a_process_is_ours_only_with_our_argument() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let ours = Identity { program: "sleep", argument: "60".to_owned() };
        let other = Identity { program: "sleep", argument: "61".to_owned() };
        let begun = Instant::now();
        // Until `exec` is done the child still shows this program's arguments.
        while ours.check(child.id()).is_none() && begun.elapsed() < Duration::from_secs(5) {
            thread::yield_now();
        }
        assert!(ours.check(child.id()).is_some());
        assert!(other.check(child.id()).is_none());
        child.kill().expect("kill");
        assert!(
            Process { pid: child.id() }.wait_gone(&ours, Duration::from_secs(5)),
            "a dead process is gone"
        );
        child.wait().expect("wait");
    }
}
