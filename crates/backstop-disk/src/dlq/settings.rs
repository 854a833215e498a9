//! How a dead-letter directory is kept: plain data with defaults.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::telemetry;
use backstop_core::{Clock, SystemClock};

use crate::fs::{Disk, Filesystem};

/// Where and how failed events are kept.
///
/// ```
/// use backstop_disk::dlq::{Rolling, Settings};
///
/// let settings = Settings::at("/var/lib/shop/dlq")
///     .create(true)
///     .details_for("warehouse")
///     .rolling(Rolling::default());
/// assert_eq!(settings.path().to_str(), Some("/var/lib/shop/dlq"));
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    pub(super) path: PathBuf,
    pub(super) name: Option<String>,
    pub(super) create: bool,
    pub(super) details: bool,
    pub(super) target: Option<String>,
    pub(super) rolling: Option<Rolling>,
    pub(super) metrics_prefix: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) filesystem: Arc<dyn Filesystem>,
}

impl Settings {
    /// A directory, with everything else at its default.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            name: None,
            create: false,
            details: false,
            target: None,
            rolling: None,
            metrics_prefix: telemetry::Dlq::DEFAULT_PREFIX.to_owned(),
            clock: Arc::new(SystemClock),
            filesystem: Arc::new(Disk),
        }
    }

    /// The name by which operators know it. Defaults to its path.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the directory, for its owner alone (mode 0700), if there is none. Defaults to false: a disk that
    /// is not mounted should be noticed.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether [`Details`](super::Details) are added to each record: how often delivery was tried, when, and where
    /// the event was to go. Defaults to no, which leaves exactly the keys `event` and `error`.
    pub fn details(mut self, details: bool) -> Self {
        self.details = details;
        self
    }

    /// Adds [`details`](Self::details), with this name for where the events were to go.
    pub fn details_for(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self.details(true)
    }

    /// Writes many events into one file, for high failure rates. Defaults to a file for each event.
    pub fn rolling(mut self, rolling: Rolling) -> Self {
        self.rolling = Some(rolling);
        self
    }

    /// What stands in front of the names of the metrics. Defaults to `dlq`.
    pub fn metrics_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.metrics_prefix = prefix.into();
        self
    }

    /// Where the time is read. Defaults to the machine's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Where the files are. Defaults to the machine's own [`Disk`].
    pub fn filesystem(mut self, filesystem: impl Filesystem) -> Self {
        self.filesystem = Arc::new(filesystem);
        self
    }

    /// What operators call it.
    pub(super) fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path.display().to_string())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// When a file that takes many events is left for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rolling {
    /// When it holds this many bytes. Defaults to 16 MiB.
    pub max_bytes: u64,
    /// When it is this old. Defaults to 60 s.
    pub max_age: Duration,
    /// When nothing was written for this long. Defaults to 1 s. A file that is left can be sent again.
    pub idle: Duration,
}

impl Default for Rolling {
    fn default() -> Self {
        Self { max_bytes: 16 * 1024 * 1024, max_age: Duration::from_secs(60), idle: Duration::from_secs(1) }
    }
}
