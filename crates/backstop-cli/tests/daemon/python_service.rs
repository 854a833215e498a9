//! The example with a Python service, as its README tells it: a commit becomes a webhook, a rollback does not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use backstop_core::{Clock, SystemClock};
use backstop_testkit::eventually;
use backstop_testkit::servers::{postgres, python};
use sqlx::Executor;

use crate::support::{PATIENCE, Place};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The example's files, and the Python that runs them.
struct Service {
    python: PathBuf,
    database_url: String,
}

impl Service {
    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-service")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(Self::folder().join("service.py")).args(arguments).stdin(Stdio::null());
        command.env("DATABASE_URL", &self.database_url).env("WEBHOOK_SECRET", SECRET).env("PORT", "0");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn place(&self, item: &str) {
        let output = self.run(&["place", item]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn listen(&self) -> Listener {
        let mut child = self.command(&["listen"]).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut listener = Listener { child, lines, port: String::new() };
        let said = listener.line();
        listener.port = said.strip_prefix("listening on ").expect("it says its port").into();
        listener
    }
}

/// The receiver, which ends when this is dropped.
struct Listener {
    child: Child,
    lines: Receiver<String>,
    port: String,
}

impl Listener {
    /// The next line that it says.
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the receiver says something")
    }

    /// What a request with this signature is answered.
    fn answer(&self, signature: &str) -> String {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let now = SystemClock.now().timestamp();
        write!(
            stream,
            "POST /webhooks HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\nwebhook-id: m\r\n\
             webhook-timestamp: {now}\r\nwebhook-signature: {signature}\r\n\r\n{{}}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_commit_becomes_a_verified_webhook_and_a_rollback_sends_nothing() {
    let Some(database) = postgres().await else { return };
    let Some(python) = python(&["psycopg"]) else { return };
    let service = Service { python, database_url: database.url() };
    let listener = service.listen();
    let settings = std::fs::read_to_string(Service::folder().join("backstop.yaml")).unwrap();
    assert!(settings.contains("127.0.0.1:8080/"), "{settings}");
    // Polling once a minute, so that what comes sooner was woken by the trigger.
    let place = Place::with(&settings.replace("127.0.0.1:8080/", &format!("127.0.0.1:{}/", listener.port)))
        .variable("DATABASE_URL", database.url())
        .variable("WEBHOOK_SECRET", SECRET)
        .variable("BACKSTOP__SERVER__ADDRESS", "127.0.0.1:0")
        .variable("BACKSTOP__OUTBOX__POLLER__INTERVAL_MS", "60000");
    let migrated = place.run(&["migrate", "--triggers"]).with(0);
    assert!(migrated.said.contains("wake the daemon"), "{}", migrated.said);
    assert!(service.run(&["setup"]).status.success());
    let daemon = place.serve();
    let pool = database.pool().await;
    let listens =
        "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'";
    let listening = async || sqlx::query_scalar::<_, i64>(listens).fetch_one(&pool).await.unwrap() == 1;
    eventually("the daemon listens for commits", listening).await;

    let rolled_back = service.run(&["place", "coffee", "--fail"]);
    assert!(!rolled_back.status.success());
    service.place("tea");
    let line = listener.line();
    assert!(line.starts_with("shipped order 2: tea, trace 00-"), "order 1 was rolled back: {line}");
    let rows: Vec<(i16, String)> = sqlx::query_as("select status, headers->>'traceparent' from outbox_event")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(rows.len(), 1, "nothing is left of the rolled back order");
    assert!(line.ends_with(&rows[0].1), "the trace leads from the order to its shipment: {line} {rows:?}");

    // The same event again is known by its id.
    pool.execute("update outbox_event set status = 0, done_at = null").await.unwrap();
    service.place("honey");
    let mut lines = [listener.line(), listener.line()];
    lines.sort();
    assert_eq!(lines[0], "order 2 was shipped before");
    assert!(lines[1].starts_with("shipped order 3: honey"), "{lines:?}");

    for forged in ["v1,AAAA", "", "v1,\u{e9}"] {
        assert!(listener.answer(forged).starts_with("HTTP/1.1 401"), "{forged}");
    }
    daemon.end("-TERM").with(0);
    pool.close().await;
}
