//! The binary in a process of its own: a command that ends, or a daemon that runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use backstop_testkit::servers::{Directory, directory};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

/// Far longer than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
    pub(crate) complained: String,
}

impl Ended {
    /// It ended with this code, and without a panic.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.said, self.complained);
        assert!(!self.complained.contains("panicked"), "{}", self.complained);
        self
    }
}

/// A directory with a settings file in it.
pub(crate) struct Place {
    directory: Directory,
    variables: Vec<(String, String)>,
}

impl Place {
    pub(crate) fn with(settings: &str) -> Self {
        let directory = directory();
        std::fs::write(directory.file("backstop.yaml"), settings).unwrap();
        Self { directory, variables: Vec::new() }
    }

    pub(crate) fn empty() -> Self {
        Self { directory: directory(), variables: Vec::new() }
    }

    /// With an environment variable for whatever runs here.
    pub(crate) fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backstop"));
        command.args(arguments).current_dir(self.path()).env_remove("BACKSTOP_LOG").stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().unwrap();
        Ended {
            status: output.status,
            said: String::from_utf8(output.stdout).unwrap(),
            complained: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The table of a daemon that runs here on `orders.db`.
    pub(crate) async fn orders(&self) -> Orders {
        let options = SqliteConnectOptions::new().filename(self.file("orders.db"));
        Orders(SqlitePool::connect_with(options).await.unwrap())
    }

    /// Starts the daemon and waits until it says that it runs.
    pub(crate) fn serve(&self) -> Daemon {
        self.serve_with(&[])
    }

    /// The same, with more arguments.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Daemon {
        let mut daemon = Daemon::spawn(self.command(&[&["serve"], arguments].concat()));
        daemon.until_serving();
        daemon
    }

    /// Starts the daemon and waits until its page is open, whether or not it has started what it runs.
    pub(crate) fn serve_soon(&self) -> Daemon {
        let mut daemon = Daemon::spawn(self.command(&["serve"]));
        daemon.address = daemon.wait_for(|| {
            let log = daemon.log();
            let (_, behind) = log.split_once("the dashboard is open: http://")?;
            Some(behind.split_once('\n')?.0.to_owned())
        });
        daemon
    }
}

/// An outbox table as another program sees it.
pub(crate) struct Orders(SqlitePool);

impl Orders {
    /// Inserts an event with plain SQL.
    pub(crate) async fn insert(&self, id: &str) {
        self.insert_typed(id, "OrderPlaced").await;
    }

    pub(crate) async fn insert_typed(&self, id: &str, event_type: &str) {
        let insert = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, \
            available_at, created_at) values (?, ?, 'Order', '42', '{\"total\":1.10}', 0, \
            strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now'))";
        sqlx::query(insert).bind(id).bind(event_type).execute(&self.0).await.unwrap();
    }

    /// Status and tries of an event.
    pub(crate) async fn row(&self, id: &str) -> (i64, i64) {
        let row = sqlx::query_as("select status, attempts from outbox_event where event_id = ?");
        row.bind(id).fetch_one(&self.0).await.unwrap()
    }

    /// The errors of all events.
    pub(crate) async fn errors(&self) -> Vec<String> {
        let errors = sqlx::query_scalar("select coalesce(last_error, '') from outbox_event");
        errors.fetch_all(&self.0).await.unwrap()
    }

    /// Waits until an event has this status.
    pub(crate) async fn until(&self, id: &str, status: i64) {
        backstop_testkit::eventually("the event is settled", async || self.row(id).await.0 == status).await;
    }
}

/// A daemon that runs. It is stopped, if need be, when this is dropped.
pub(crate) struct Daemon {
    child: Child,
    lines: Receiver<String>,
    log: Arc<Mutex<String>>,
    reading: Option<JoinHandle<()>>,
    said: String,
    /// Where its page is, as `127.0.0.1:PORT`; empty if it has none.
    pub(crate) address: String,
}

impl Daemon {
    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let (log, stderr) = (Arc::new(Mutex::new(String::new())), child.stderr.take().unwrap());
        let written = log.clone();
        let reading = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *written.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, lines, log, reading: Some(reading), said: String::new(), address: String::new() }
    }

    fn until_serving(&mut self) {
        let page = self.until("  page: ");
        let url = page.trim().trim_start_matches("page: ");
        self.address = url.trim_start_matches("http://").trim_start_matches("https://").into();
    }

    fn until(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("no line with {text:?} came after:\n{}\n{}", self.said, self.log());
            };
            self.said += &line;
            self.said += "\n";
            if line.contains(text) {
                return line;
            }
        }
    }

    /// What it has written into its log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The ids of the events that its `log` handlers were given, in their order.
    pub(crate) fn handled(&self) -> Vec<String> {
        ids_in(&self.log())
    }

    /// Waits until so many events were handled.
    pub(crate) fn until_handled(&self, count: usize) -> Vec<String> {
        self.wait_for(|| Some(self.handled()).filter(|ids| ids.len() >= count))
    }

    /// Waits until something is there.
    pub(crate) fn wait_for<T>(&self, look: impl Fn() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks for a path, with more headers (each ending in `\r\n`): the status, and all that was answered.
    pub(crate) fn get(&self, path: &str, headers: &str) -> (u16, String) {
        self.send("GET", path, headers, "")
    }

    /// Sends a request with a body.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (address, length) = (&self.address, body.len());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n{headers}\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer)
    }

    /// What the page is told of the component of this kind, once it is as expected.
    pub(crate) fn component(
        &self,
        kind: &str,
        expected: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        self.wait_for(|| {
            let (_, answer) = self.get("/api/v1/components", "");
            let body = answer.split_once("\r\n\r\n")?.1;
            let all: Vec<serde_json::Value> = serde_json::from_str(body).ok()?;
            all.into_iter().find(|component| component["kind"] == kind && expected(component))
        })
    }

    /// Sends a signal to this process and no other.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(mut self, signal: &str) -> Ended {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        self.reading.take().unwrap().join().unwrap();
        let mut said = std::mem::take(&mut self.said);
        said.extend(self.lines.iter().map(|line| line + "\n"));
        Ended { status, said, complained: self.log() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The ids of the events in the lines of `log` handlers.
pub(crate) fn ids_in(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("handlers::log: event"));
    let id = |line: &str| Some(line.split_once("event_id=\"")?.1.split_once('"')?.0.to_owned());
    lines.filter_map(id).collect()
}
