//! A receiver in a process of its own, which can be stopped like any other.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// Takes everything; says its port first, and then each body that it was sent.
const SCRIPT: &str = "
import http.server

class Taking(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        print(body.decode(), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Taking)
print(server.server_port, flush=True)
server.serve_forever()
";

pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) fn start() -> Option<Self> {
        let python = backstop_testkit::servers::python(&["http.server"])?;
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port: u16 = lines.next().and_then(|line| line.parse().ok()).expect("the receiver says its port");
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let noting = Arc::clone(&bodies);
        thread::spawn(move || lines.for_each(|line| noting.lock().unwrap().push(line)));
        Some(Self { child, address: ([127, 0, 0, 1], port).into(), bodies })
    }

    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    /// What has arrived.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A stopped process ends by this signal too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
