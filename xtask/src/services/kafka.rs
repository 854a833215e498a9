//! Apache Kafka: one node that is broker and controller at once.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::install::Installer;
use super::kafka_jars;
use super::kafka_probe;
use super::process::Identity;
use super::room::Room;
use super::server::Kind;
use crate::program;
use crate::workspace::write;

const OLDEST_JAVA: u32 = 17;
const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
const PROPERTIES: &str = "server.properties";
/// The jars, relative to the home: Java splits its class path at colons, which a clone's path may hold.
const CLASS_PATH: &str = "libs/*";

pub(super) struct Kafka;

impl Kind for Kafka {
    fn prepare(&self, room: &Room, installer: &Installer) -> Result<()> {
        if java().is_none() {
            installer.install(&["openjdk-17-jre-headless", "default-jre-headless"])?;
        }
        check_version()?;
        kafka_jars::fetch(room, installer)
    }

    fn command(&self, room: &Room, port: u16) -> Result<Command> {
        let controller = room.take_port("controller-port")?;
        write(&room.home.join(PROPERTIES), properties(port, controller))?;
        if !room.data().join("meta.properties").is_file() {
            format(room)?;
        }
        let mut command = Command::new(java().context("Java is gone; install `openjdk-17-jre-headless`")?);
        command.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", &home_argument(room)]);
        command.args(["-cp", CLASS_PATH, "kafka.Kafka", PROPERTIES]);
        Ok(command)
    }

    fn identity(&self, room: &Room) -> Identity {
        Identity { program: "java", argument: home_argument(room) }
    }

    fn answers(&self, port: u16) -> bool {
        kafka_probe::is_ready(port)
    }

    fn address(&self, port: u16) -> String {
        format!("127.0.0.1:{port}")
    }
}

fn home_argument(room: &Room) -> String {
    format!("-Dbackstop.home={}", room.home.display())
}

fn java() -> Option<PathBuf> {
    let chosen = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    chosen.filter(|java| java.is_file()).or_else(|| program::find("java"))
}

fn check_version() -> Result<()> {
    let java = java().context("Java is missing; install `openjdk-17-jre-headless`")?;
    let said = program::run(Command::new(java).arg("-version"))?;
    match major_version(&String::from_utf8_lossy(&said.stderr)) {
        Some(version) if version < OLDEST_JAVA => {
            bail!("Java {OLDEST_JAVA} or newer is needed and this machine has {version}; install a newer one")
        }
        // Better to try with a Java that states its version in an unknown way than to refuse it.
        _ => Ok(()),
    }
}

/// Reads `17` out of `openjdk version "17.0.15" 2025-04-15`.
fn major_version(said: &str) -> Option<u32> {
    said.split('"').nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn format(room: &Room) -> Result<()> {
    let _ = fs::remove_dir_all(room.data());
    let mut format = Command::new(java().context("Java is gone; install `openjdk-17-jre-headless`")?);
    format.args(["-XX:TieredStopAtLevel=1", "-cp", CLASS_PATH, "kafka.tools.StorageTool", "format"]);
    format.args(["-t", CLUSTER_ID, "-c", PROPERTIES]).current_dir(&room.home);
    program::run(&mut format)?;
    Ok(())
}

/// Small and quick, else as users have it. A broker that was killed may come back only when its session has run
/// out, so that is made short.
fn properties(port: u16, controller: u16) -> String {
    format!(
        "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=data
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.retention.check.interval.ms=2000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_java_version_is_its_first_number() {
        assert_eq!(major_version("openjdk version \"17.0.15\" 2025-04-15\n"), Some(17));
        assert_eq!(major_version("openjdk version \"21\" 2023-09-19\n"), Some(21));
        assert_eq!(major_version("java version \"1.8.0_402\"\n"), Some(1));
        assert_eq!(major_version("no java here"), None);
    }
}
