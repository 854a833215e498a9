//! The writer: one thread that takes what failed, as much as waits, and makes it safe together.
//!
//! Telling the disk to keep something takes milliseconds, however much it is. So whatever arrives while one
//! batch is made safe becomes the next: at rest an event waits for nobody, under load many share the price.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use backstop_core::{CloudEvent, Timestamp, telemetry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::files::Files;
use super::rolling::RollingFile;
use super::settings::Settings;
use crate::Error;

/// How many events may wait to be written. More wait outside, where their senders wait anyway.
const MAX_WAITING: usize = 1024;

/// A failed event on its way to the disk.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) event: CloudEvent,
    pub(super) failed_at: Timestamp,
    /// The record as it will be written.
    pub(super) line: Vec<u8>,
}

/// A handle to the thread, which ends when the last handle is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Sender<Request>,
    room: Arc<Semaphore>,
}

struct Request {
    letter: Letter,
    answer: oneshot::Sender<Result<(), Error>>,
    /// Given back with the answer.
    room: OwnedSemaphorePermit,
}

impl Writer {
    pub(super) fn start(settings: &Settings, metrics: Arc<telemetry::Dlq>) -> io::Result<Self> {
        let (queue, requests) = channel();
        let layout = match settings.rolling {
            None => Layout::Files(Files::new(settings)),
            Some(_) => Layout::Rolling(RollingFile::new(settings)),
        };
        thread::Builder::new()
            .name("backstop-dlq".to_owned())
            .spawn(move || run(layout, &requests, &metrics))?;
        Ok(Self { queue, room: Arc::new(Semaphore::new(MAX_WAITING)) })
    }

    /// Stores an event; when this returns `Ok` it survives a crash.
    pub(super) async fn store(&self, letter: Letter) -> Result<(), Error> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| Error::WriterEnded)?;
        let (answer, stored) = oneshot::channel();
        let request = Request { letter, answer, room };
        self.queue.send(request).map_err(|_| Error::WriterEnded)?;
        stored.await.map_err(|_| Error::WriterEnded)?
    }
}

enum Layout {
    Files(Files),
    Rolling(RollingFile),
}

impl Layout {
    /// One answer for each letter, in their order.
    fn commit(&mut self, letters: &[Letter]) -> Vec<Result<(), Error>> {
        match self {
            Self::Files(files) => files.commit(letters),
            Self::Rolling(file) => file.commit(letters),
        }
    }
}

fn run(mut layout: Layout, requests: &Receiver<Request>, metrics: &telemetry::Dlq) {
    while let Some(first) = next(&mut layout, requests) {
        let batch = std::iter::once(first).chain(requests.try_iter()).take(MAX_WAITING);
        let (letters, answers): (Vec<_>, Vec<_>) =
            batch.map(|Request { letter, answer, room }| (letter, (answer, room))).unzip();
        let stored = layout.commit(&letters);
        metrics.commits.increment();
        for ((answer, _room), stored) in answers.into_iter().zip(stored) {
            // Whoever no longer waits for the answer has not been told that all is well.
            let _ = answer.send(stored);
        }
    }
}

/// Waits for the next event; a rolling file is left when none comes for a while.
fn next(layout: &mut Layout, requests: &Receiver<Request>) -> Option<Request> {
    if let Layout::Rolling(file) = layout
        && let Some(idle) = file.idle()
    {
        match requests.recv_timeout(idle) {
            Ok(request) => return Some(request),
            Err(RecvTimeoutError::Timeout) => file.leave(),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    requests.recv().ok()
}
