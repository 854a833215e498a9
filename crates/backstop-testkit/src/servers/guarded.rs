//! A server's process that ends with the test, however that ends.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a server may take to start, recovery included, and to stop.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

const PID: &str = "server.pid";

/// Runs the server and sends it the signal in `$0` when the standard input ends.
const GUARD: &str = r#""$@" & server=$!; echo "$server" > server.pid; read -r _; kill -s "$0" "$server" 2>/dev/null; wait "$server""#;

/// A running server, and the shell that guards it.
#[derive(Debug)]
pub(super) struct Guarded {
    shell: Child,
    home: PathBuf,
}

impl Guarded {
    /// A command that runs a program under guard, whose arguments the caller adds. `shell` runs `sh` in the
    /// server's home; `ending` is the signal upon which the server ends soon and in order.
    pub(super) fn command(mut shell: Command, ending: &str, program: &Path) -> Command {
        shell.args(["-c", GUARD, ending]).arg(program).stdin(Stdio::piped());
        shell
    }

    /// Starts such a command.
    pub(super) fn spawn(mut command: Command, home: &Path) -> io::Result<Self> {
        let _ = fs::remove_file(home.join(PID));
        Ok(Self { shell: command.spawn()?, home: home.to_owned() })
    }

    /// Asks the server to end, and waits until it has.
    pub(super) async fn stop(mut self) {
        drop(self.shell.stdin.take());
        self.ended().await;
    }

    /// Sends a signal to the server alone.
    pub(super) fn signal(&self, name: &str) {
        let pid = fs::read_to_string(self.home.join(PID)).expect("the process id of a running server");
        // The shell's own `kill`: the program of that name is missing on slim machines.
        let sent = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "sh", name, pid.trim()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot send {name} to process {pid}");
    }

    /// Kills the server with SIGKILL, and waits until it is gone.
    pub(super) async fn kill(mut self) {
        self.signal("KILL");
        drop(self.shell.stdin.take());
        self.ended().await;
    }

    async fn ended(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.shell.try_wait().expect("a child to wait for").is_none() {
            assert!(Instant::now() < deadline, "the server does not end");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A port of the loopback address that nobody listens on now.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Waited for, so that nothing is written into a folder that is being removed.
        let _ = self.shell.wait();
    }
}
