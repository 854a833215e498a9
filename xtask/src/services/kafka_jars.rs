//! Kafka's jars, fetched once by Maven.

use std::fs;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::install::Installer;
use super::room::Room;
use crate::program;
use crate::say::say;
use crate::workspace::{make_folder, read, write};

const VERSION: &str = "4.1.2";

const POM: &str = r"<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>backstop</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>VERSION</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>VERSION</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
";

/// Puts the jars into `libs`, unless they are all there.
pub(super) fn fetch(room: &Room, installer: &Installer) -> Result<()> {
    let libs = room.home.join("libs");
    // Written last, so that a fetch cut short is done again.
    let stamp = libs.join("complete");
    if read(&stamp).is_ok_and(|version| version.trim() == VERSION) {
        return Ok(());
    }
    if program::find("mvn").is_none() {
        installer.install(&["maven"])?;
    }
    say!("{:<14} fetching the jars of Kafka {VERSION} (once) …", room.name);
    let begun = Instant::now();
    let _ = fs::remove_dir_all(&libs);
    make_folder(&libs)?;
    write(&room.home.join("pom.xml"), POM.replace("VERSION", VERSION))?;
    run_maven(room)?;
    write(&stamp, format!("{VERSION}\n"))?;
    // The jars are in `libs` now; Maven's own copy only takes space.
    let _ = fs::remove_dir_all(room.home.join("maven"));
    say!("{:<14} fetched the jars in {:.1} s", room.name, begun.elapsed().as_secs_f32());
    Ok(())
}

fn run_maven(room: &Room) -> Result<()> {
    let path = room.folder.join("maven.log");
    let cannot = || format!("cannot write {}; check its permissions", path.display());
    let log = File::create(&path).with_context(cannot)?;
    let mut maven = Command::new("mvn");
    // A repository of its own: nothing is cached outside the clone.
    maven.arg(format!("-Dmaven.repo.local={}", room.home.join("maven").display()));
    maven.args(["-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies"]);
    maven.args(["-DoutputDirectory=libs", "-DincludeScope=runtime"]);
    maven.current_dir(&room.home).stdin(Stdio::null());
    maven.stdout(log.try_clone().with_context(cannot)?).stderr(log);
    if !maven.status().context("cannot start mvn; install the package `maven`")?.success() {
        let said = complaint(&read(&path).unwrap_or_default());
        bail!("Kafka's jars could not be fetched; check the network, then try again (Maven said: {said})");
    }
    Ok(())
}

/// The first line in which Maven says what is wrong.
fn complaint(log: &str) -> String {
    let mut errors = log.lines().filter_map(|line| line.strip_prefix("[ERROR]")).map(str::trim);
    let first = errors.find(|line| !line.is_empty()).map(str::to_owned);
    first.or_else(|| program::last_line(log)).unwrap_or_else(|| "nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_that_says_anything_is_told() {
        let log = "[WARNING] old\n[ERROR] \n[ERROR] No plugin found for prefix\n[ERROR] again\n";
        assert_eq!(complaint(log), "No plugin found for prefix");
        assert_eq!(complaint("JAVA_HOME is wrong\n"), "JAVA_HOME is wrong");
    }
}
