//! A node process: started with flags, told things, killed, stopped and woken.

use std::fmt::Display;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use backstop_core::{Clock as _, SystemClock};
use backstop_testkit::eventually_within;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::PATIENCE;

/// How many settlements are gathered and how many are being written when a node goes down: 500 each.
const SETTLEMENTS: usize = 2 * 500;

/// The settings of a node, with its defaults where a test says nothing.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) interval: Duration,
    pub(crate) claim_timeout: Duration,
    pub(crate) hot_grace: Duration,
    pub(crate) workers: usize,
    pub(crate) hot_queue: usize,
    pub(crate) cold_queue: usize,
    pub(crate) flags: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Settings {
    pub(crate) fn new(name: &str, url: &str, folder: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            folder,
            interval: Duration::from_millis(200),
            claim_timeout: Duration::from_secs(5),
            hot_grace: Duration::from_secs(3),
            workers: 4,
            hot_queue: 1_000,
            cold_queue: 1_000,
            flags: vec!["--url".to_owned(), url.to_owned()],
            environment: Vec::new(),
        }
    }

    /// A flag that has no field of its own here.
    pub(crate) fn flag(mut self, flag: &str, value: impl Display) -> Self {
        self.flags.extend([flag.to_owned(), value.to_string()]);
        self
    }

    /// Handlers wait at the gate from the start.
    pub(crate) fn shut(mut self) -> Self {
        self.flags.push("--shut".to_owned());
        self
    }

    /// Claims that outlast the faults of a test, and no longer than a test can wait for those that nobody knows
    /// of because the answer was lost.
    pub(crate) fn patient(mut self) -> Self {
        self.claim_timeout = Duration::from_secs(20);
        self.hot_grace = self.claim_timeout;
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl Display) -> Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// How many events a node may have handled without having settled them. Those are what a crash repeats.
    pub(crate) fn handled_in_flight(&self) -> usize {
        self.workers + SETTLEMENTS
    }

    /// How many rows a node has claimed at least while there is a backlog: it asks for more when half of its queue is free.
    pub(crate) fn polled_at_least(&self) -> usize {
        self.cold_queue / 2
    }

    /// Starts the process and waits until its outbox runs.
    pub(crate) async fn start(self) -> Node {
        let mut node = self.spawn();
        node.hear("ready").await;
        node
    }

    /// Starts the process. It says `ready` when its outbox runs.
    pub(crate) fn spawn(self) -> Node {
        let complaints = File::create(self.folder.join(format!("{}.log", self.name))).unwrap();
        let millis = |flag: &str, time: Duration| [flag.to_owned(), time.as_millis().to_string()];
        let number = |flag: &str, number: usize| [flag.to_owned(), number.to_string()];
        let mut process = Command::new(env!("CARGO_BIN_EXE_node"))
            .args(["--name", &self.name, "--folder", &self.folder.display().to_string()])
            .args(millis("--interval-ms", self.interval))
            .args(millis("--claim-timeout-ms", self.claim_timeout))
            .args(millis("--hot-grace-ms", self.hot_grace))
            .args(number("--workers", self.workers))
            .args(number("--hot-queue", self.hot_queue))
            .args(number("--cold-queue", self.cold_queue))
            .args(&self.flags)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .kill_on_drop(true)
            .spawn()
            .expect("a node process");
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        let ears = process.stdin.take().unwrap();
        Node { settings: self, process, ears, said }
    }
}

/// A running node. Killed when it is dropped.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    process: Child,
    ears: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Node {
    /// Tells the node something.
    pub(crate) async fn say(&mut self, line: impl Display) {
        self.ears.write_all(format!("{line}\n").as_bytes()).await.expect("a node that listens");
    }

    /// Waits for the line that begins with a word, and gives back its rest.
    pub(crate) async fn hear(&mut self, word: &str) -> String {
        let heard = self.listen_for(word).await;
        heard.unwrap_or_else(|| {
            let Settings { name, .. } = &self.settings;
            panic!("{name} did not say {word:?}; it complained:\n{}", self.settings.complaints())
        })
    }

    /// The same, or none if it ends or takes too long.
    pub(crate) async fn listen_for(&mut self, word: &str) -> Option<String> {
        let hearing = async {
            while let Some(line) = self.said.next_line().await.expect("a node that speaks") {
                if let Some(rest) = line.strip_prefix(word) {
                    return Some(rest.trim().to_owned());
                }
            }
            None
        };
        timeout(PATIENCE, hearing).await.ok().flatten()
    }

    /// Appends events in the background, 500 in a transaction; the answer is awaited with [`Self::appended`].
    pub(crate) async fn append(&mut self, count: usize) {
        self.say(format_args!("append {count} 500")).await;
    }

    /// How many events of [`Self::append`] were accepted.
    pub(crate) async fn appended(&mut self) -> usize {
        self.hear("appended").await.parse().unwrap()
    }

    /// What the node has counted.
    pub(crate) async fn counted(&mut self) -> Counted {
        self.say("tell").await;
        let told = self.hear("told").await;
        let numbers: Vec<u64> = told.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [late, handled, hot_refused] = numbers[..] else { panic!("{told}") };
        Counted { late, handled, hot_refused }
    }

    /// How many bytes of memory the process has, as Linux counts them; zero elsewhere.
    pub(crate) fn resident_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse::<usize>().ok());
        kib.unwrap_or_default() * 1024
    }

    /// SIGKILL. Gives back when it was sent.
    pub(crate) async fn kill(mut self) -> i64 {
        let at = now();
        self.process.kill().await.expect("a process to kill");
        at
    }

    /// SIGSTOP: the process stands still, its connections stay open.
    pub(crate) async fn stop(&self) {
        signal("STOP", self.pid()).await;
    }

    /// SIGCONT.
    pub(crate) async fn wake(&self) {
        signal("CONT", self.pid()).await;
    }

    /// Closes the outbox; the error if not everything was handled.
    pub(crate) async fn close(mut self) -> Result<(), String> {
        self.say("close").await;
        let error = self.hear("closed").await;
        let ended = timeout(PATIENCE, self.process.wait()).await.expect("a node that ends").unwrap();
        assert!(ended.success(), "{ended}");
        if error.is_empty() { Ok(()) } else { Err(error) }
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("a process that was not waited for")
    }
}

impl Settings {
    /// How much the node has written down about deliveries.
    fn recorded(&self) -> u64 {
        std::fs::metadata(self.folder.join(format!("{}.delivered", self.name))).unwrap().len()
    }

    /// Waits until the node's handlers are called no more: it can hold no more that is not settled.
    pub(crate) async fn until_handlers_stand_still(&self) {
        let mut before = 0;
        eventually_within(PATIENCE, "handlers that stand still", async || {
            let recorded = self.recorded();
            let moved = recorded != std::mem::replace(&mut before, recorded);
            tokio::time::sleep(Duration::from_millis(300)).await;
            !moved
        })
        .await;
    }

    /// The end of what the node wrote to its standard error.
    pub(crate) fn complaints(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

/// What a node counts about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) late: u64,
    pub(crate) handled: u64,
    pub(crate) hot_refused: u64,
}

/// The moment of now as recordings have it, in microseconds.
pub(crate) fn now() -> i64 {
    SystemClock.now().timestamp_micros()
}

/// By the shell's own `kill`: the program of that name is missing on slim machines.
async fn signal(signal: &str, pid: u32) {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"kill -s "$1" "$2""#, "sh", signal, &pid.to_string()]);
    assert!(shell.status().await.expect("a shell").success(), "cannot send SIG{signal} to {pid}");
}
