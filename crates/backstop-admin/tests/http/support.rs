//! A dashboard on a free port, components that say what a test wants, and a client that sends exactly what it is given.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use backstop_admin::Admin;
use backstop_core::Shutdown;
use backstop_core::inspect::{Health, Inspect, Report};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A component that always answers the same.
pub(crate) struct Saying(pub(crate) Report);

impl Saying {
    pub(crate) fn health(name: &str, health: Health) -> Arc<Self> {
        Arc::new(Self(report(name, health)))
    }
}

impl Inspect for Saying {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async { self.0.clone() })
    }
}

/// A component that never answers.
pub(crate) struct Hanging;

impl Inspect for Hanging {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// A report with nothing in it.
pub(crate) fn report(name: &str, health: Health) -> Report {
    Report::of("outbox", name, health)
}

/// A dashboard that serves until the test ends.
pub(crate) struct Open {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) serving: JoinHandle<()>,
}

impl Open {
    pub(crate) async fn new(admin: Admin) -> Self {
        let dashboard = admin.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (address, shutdown) = (dashboard.address(), Shutdown::new());
        Self { address, serving: tokio::spawn(dashboard.serve(shutdown.clone())), shutdown }
    }

    pub(crate) async fn watching(components: impl IntoIterator<Item = Arc<dyn Inspect>>) -> Self {
        Self::new(components.into_iter().fold(Admin::new(), Admin::watch)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    /// Sends a request as the dashboard's own page would, with more headers (each ending in `\r\n`).
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str) -> Answer {
        let host = self.address;
        self.exchange(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")).await
    }

    /// Sends these bytes and reads one answer.
    pub(crate) async fn exchange(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        Answer::read(&mut stream).await
    }
}

/// An answer, taken apart no further than tests need.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = Self::parse(&bytes) {
                return answer;
            }
            let read = stream.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "the connection ended early: {:?}", String::from_utf8_lossy(&bytes));
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let head = head.to_owned();
        let code = head.split(' ').nth(1)?.parse().ok()?;
        let answer = Self { code, head, body: body.to_owned() };
        let length: usize = answer.header("content-length")?.parse().ok()?;
        (body.len() >= length).then_some(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named =
            |line: &'_ str| line.split_once(": ").is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head.lines().find(|line| named(line)).and_then(|line| Some(line.split_once(": ")?.1))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }
}
