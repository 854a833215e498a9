//! A demo in a process of its own: what it printed, and what it answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Far longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The binary with the arguments of a demo.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstop"));
    command.arg("demo").args(arguments).env_remove("BACKSTOP_LOG").stdin(Stdio::null());
    command
}

/// How a demo ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
    pub(crate) complained: String,
}

impl Ended {
    /// The number in front of a text on one of the lines, as in `42 appended = …`.
    pub(crate) fn number_before(&self, text: &str) -> u64 {
        let (before, _) =
            self.said.split_once(text).unwrap_or_else(|| panic!("no {text:?} in:\n{}", self.said));
        let digits: String = before.trim_end().chars().rev().take_while(char::is_ascii_digit).collect();
        digits
            .chars()
            .rev()
            .collect::<String>()
            .parse()
            .unwrap_or_else(|_| panic!("no number before {text:?}"))
    }
}

/// Runs a demo to its end.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    let output = command(arguments).output().unwrap();
    Ended {
        status: output.status,
        said: String::from_utf8(output.stdout).unwrap(),
        complained: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A demo that runs. It is stopped, if need be, when this is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    said: String,
    /// Where its dashboard listens, as `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Running {
    /// Starts a demo on a free port and waits until it has said where.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = command(arguments);
        let mut child =
            command.args(["--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut running = Self { child, lines, said: String::new(), address: String::new() };
        let line = running.until("dashboard  http://");
        running.address = line.trim().trim_start_matches("dashboard  http://").into();
        // The last line of the greeting: by then everything has been started.
        running.until("nds ");
        running
    }

    /// Waits for a line with a text in it.
    fn until(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with {text:?} came after:\n{}", self.said));
            self.said += &line;
            self.said += "\n";
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Asks for a page: its status, and all that was answered.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer)
    }

    /// Asks until the answer has a text in it.
    pub(crate) fn get_until(&self, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let (status, answer) = self.get(path);
            if status == 200 && wanted(&answer) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "{path} never answered as wanted:\n{answer}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a signal to this process and no other.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let mut complained = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
        let status = self.child.wait().unwrap();
        let mut said = std::mem::take(&mut self.said);
        said.extend(self.lines.iter().map(|line| line + "\n"));
        Ended { status, said, complained }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
