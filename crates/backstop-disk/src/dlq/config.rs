//! How a dead-letter directory is set up: every setting, once, and what is not a setting.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backstop_core::config;
use backstop_core::config::{Config as _, ValueKind};
use backstop_core::setting::Faults;
use backstop_core::telemetry;
use backstop_core::{Clock, SystemClock};

use crate::error::Error;
use crate::fs::{Disk, Filesystem};

config! {
    /// Where and how failed events are kept.
    ///
    /// ```
    /// use backstop_disk::dlq::{Config, DeadLetters};
    ///
    /// # let place = backstop_testkit::servers::directory();
    /// # let path = place.path().join("dlq");
    /// let letters = DeadLetters::open(Config { create: true, ..Config::at(&path) })?;
    /// assert_eq!(letters.path(), path);
    /// # Ok::<(), backstop_disk::Error>(())
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Config {
        /// The directory. A relative path starts in the directory where the process is started.
        directory: PathBuf = PathBuf::new()
            => "directory": one(ValueKind::Text), required("it says where failed events are kept");
        /// Whether the directory is created if it does not exist, for its owner alone (mode 0700). If not, a disk
        /// that is not mounted is noticed at the start.
        create: bool = false => "create": one(ValueKind::Flag);
        /// Whether each record also says how many attempts there were, when, and where the event was to go. If not, a
        /// record has exactly the keys `event` and `error`.
        details: bool = false => "details": one(ValueKind::Flag);
        /// What the names of its metrics begin with. Several directories may share it: the label `dlq` has the directory's
        /// name.
        metrics_prefix: Option<String> = None
            => "metrics-prefix": one(ValueKind::Text), unset("`dlq`");
        /// Many events in one file, for high failure rates.
        rolling: Rolling = Rolling::default() => "rolling": group;
    }
    setters: Setup.config;
}

config! {
    /// When a file of many events is complete and the next one begins.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rolling {
        /// Whether many events are written into one file.
        enabled: bool = false => "enabled": one(ValueKind::Flag);
        /// A file of this size is complete, and the next one begins.
        max_bytes: u64 = 16 * 1024 * 1024 => "max-bytes": one(ValueKind::Number { min: 1, max: u64::MAX });
        /// A file of this age is complete, and the next one begins.
        max_age: Duration = Duration::from_secs(60) => "max-age": one(ValueKind::TIME);
        /// A file to which nothing was written for this long is complete. Entries of a complete file can be redriven.
        idle: Duration = Duration::from_secs(1) => "idle": one(ValueKind::TIME);
    }
}

impl Config {
    /// A directory, with everything else at its default.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), ..Self::default() }
    }
}

/// A [`Config`] and what is not a setting: the name, your own clock and your own filesystem.
///
/// ```
/// use backstop_disk::dlq::{Rolling, Setup};
///
/// let setup = Setup::at("/var/lib/shop/dlq").create(true).details_for("warehouse").rolling(Rolling::default());
/// assert_eq!(setup.path().to_str(), Some("/var/lib/shop/dlq"));
/// ```
#[derive(Debug, Clone)]
pub struct Setup {
    pub(super) config: Config,
    name: Option<String>,
    pub(super) target: Option<String>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) filesystem: Arc<dyn Filesystem>,
}

impl From<Config> for Setup {
    fn from(config: Config) -> Self {
        Self { config, name: None, target: None, clock: Arc::new(SystemClock), filesystem: Arc::new(Disk) }
    }
}

impl Setup {
    /// A directory, with everything else at its default.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Config::at(directory).into()
    }

    /// The name by which operators know it, and the label `dlq` of its metrics. Defaults to its path.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds [`details`](Self::details), with this name for where the events were to go. Defaults to no name.
    pub fn details_for(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self.details(true)
    }

    /// Writes many events into one file, for high failure rates. Defaults to a file for each event.
    pub fn rolling(mut self, rolling: Rolling) -> Self {
        self.config.rolling = Rolling { enabled: true, ..rolling };
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

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.config.directory
    }

    /// What operators call it.
    pub(super) fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path().display().to_string())
    }

    pub(super) fn metrics(&self) -> telemetry::Dlq {
        let prefix = self.config.metrics_prefix.as_deref().unwrap_or(telemetry::Dlq::DEFAULT_PREFIX);
        telemetry::Dlq::named(prefix, self.shown_name())
    }

    /// Names every fault in the settings.
    pub(super) fn check(&self) -> Result<(), Error> {
        let mut faults = Faults::default();
        self.config.check(&mut faults);
        faults.into_result().map_err(|faults| Error::Settings { faults })
    }
}
