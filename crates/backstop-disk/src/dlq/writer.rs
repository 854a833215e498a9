//! The writer of the directory: letters on their way to one of its two layouts.

use std::io;
use std::sync::Arc;

use backstop_core::{CloudEvent, Timestamp, telemetry};

use super::config::Setup;
use super::files::Files;
use super::rolling::RollingFile;
use crate::group_commit::GroupCommit;

/// How many batches of files are made safe side by side.
const FILE_WRITERS: usize = 3;

/// A failed event on its way to the disk.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) event: CloudEvent,
    pub(super) failed_at: Timestamp,
    /// The record as it will be written.
    pub(super) line: Vec<u8>,
}

/// Starts the threads that write letters.
pub(super) fn start(settings: &Setup, metrics: Arc<telemetry::Dlq>) -> io::Result<GroupCommit<Letter>> {
    let name = "backstop-dlq";
    if settings.config.rolling.enabled {
        return GroupCommit::start(name, vec![RollingFile::new(settings, metrics)]);
    }
    let files = Arc::new(Files::new(settings, metrics));
    GroupCommit::start(name, vec![files; FILE_WRITERS])
}
