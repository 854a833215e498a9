//! Where redriven events go: a web server, a topic, an outbox, a file or standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use backstop_core::setting::SettingFault;
use backstop_core::{CloudEvent, Failure, Sink};
use backstop_http::Webhook;
use backstop_kafka::Publisher;

use super::args::{Redrive, Web};
use super::rows::Table;
use crate::config;

pub(super) enum Target {
    Nowhere,
    Web(Webhook),
    Topic(Publisher),
    Outbox(Table),
    Lines(Mutex<Lines>),
}

/// Lines, each of which is whole: after one that could not be taken back nothing more is written, since the next
/// would become a part of it.
pub(super) struct Lines {
    into: Into,
    /// Why a line is torn, if one is.
    torn: Option<String>,
}

enum Into {
    Stdout,
    File(File),
}

impl Target {
    pub(super) async fn open(args: &Redrive) -> anyhow::Result<Self> {
        match args.to.strip_prefix("outbox:") {
            Some(_) if !args.web.secret.is_empty() || !args.web.allow_network.is_empty() => bail!("{NO_URL}"),
            Some(name) => Ok(Self::Outbox(Table::named(name, args).await?)),
            None => Self::elsewhere(&args.to, &args.web),
        }
    }

    fn elsewhere(to: &str, web: &Web) -> anyhow::Result<Self> {
        if to.starts_with("env:") || to.starts_with("file:") {
            let url = config::secret(to).context("--to cannot be used")?;
            if !url.contains("://") {
                bail!(
                    "--to env:… or file:… must lead to a URL; to write to a file, give its path without file:"
                );
            }
            return Self::elsewhere(&url, web);
        }
        if to.starts_with("https://") || to.starts_with("http://") {
            return Ok(Self::Web(webhook(to, web)?));
        }
        if let Some(place) = to.strip_prefix("kafka://") {
            return Ok(Self::Topic(publisher(place, web)?));
        }
        if to.contains("://") {
            // Not repeated: it may hold a password.
            bail!("--to names an unknown kind of URL; begin it with https://, http:// or kafka://");
        }
        if !web.secret.is_empty() || !web.allow_network.is_empty() {
            bail!("{NO_URL}");
        }
        let path = Path::new(to);
        let into = if path == Path::new("-") {
            Into::Stdout
        } else {
            let cannot =
                || format!("cannot write to {}; name a file, or - for standard output", path.display());
            Into::File(end_of(path).with_context(cannot)?)
        };
        Ok(Self::Lines(Mutex::new(Lines { into, torn: None })))
    }
}

const NO_URL: &str = "--secret and --allow-network are for a URL, and --to names none";

fn webhook(url: &str, web: &Web) -> anyhow::Result<Webhook> {
    let mut config = backstop_http::Config::to(url);
    config.timeout = web.timeout.unwrap_or(config.timeout);
    config.allowed_networks.clone_from(&web.allow_network);
    for secret in &web.secret {
        config.secrets.push(config::secret(secret).context("--secret cannot be used")?.into());
    }
    match Webhook::of(config).build() {
        Err(backstop_http::Error::Settings { faults, .. }) => bail!("{}", by_flag(&faults)),
        built => Ok(built?),
    }
}

/// All faults in one line, each by the flag that sets it.
fn by_flag(faults: &[SettingFault]) -> String {
    let flag = |fault: &SettingFault| match fault.setting {
        "url" | "bootstrap-servers" | "topic" => "--to",
        "secrets" => "--secret",
        "allowed-networks" => "--allow-network",
        "timeout" => "--timeout",
        other => other,
    };
    let told = faults.iter().map(|fault| format!("{} {}", flag(fault), fault.rule));
    told.collect::<Vec<_>>().join("; ").replace("`allowed-networks`", "--allow-network")
}

/// From `host:port,host:port/topic`.
fn publisher(place: &str, web: &Web) -> anyhow::Result<Publisher> {
    let Some((brokers, topic)) = place.split_once('/') else {
        bail!("--to names no topic; write kafka://host:port/topic");
    };
    let mut config = backstop_kafka::Config::to(brokers, topic);
    config.timeout = web.timeout.unwrap_or(config.timeout);
    match Publisher::of(config).build() {
        Err(backstop_kafka::Error::Settings { faults, .. }) => bail!("{}", by_flag(&faults)),
        built => Ok(built?),
    }
}

/// Opens a file behind its last whole line.
fn end_of(path: &Path) -> io::Result<File> {
    // Events may hold what not everybody should read.
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    if !file.metadata()?.is_file() {
        // What is written there is gone, and so would be the entry.
        return Err(io::Error::other("it is not a regular file"));
    }
    // The name of a file that was made just now is kept by its directory, and entries are removed for what is in it.
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

impl Lines {
    /// Writes a line; what is not safe is not confirmed.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(why) = &self.torn {
            return Err(io::Error::other(format!("an earlier event could be written only in part: {why}")));
        }
        match &mut self.into {
            Into::Stdout => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(line).and_then(|()| stdout.flush());
                self.torn = written.as_ref().err().map(ToString::to_string);
                written
            }
            Into::File(file) => {
                let before = file.metadata()?.len();
                let written = file.write_all(line).and_then(|()| file.sync_data());
                if let Err(error) = &written {
                    self.torn = file.set_len(before).is_err().then(|| error.to_string());
                }
                written
            }
        }
    }
}

impl Sink for Target {
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Web(webhook) => webhook.emit(event).await,
            Self::Topic(publisher) => publisher.emit(event).await,
            Self::Outbox(table) => table.bring_back(&event).await.map(drop),
            Self::Lines(lines) => {
                let line = event.as_json().to_owned() + "\n";
                Ok(lines.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes())?)
            }
        }
    }
}
