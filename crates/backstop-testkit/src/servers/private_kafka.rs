//! A whole Kafka broker for one test, to be stopped, frozen and started again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::guarded::{Guarded, PATIENCE, free_port};
use super::kafka::KafkaSpace;
use super::{Directory, directory};
use crate::proxy::Proxy;
use crate::{skip, workspace};

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAg";
const PROPERTIES: &str = "server.properties";

/// An Apache Kafka of the test's own, broker and controller at once, behind a [`Proxy`]: clients that ask it for its
/// address are told the proxy's. It ends with this value, and its data goes with it.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(mut broker) = backstop_testkit::servers::private_kafka().await else { return };
/// broker.freeze(); // it holds its connections and says nothing
/// broker.thaw();
/// broker.network().black_hole();
/// broker.network().restore();
/// broker.stop().await;
/// broker.start().await;
/// # });
/// ```
#[derive(Debug)]
pub struct PrivateKafka {
    // First, so that the broker has ended before its folder goes.
    running: Option<Guarded>,
    home: Directory,
    class_path: OsString,
    port: u16,
    proxy: Proxy,
}

/// Starts a broker; `None` where the services have not fetched Kafka or it cannot be started, and then the test
/// is marked as [skipped](crate::skip()).
pub async fn private_kafka() -> Option<PrivateKafka> {
    let started = match PrivateKafka::prepare().await {
        Ok(mut broker) => broker.try_start().await.map(|()| broker),
        Err(why) => Err(why),
    };
    started.inspect_err(|why| skip(format_args!("no Kafka of the test's own: {why}"))).ok()
}

impl PrivateKafka {
    /// Its topics and groups, by way of the proxy.
    pub fn space(&self) -> KafkaSpace {
        KafkaSpace::at(self.proxy.address().to_string())
    }

    /// The network between clients and broker.
    pub fn network(&self) -> &Proxy {
        &self.proxy
    }

    /// Stops the broker as an administrator would.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn stop(&mut self) {
        if let Some(broker) = self.running.take() {
            broker.stop().await;
        }
    }

    /// Kills the broker with SIGKILL.
    ///
    /// # Panics
    ///
    /// If it cannot be killed.
    pub async fn kill(&mut self) {
        if let Some(broker) = self.running.take() {
            broker.kill().await;
        }
    }

    /// Starts the broker again, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn start(&mut self) {
        if let Err(why) = self.try_start().await {
            panic!("Kafka did not start again: {why}");
        }
    }

    /// Freezes the broker with SIGSTOP: its connections stay, and it answers nothing.
    ///
    /// # Panics
    ///
    /// If the signal cannot be sent.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets a frozen broker go on.
    ///
    /// # Panics
    ///
    /// If the signal cannot be sent.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        if let Some(broker) = &self.running {
            broker.signal(name);
        }
    }

    /// Everything up to the first start.
    async fn prepare() -> Result<Self, String> {
        let jars = workspace::services().join("kafka/libs");
        if !jars.join("complete").is_file() {
            return Err("`cargo xtask services up` has not fetched it".to_owned());
        }
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let controller = free_port().map_err(|error| format!("no free port: {error}"))?;
        let proxy = Proxy::to(format!("127.0.0.1:{port}")).await;
        let home = directory();
        let advertised = proxy.address().to_string();
        fs::write(home.file(PROPERTIES), properties(port, controller, &advertised))
            .map_err(|error| error.to_string())?;
        // Java splits its class path at colons, which the path of a clone may hold: a link has none.
        std::os::unix::fs::symlink(&jars, home.file("libs")).map_err(|error| error.to_string())?;
        let broker = Self { running: None, home, class_path: "libs/*".into(), port, proxy };
        let mut format = broker.java_command(Command::new("java"));
        format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", PROPERTIES]);
        let made = format.output().map_err(|error| format!("java: {error}"))?;
        if !made.status.success() {
            return Err(format!(
                "its storage was not made: {}",
                String::from_utf8_lossy(&made.stderr).trim()
            ));
        }
        Ok(broker)
    }

    async fn try_start(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|error| error.to_string())?;
        let again = log.try_clone().map_err(|error| error.to_string())?;
        let mut shell = Command::new("sh");
        shell.current_dir(self.home.path());
        let mut guard = self.java_command(Guarded::command(shell, "TERM", "java".as_ref()));
        guard.args(["kafka.Kafka", PROPERTIES]).stdin(Stdio::piped()).stdout(log).stderr(again);
        self.running = Some(Guarded::spawn(guard, self.home.path()).map_err(|error| error.to_string())?);
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = TcpStream::connect(("127.0.0.1", self.port)).await {
            if Instant::now() > deadline {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                return Err(format!("{error}; its log:\n{log}"));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn java_command(&self, mut java: Command) -> Command {
        java.current_dir(self.home.path());
        java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        java.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"]).arg(&self.class_path);
        java
    }

    fn log(&self) -> PathBuf {
        self.home.file("log")
    }
}

impl Drop for PrivateKafka {
    /// A frozen broker would never hear that it is to end.
    fn drop(&mut self) {
        if self.running.is_some() {
            self.signal("CONT");
        }
    }
}

fn properties(port: u16, controller: u16, advertised: &str) -> String {
    format!(
        "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=data
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"
    )
}
