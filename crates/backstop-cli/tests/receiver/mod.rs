//! A web server on loopback that answers as it is told and remembers what it was sent.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver as Requests, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Far longer than any request takes to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request: the head in lower case, and the body.
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(crate) struct Receiver {
    address: String,
    status: Arc<AtomicU16>,
    says: Arc<Mutex<String>>,
    requests: Requests<Request>,
}

impl Receiver {
    /// Answers with this status until it is told otherwise.
    pub(crate) fn answering(status: u16) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), status)
    }

    /// The same on a port that is taken already.
    pub(crate) fn on(listener: TcpListener, status: u16) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let status = Arc::new(AtomicU16::new(status));
        let (sender, requests) = channel();
        let says = Arc::new(Mutex::new(String::new()));
        let (answering, saying) = (status.clone(), says.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (sender, status, says) = (sender.clone(), answering.clone(), saying.clone());
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(request) = read(&mut reader) {
                        // Before it is told: whoever hears of a request can change only later answers.
                        let status = status.load(Ordering::Relaxed);
                        let _ = sender.send(request);
                        let says = says.lock().unwrap().clone();
                        let length = says.len();
                        let answer =
                            format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n\r\n{says}");
                        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, status, says, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Says this in its answers from now on.
    #[allow(dead_code, reason = "not every suite has something to say")]
    pub(crate) fn say(&self, text: &str) {
        text.clone_into(&mut self.says.lock().unwrap());
    }

    /// The next request, as soon as it is there.
    pub(crate) fn next(&self) -> Option<Request> {
        self.next_in(PATIENCE)
    }

    /// The next request, if it comes in time.
    pub(crate) fn next_in(&self, time: Duration) -> Option<Request> {
        self.requests.recv_timeout(time).ok()
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body: String::from_utf8(body).ok()? })
}
