//! The node processes: started, killed, frozen and woken.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Nodes {
    url: String,
    folder: PathBuf,
    flags: Vec<String>,
    running: Vec<Node>,
    started: usize,
    next: usize,
    faults: usize,
}

struct Node {
    process: Child,
    ears: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Nodes {
    pub(crate) async fn start(url: &str, folder: &Path, count: usize, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (url, folder) = (url.to_owned(), folder.to_owned());
        let mut nodes = Self { url, folder, flags, running: Vec::new(), started: 0, next: 0, faults: 0 };
        for _ in 0..count {
            let node = nodes.start_one().await;
            nodes.running.push(node);
        }
        nodes
    }

    async fn start_one(&mut self) -> Node {
        self.started += 1;
        // Several groups of nodes may share a folder.
        let name = format!("{}-{}", std::process::id(), fresh());
        let complaints = File::create(self.folder.join(format!("{name}.log"))).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_queue_node"))
            .args(["--url", &self.url])
            .arg("--record")
            .arg(self.folder.join(format!("{name}.handled")))
            .args(&self.flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .kill_on_drop(true)
            .spawn()
            .expect("a node process");
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, said.next_line()).await.expect("a node that starts in time").unwrap();
        assert_eq!(line.as_deref(), Some("ready"), "{name}");
        let ears = process.stdin.take().unwrap();
        Node { process, ears, said }
    }

    /// How many were killed or frozen.
    pub(crate) fn faults(&self) -> usize {
        self.faults
    }

    /// Kills one in the middle of its work, and starts another in its place.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.faults += 1;
        let place = self.take_turn();
        self.running[place].signal(Signal::KILL);
        let _ = self.running[place].process.wait().await;
        self.running[place] = self.start_one().await;
    }

    /// Freezes one, and wakes it after a while.
    pub(crate) fn freeze(&mut self, how_long: Duration) {
        self.faults += 1;
        let place = self.take_turn();
        let Some(pid) = self.running[place].pid() else { return };
        let _ = kill_process(pid, Signal::STOP);
        tokio::spawn(async move {
            tokio::time::sleep(how_long).await;
            let _ = kill_process(pid, Signal::CONT);
        });
    }

    fn take_turn(&mut self) -> usize {
        self.next = (self.next + 1) % self.running.len();
        self.next
    }

    /// Starts another in the place of each that has died.
    pub(crate) async fn restart_the_dead(&mut self) {
        for place in 0..self.running.len() {
            if self.running[place].process.try_wait().unwrap().is_some() {
                self.running[place] = self.start_one().await;
            }
        }
    }

    pub(crate) fn kill_all(self) {
        for node in &self.running {
            node.signal(Signal::KILL);
        }
    }

    /// Lets all of them end in good order.
    pub(crate) async fn close(self) {
        for mut node in self.running {
            node.signal(Signal::CONT);
            if node.ears.write_all(b"close\n").await.is_err() {
                continue;
            }
            while let Ok(Some(_)) = timeout(PATIENCE, node.said.next_line()).await.expect("an end in time") {}
            let _ = node.process.wait().await;
        }
    }
}

impl Node {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.process.id()?).ok()?)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }
}

fn fresh() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
